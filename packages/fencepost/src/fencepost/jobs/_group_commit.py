"""Group commit: jobs that finish with statements at the same time share one transaction, and so do workflows
that record a step with some.

A transaction of its own costs a job more than its statement does: a begin, a fence, a finish and a commit to
the disk. Here the statements are known before the transaction begins, and no code of a handler runs inside
it. So nothing holds it up, and what fails can be done again: a job that its neighbours disturb, or that
disturbs them, is left to a transaction of its own, where it succeeds or fails as it would without them.

    a statement fails, or a constraint at the commit      the group is halved until what failed is alone
    a statement waits, for a lock or because it is slow   all go alone, and for a while those like them
    a fence is refused                                    that job gets the refusal; the others go on
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any, LiteralString, cast

import psycopg

from fencepost._connection_line import ConnectionLine
from fencepost.coalescer import Coalescer, Waiting
from fencepost.crashpoints import crash_point
from fencepost.database import AsyncDatabase
from fencepost.errors import REFUSALS, IndeterminateCommit, InvalidInput, Refusal, ServerUnavailable
from fencepost.kernel import job as kernel_job
from fencepost.kernel._workflow import Record, commit_all
from fencepost.transaction import Transaction

Statement = tuple[LiteralString, Sequence[Any]]
"""A query with placeholders, and its parameters."""

MEMBERS_MAX = 64
AT_ONCE = 4
"""Groups under way: while one waits for the disk, others write."""
LOCK_MS_MAX = 50
STATEMENT_MS_MAX = 100
"""Longer than any wait of a healthy group, and shorter than the server takes to look for a deadlock: two
groups may lock the rows of a handler's in different orders, which no handler did alone."""
APART_SECONDS = 10.0
KEPT_FREE = 2
_SHARED_KINDS = re.compile(r"[\s(]*(insert|update|delete|merge|select|with|values)\b", re.IGNORECASE)
_LIMITS: LiteralString = (
    "select set_config('lock_timeout', %s, true), set_config('statement_timeout', %s, true)"
)


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """One job: how it finishes, or its step that is recorded, and what is written with it. `on_commit` is
    called when that has happened, even if its handler no longer waits."""

    done: kernel_job.Finish | Record
    statements: Sequence[Statement]
    on_commit: Callable[[], None]

    @property
    def queries(self) -> tuple[str, ...]:
        return tuple(query for query, _ in self.statements)


class GroupCommit:
    """The groups of one worker."""

    def __init__(self, database: AsyncDatabase, owner: str, *, connections: int = 10) -> None:
        """`connections` are those of the database's pool, of which some are left to claims and outcomes."""
        self._database = database
        self.line = ConnectionLine(max(1, connections - KEPT_FREE))
        """For a handler's own transaction."""
        self._owner = owner
        self._apart: dict[str, float] = {}
        """Queries that are run alone, until this time."""
        self._groups: Coalescer[Member, Refusal | bool] = Coalescer(
            self._serve, _Line(), at_once=AT_ONCE, name="fencepost-group-commit"
        )

    async def finish(self, member: Member) -> bool:
        """Finish the job, or record its step: whether it is committed. If not, nothing was written, and it
        needs a transaction of its own."""
        if self._apart and self._is_apart(member):
            return False
        answer = await self._groups.ask(member)
        if isinstance(answer, Refusal):
            raise answer
        return answer

    def _is_apart(self, member: Member) -> bool:
        now = time.monotonic()
        self._apart = {query: until for query, until in self._apart.items() if until > now}
        return any(query in self._apart for query in member.queries)

    async def _serve(self, members: Sequence[Member]) -> list[Refusal | bool]:
        """An answer for each, in order."""
        if not members:
            return []
        try:
            await self._commit(members)
        except Refusal as refusal:
            refused = [_is_about(refusal, member.done) for member in members]
            if not any(refused):
                return await self._halved(members)
            others = iter(await self._serve([m for m, it in zip(members, refused, strict=True) if not it]))
            return [refusal if it else next(others) for it in refused]
        except (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled):
            until = time.monotonic() + APART_SECONDS
            self._apart.update((query, until) for member in members for query in member.queries)
            return [False] * len(members)
        except Exception as error:
            if _is_outage(error):
                raise
            return await self._halved(members)
        return [True] * len(members)

    async def _halved(self, members: Sequence[Member]) -> list[Refusal | bool]:
        if len(members) == 1:
            return [False]
        middle = len(members) // 2
        return [*await self._serve(members[:middle]), *await self._serve(members[middle:])]

    async def _commit(self, members: Sequence[Member]) -> None:
        jobs = [(member.done.job_id, member.done.attempt) for member in members]
        crash_point("jobs.group.before_fence")
        async with self._database.transaction(first=kernel_job.fence_all(jobs, self._owner)) as tx:
            crash_point("jobs.group.after_fence")
            async with tx.connection.pipeline():
                await tx.execute(_LIMITS, (str(LOCK_MS_MAX), str(STATEMENT_MS_MAX)))
                await _execute(tx, members)
                records = [member.done for member in members if isinstance(member.done, Record)]
                if records:
                    await tx.run(commit_all(records, self._owner))
                finished = [member.done for member in members if isinstance(member.done, kernel_job.Finish)]
                unfinished: list[kernel_job.Unfinished] = []
                if finished:
                    unfinished = await tx.run(kernel_job.finish_many(finished, self._owner))
            _require_finished(unfinished)
            crash_point("jobs.group.before_commit")
        for member in members:
            member.on_commit()
        crash_point("jobs.group.after_commit")


