"""Mutations that take effect once. Each is declared once; everything else follows from the declaration.

A service provides three things: a function that looks (SQL), plans (pure Python) and a function that executes
(SQL). The pipeline does the rest, in this order: Redis, the look, the plan, the idempotency key, the row's
lock and version, the writes, the audit, the response.

    planning.py            @mutation; the random generator and the plan: made once, outside of every retry
    pipeline.py            one request from end to end
    execution.py           executes plans until their versions fit: together, alone, or on the locked rows
    blocker_eviction.py    terminates backends that hold a row past the limit while others wait
    errors.py              the error codes, which are Twirp's
    http_routes.py         the mutations and their errors over HTTP
    request_id_policy.py   requests without an id: counted, then refused
    cleaning.py            deletes expired counts of requests without an id, and expired seeds
"""
