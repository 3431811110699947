"""The torture: real processes under faults from a seed, and checkers of what came of it.

schedule            which fault comes when, from the seed alone
faults              how each is done, and which this machine cannot do
ground, stage       servers, databases and proxies of our own
disk                the machine's, one that can be full, or one whose power can be cut
nursery, crew       a fork server, and the processes that it bears
systems/            what runs: leases, jobs, orders, players, nonces, flows
chronicle           what callers saw, written down outside of the system
linearizability     the checker of histories, and models/ of what they must look like
verdict             violations, floors, and what the run is worth
ordeal              one run from its first process to its report
report, screen      what people see
"""