def _is_about(refusal: Refusal, done: kernel_job.Finish | Record) -> bool:
    if refusal.noun == "workflow step":
        return isinstance(done, Record) and refusal.subject == f"{done.job_id}/{done.name}"
    return refusal.noun == "job" and refusal.subject == str(done.job_id)


async def _execute(tx: Transaction, members: Sequence[Member]) -> None:
    """Each job's statements in its own order; equal ones of several jobs together, prepared once."""
    async with tx.connection.cursor() as cursor:
        for queries, alike in groupby(sorted(members, key=_by_queries), key=lambda member: member.queries):
            rows = [[parameters for _, parameters in member.statements] for member in alike]
            for query, parameters in zip(queries, zip(*rows, strict=True), strict=True):
                await cursor.executemany(cast("LiteralString", query), parameters)


def _by_queries(member: Member) -> tuple[tuple[str, ...], int]:
    return member.queries, member.done.job_id


def _require_finished(unfinished: Sequence[kernel_job.Unfinished]) -> None:
    """A finish can only be refused here if a statement of the group has ended the job itself."""
    for one in unfinished:
        refused: type[Refusal] = REFUSALS[one.refusal]
        raise refused(
            f"job {one.job_id} was refused: {one.refusal}", noun="job", subject=str(one.job_id), seen=one.seen
        )


def _is_outage(error: Exception) -> bool:
    """Whether it says nothing about a statement: the server is away, or ends."""
    if isinstance(error, IndeterminateCommit | ServerUnavailable):
        return True
    sqlstate = getattr(error, "sqlstate", None)
    if sqlstate is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return str(sqlstate).startswith(("08", "53", "57P"))


@lru_cache(maxsize=512)
def check_query(query: str) -> None:
    """Refuse what would end or change the transaction that others share."""
    if _SHARED_KINDS.match(query) is None:
        raise InvalidInput(
            f"{query[:40]!r} is no insert, update, delete, merge or select: run it in the block of finish(), "
            "whose transaction is the job's own.",
            field="statements",
        )


class _Line:
    """In the order of arrival. A handler that no longer waits is passed over, and a group never holds two
    attempts at one job: refusals name only the job."""

    def __init__(self) -> None:
        self._waiting: deque[Waiting[Member, Refusal | bool]] = deque()

    def add(self, waiting: Waiting[Member, Refusal | bool]) -> None:
        self._waiting.append(waiting)

    def next_batch(self) -> Sequence[Waiting[Member, Refusal | bool]]:
        batch: dict[int, Waiting[Member, Refusal | bool]] = {}
        while self._waiting and len(batch) < MEMBERS_MAX:
            first = self._waiting[0]
            if first.asked.done.job_id in batch:
                break
            self._waiting.popleft()
            if not first.answer.done():
                batch[first.asked.done.job_id] = first
        return list(batch.values())

    def ended(self, batch: Sequence[Waiting[Member, Refusal | bool]]) -> None:
        """Groups do not exclude one another."""
