"""The parts that job libraries play in bench-jobs: one file for each, run by the environment of that library.

`ledger.py` is read from both sides. Nothing here imports Fencepost, but for the file that runs Fencepost.
"""
