"""What must be true of the nonces afterwards, read from the database and from what the callers were told."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fencepost.embedded import Database


@dataclass(frozen=True)
class Told:
    """One answer to a caller: which nonce, and between which moments."""

    request_id: str
    nonce: int
    hold: int
    begun: float
    ended: float
    boot: int


def breaches(database: Database, *, requests: int, signers: int, first_boots: int) -> list[str]:
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
            told = [
                Told(*row)
                for row in admin.execute(
                    "select request_id, nonce, hold, begun, ended, boot from told where signer = %s", (name,)
                )
            ]
            found += [
                f"{name}: {what}" for what in (*of_rows(rows, requests), *of_answers(told, first_boots))
            ]
    return found


def of_rows(rows: Sequence[Any], requests: int) -> Iterable[str]:
    """No repeat, no gap kept, no state overwritten. Who filled the last gaps counts beside the requests."""
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


def of_answers(told: Sequence[Told], first_boots: int) -> Iterable[str]:
    """Nobody was told another's nonce; and the sequence is linearizable: who began later got a later one."""
    owners: dict[tuple[int, int], str] = {}
    for one in told:
        other = owners.setdefault((one.nonce, one.hold), one.request_id)
        if other != one.request_id:
            yield f"nonce {one.nonce}, hold {one.hold} was given to {other} and to {one.request_id}"
    # A process that began again is told what was reserved long before it asked: no new operation.
    fresh = [one for one in told if one.hold == 1 and one.boot <= first_boots]
    ended = sorted(fresh, key=lambda one: one.ended)
    highest, place = -1, 0
    for one in sorted(fresh, key=lambda one: one.begun):
        while place < len(ended) and ended[place].ended < one.begun:
            highest = max(highest, ended[place].nonce)
            place += 1
        if one.nonce < highest:
            yield f"request {one.request_id} began after {highest} was given out, and got {one.nonce}"
