"""Compares the nonces that callers were given with the rows in the database, in the database, by sets.

A call is for a block of requests, one or thousands, and its answer is recorded as runs: consecutive nonces in
one hold. So ten million answers are some ten thousand lines, and every one of them is compared, row by row,
without being read into this process.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, LiteralString

import psycopg

from fencepost.testing import Breach
from fencepost_nonces._nonce_calls import Reservation
from fencepost_torture._effects import DOUBLED, LOST
from fencepost_torture._models import Run
from fencepost_torture._operation_log import Operation
from fencepost_torture._system_environment import SystemEnvironment

REFUSED = "refused"
GIVEN_BACK = ".0"
"""The suffix of a request whose nonce is given back."""
BREACHES_MAX = 1000
WORK_MEM = "64MB"

Runs = list[list[int]]
"""[the first nonce, the number of consecutive ones, their hold], in the order of the requests."""

TOLD: LiteralString = """
    create temporary table told (signer text not null, first_request bigint not null,
                                 given_back boolean not null, first_nonce bigint not null,
                                 many bigint not null, hold bigint not null)
"""
COPY: LiteralString = "copy told (signer, first_request, given_back, first_nonce, many, hold) from stdin"
ANALYZE: LiteralString = "analyze told, block, fencepost.nonce_allocation, fencepost.nonce_signer"

# All that was asked for joined with all that was used, each by its signer and its request.
ONCE: LiteralString = """
    select coalesce(a.signer, d.signer), coalesce(a.request, d.request), a.request is not null,
           coalesce(d.times, 0)
    from (select 's' || n / %(size)s %% %(signers)s as signer, n::text as request
          from generate_series(0, %(blocks)s::bigint * %(size)s - 1) n) a
    full join (select s.signer, n.request_id as request, count(*) as times
               from fencepost.nonce_allocation n join fencepost.nonce_signer s using (signer_id)
               where n.status = 'CONSUMED' group by 1, 2) d
      on d.signer = a.signer and d.request = a.request
    where a.request is null or d.times is distinct from 1
    limit %(most)s
"""
LEFT_OUT: LiteralString = """
    select s.signer, n.nonce, n.before
    from (select signer_id, nonce, lag(nonce, 1, -1::bigint) over one as before
          from fencepost.nonce_allocation window one as (partition by signer_id order by nonce)) n
    join fencepost.nonce_signer s using (signer_id)
    where n.nonce <> n.before + 1 limit %(most)s
"""
NOT_ITS_OWNERS: LiteralString = """
    select s.signer, n.nonce, n.request_id, n.tx_hash
    from fencepost.nonce_allocation n join fencepost.nonce_signer s using (signer_id)
    where n.status = 'CONSUMED' and n.tx_hash is distinct from 'tx-' || n.request_id limit %(most)s
"""
# A caller that keeps its nonce was told what the row says. A caller that gave its nonce back has an older
# hold than the row, or the row is free. So no two callers were told the same nonce in one hold, except two
# that both gave it back, which TWICE finds.
DENIED: LiteralString = """
    select t.signer, t.first_nonce + i, t.hold,
           t.first_request + i || case when t.given_back then '.0' else '' end, n.request_id, n.hold, n.status
    from told t cross join lateral generate_series(0, t.many - 1) i
    join fencepost.nonce_signer s on s.signer = t.signer
    left join lateral (select * from fencepost.nonce_allocation o
                       where o.signer_id = s.signer_id and o.nonce = t.first_nonce + i limit 1) n on true
    where case when n.nonce is null then true
               when t.given_back then not (t.hold < n.hold or (t.hold = n.hold and n.status = 'RELEASED'))
               else n.hold <> t.hold or n.request_id is distinct from (t.first_request + i)::text end
    limit %(most)s
"""
TWICE: LiteralString = """
    select t.signer, t.first_nonce + i, t.hold, min(t.first_request + i), max(t.first_request + i)
    from told t cross join lateral generate_series(0, t.many - 1) i where t.given_back
    group by 1, 2, 3 having min(t.first_request + i) <> max(t.first_request + i) limit %(most)s
