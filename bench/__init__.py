"""Benchmarks: what was measured, where, and whether it met its goal.

`python -m bench NAME [--quick]`, or `make bench-NAME`. Each module of this package that the
catalogue names is a benchmark: its `run(quick=...)` returns a `Report`.
"""
