"""Benchmarks: what was measured, where, and whether it met its goal.

`python -m bench NAME [--quick]`, or `make bench-NAME`. Each module beside this one that the
catalogue names is a benchmark: it has `run(quick=...)` and answers a `Report`.
"""
