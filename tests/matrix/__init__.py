"""The kernel and job suites on every server that this machine has: `make test-matrix`.

Nothing is fetched. What is found is run; what is not found is named, with what to install.
"""
