"""The roles of job libraries in bench-jobs: one file for each, run by the environment of that library.

Both sides read `results_store.py`. Nothing here imports Fencepost, except the files that run Fencepost.
"""