"""


@dataclass(frozen=True, slots=True)
class NonceChecker:
    """Checks one system: `blocks` were asked for, of the signers in turn. A block has `size` requests,
    numbered from its own number times `size`."""

    env: SystemEnvironment
    blocks: int
    signers: int
    size: int

    def judge(self, operations: Iterable[Operation]) -> Iterable[Breach]:
        with self.env.database.connect_admin() as admin:
            admin.execute("select set_config('work_mem', %s, false)", (WORK_MEM,))
            self._note(admin, operations)
            return [*self._once(admin), *self._rows(admin), *self._answers(admin)]

    def _note(self, admin: psycopg.Connection[Any], operations: Iterable[Operation]) -> None:
        """Record the answers; a repeat with the same answer is recorded once."""
        lines = {
            (operation.subject, *_request(operation), *run)
            for operation in operations
            if operation.what == "reserve" and operation.answer not in (None, REFUSED)
            for run in _numbered(operation)
        }
        admin.execute(TOLD)
        with admin.cursor() as cursor, cursor.copy(COPY) as copy:
            for signer, first, given_back, place, nonce, many, hold in sorted(lines):
                copy.write_row((signer, int(first) + place, given_back, nonce, many, hold))
        admin.execute(ANALYZE)

    def _once(self, admin: psycopg.Connection[Any]) -> Iterable[Breach]:
        """Everything that was asked for used one nonce, and nothing else did."""
        asked = {"blocks": self.blocks, "signers": self.signers, "size": self.size}
        rows = admin.execute(ONCE, {**asked, "most": BREACHES_MAX})
        for signer, request, asked, times in rows.fetchall():
            if not asked:
                yield Breach("unrequested", f"{signer} {request}", "took effect, and was never requested")
            elif times:
                yield Breach(DOUBLED, f"{signer} {request}", f"took effect {times} times")
            else:
                yield Breach(LOST, f"{signer} {request}", "was requested and never took effect")

    def _rows(self, admin: psycopg.Connection[Any]) -> Iterable[Breach]:
        """No nonce below the highest is missing, and each was used by the request that it was given to."""
        for signer, nonce, before in admin.execute(LEFT_OUT, {"most": BREACHES_MAX}).fetchall():
            yield Breach("no nonce left out", signer, f"{nonce} comes after {before}")
        for signer, nonce, request, tx in admin.execute(NOT_ITS_OWNERS, {"most": BREACHES_MAX}).fetchall():
            yield Breach("used by its owner", signer, f"{nonce} of {request} was used by {tx}")

    def _answers(self, admin: psycopg.Connection[Any]) -> Iterable[Breach]:
        """No two callers were ever told the same nonce in one hold."""
        for signer, nonce, hold, request, *row in admin.execute(DENIED, {"most": BREACHES_MAX}).fetchall():
            owner, held, status = row
            what = f"for {request} in hold {hold}, and for {owner} in hold {held} ({status})"
            yield Breach(DOUBLED, f"{signer} {nonce}", what)
        for signer, nonce, hold, one, other in admin.execute(TWICE, {"most": BREACHES_MAX}).fetchall():
            yield Breach(DOUBLED, f"{signer} {nonce}", f"in hold {hold} for {one}.0 and {other}.0")


def runs_of(told: Iterable[Reservation]) -> Runs:
    """The answer of one call, for the operation log."""
    runs: Runs = []
    for each in told:
        if runs and each.nonce == runs[-1][0] + runs[-1][1] and each.hold == runs[-1][2]:
            runs[-1][1] += 1
        else:
            runs.append([each.nonce, 1, each.hold])
    return runs


def _request(operation: Operation) -> tuple[str, bool]:
    """The first request of the block, and whether its nonces are given back."""
    name = str(operation.question["request"])
    return name.removesuffix(GIVEN_BACK), name.endswith(GIVEN_BACK)


def _numbered(operation: Operation) -> Iterable[tuple[int, int, int, int]]:
    """Each run with the index of its first request in the block."""
    place = 0
    for nonce, many, hold in operation.answer:
        yield place, nonce, many, hold
        place += many


def doubted(operation: Operation) -> Operation:
    """A refusal as an unknown outcome: a node tries three times, the refusal is of the last try, and an
    earlier one may have been lost after its commit. So a refusal proves nothing here."""
    if operation.answer != REFUSED:
        return operation
    return replace(operation, ended=math.inf, answer=None, gave_up=operation.ended)


def settled(operations: Sequence[Operation]) -> list[Operation]:
    """Repeated requests merged into the one call that they are.

    A repeat by its request id returns the first reservation, which was made after the first request for it
    and before the first answer. The same holds for giving back.
    """
    asked: dict[Any, float] = {}
    found: dict[Any, Operation] = {}
    for operation in operations:
        subject = str(operation.question.get("request", operation.question.get("runs")))
        first = asked.setdefault((operation.what, subject), operation.begun)
        if operation.is_unknown:
            continue
        if operation.what == "reserve":
            name, answer = str(operation.answer), _joined(operation.answer)
            # Another reservation under the same name is another call, which starts with the next request for
            # it.
            asked.pop(("reserve", subject))
        else:
            name, answer = subject, operation.answer
        before = found.get((operation.what, name))
        ended = min(operation.ended, before.ended) if before else operation.ended
        begun = min(first, before.begun) if before else first
        found[operation.what, name] = replace(operation, begun=begun, ended=ended, answer=answer)
    answered: dict[str, list[Operation]] = {}
    for operation in found.values():
        answered.setdefault(str(operation.question), []).append(operation)
    unknown = [
        operation
        for operation in operations
        if operation.is_unknown and not _is_answered(operation, answered.get(str(operation.question), ()))
    ]
    return sorted([*found.values(), *unknown], key=lambda operation: operation.begun)


def _joined(runs: Runs) -> tuple[Run, ...]:
    """Without the holds, which the model does not have; in the order in which they were answered."""
    joined: list[Run] = []
    for first, many, _ in runs:
        if joined and first == sum(joined[-1]):
            joined[-1] = (joined[-1][0], joined[-1][1] + many)
        else:
            joined.append((first, many))
    return tuple(joined)


def _is_answered(operation: Operation, answered: Iterable[Operation]) -> bool:
    """Whether a call of the same name was answered, and this is that call.

    A caller that keeps its nonce has reserved once, however often it asked, before the answer or after it. As
    another call it could take any gap that was left, and hide it. A name whose nonce was given back may
    reserve again: then only what was asked before the answer is the same call.
    """
    same = [other for other in answered if other.what == operation.what]
    if operation.what == "reserve" and not _request(operation)[1]:
        return bool(same)
    return any(other.begun <= operation.begun <= other.ended for other in same)
