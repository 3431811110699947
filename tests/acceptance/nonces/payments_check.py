"""What must be true of the nonces afterwards, read from the database and from what the callers were told."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fencepost.embedded import Database


@dataclass(frozen=True)
class Told:
    """One reservation: asked for from this moment on, and answered for the first time at that one."""

    request_id: str
    nonce: int
    hold: int
    begun: float
    ended: float


# What was asked again and again, also by a process that began again, is the one reservation that it is: made
# after the first time it was asked for, and before the first time it was answered.
TOLD = """
    select t.request_id, t.nonce, t.hold, a.begun, min(t.ended)
    from told t
    join (select block, min(begun) as begun from asked where signer = %(signer)s group by block) a
      on a.block = t.block
    where t.signer = %(signer)s
    group by t.request_id, t.nonce, t.hold, a.begun
"""


def breaches(database: Database, *, requests: int, signers: int) -> list[str]:
    """Every way in which the run broke a promise."""
    found: list[str] = []
    with database.connect_admin() as admin:
        for number in range(signers):
            name = f"s{number}"
            rows = admin.execute(
                "select nonce, status, request_id, tx_hash from fencepost.signer_nonce_allocation"
                " where signer = %s order by nonce",
                (name,),
            ).fetchall()
            told = [Told(*row) for row in admin.execute(TOLD, {"signer": name})]
            found += [f"{name}: {what}" for what in (*of_rows(rows, requests), *of_answers(told))]
    return found


def of_rows(rows: Sequence[Any], requests: int) -> Iterable[str]:
    """No repeat, no gap kept, no state overwritten. What filled the last gaps counts beside the requests."""
    nonces = [row[0] for row in rows]
    expected = requests + sum(str(row[2]).startswith("gap-") for row in rows)
    if nonces != list(range(expected)):
        missing = sorted(set(range(expected)) - set(nonces))[:5]
        yield f"{len(nonces)} nonces for {expected} requests, missing {missing}, highest {nonces[-1:]}"
    for nonce, status, request_id, tx_hash in rows:
        if status != "CONSUMED":
            yield f"nonce {nonce} is {status}"
        elif tx_hash != f"tx-{request_id}":
            yield f"nonce {nonce} of request {request_id} was used by {tx_hash}"


def of_answers(told: Sequence[Told]) -> Iterable[str]:
    """No caller was told another's nonce; and the sequence is linearizable: a call that began later got a
    later one."""
    owners: dict[tuple[int, int], str] = {}
    for one in told:
        other = owners.setdefault((one.nonce, one.hold), one.request_id)
        if other != one.request_id:
            yield f"nonce {one.nonce}, hold {one.hold} was given to {other} and to {one.request_id}"
    # A gap that is given again is lower by intention.
    fresh = [one for one in told if one.hold == 1]
    ended = sorted(fresh, key=lambda one: one.ended)
    highest, place = -1, 0
    for one in sorted(fresh, key=lambda one: one.begun):
        while place < len(ended) and ended[place].ended < one.begun:
            highest = max(highest, ended[place].nonce)
            place += 1
        if one.nonce < highest:
            yield f"request {one.request_id} began after {highest} was given out, and got {one.nonce}"
