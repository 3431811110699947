"""Mutations that take effect once. Each is declared once; everything else follows from the declaration.

A service provides three things: a function that looks (SQL), plans (pure Python) and a function that executes
(SQL). The pipeline does the rest, in this order: Redis, the look, the plan, the idempotency key, the row's
lock and version, the writes, the audit, the response.

    declaration.py         @mutation, and how the declarations of a module are found
    planning.py            the random generator and the plan: made once, outside of every retry
    execution.py           the loop that executes one plan until its version fits
    pipeline.py            one request from end to end
    batch_executor.py      concurrent attempts share a commit
    blocker_eviction.py    terminates backends that hold a row past the limit while others wait
    errors.py              the error codes, which are Twirp's
    http_routes.py         the mutations and their errors over HTTP
    request_id_policy.py   requests without an id: counted, then refused
    cleaning.py            deletes expired counts of requests without an id, and expired seeds
"""
