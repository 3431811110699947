"""Mutations that take effect once: declared once, and everything else follows from the declaration.

A service brings three things: a function that looks (SQL), plans (pure Python) and a function that executes
(SQL). The pipeline does the rest, in this order: Redis, the look, the plan, the marker, the row's lock and
version, the writes, the audit, the answer.

    declaration.py   @mutation, and how the declarations of a module are found
    planning.py      the dice and the plan: made once, outside of every retry
    execution.py     the loop that executes one plan until its version fits
    pipeline.py      one request from end to end
    ferry.py         tries that come together share a commit
    vigil.py         ends whoever holds for too long what others wait for
    errors.py        the codes, as Twirp has them
    contract.py      the same over HTTP
    gate.py          requests without an id: counted, then refused
    cleaning.py      forgetting markers as fast as they come
"""
