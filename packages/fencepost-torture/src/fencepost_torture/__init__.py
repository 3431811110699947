"""Torture runs: real processes under faults from a seed, and checkers of the resulting histories.

schedule            which fault comes when, from the seed alone
faults              how each fault is injected
fault_executor      injects the faults of a schedule when they are due
environment         the servers of a run; system_environment has the database and proxies of one system
disk                the machine's, one that can be full, or one whose power can be cut
process_main        is what a process does; process_pool starts, signals and replaces them
systems/            what runs: leases, jobs, orders, players, nonces, flows
operation_log       what callers asked and were answered, recorded outside of the system
linearizability     the checker of histories; models has what they must look like
verdict             violations, floors, and the verdict on the run
run                 one run from its first process to its report
report, screen      the output for people and programs
"""
