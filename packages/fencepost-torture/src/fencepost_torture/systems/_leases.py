"""Leases and fences alone: holders take turns at a few resources and write under the fence.

The value is chosen before the fence and without any lock, as an application does that reads, computes and
writes. So only the fence keeps a holder that was paused, or whose commit is still in flight, from writing
what its successor writes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, LiteralString

import psycopg

from fencepost import Fencepost, FencepostError, IndeterminateCommit, Lease, Refusal, SyncFencepost
from fencepost.cli.shutdown import SignalEvent
from fencepost.kernel import lease as kernel_lease
from fencepost.testing import Breach
from fencepost_torture._child_setup import PATIENT, until_told_to_end
from fencepost_torture._effects import exactly_once, in_order
from fencepost_torture._linearizability import linearizable
from fencepost_torture._models import LeaseModel
from fencepost_torture._operation_log import Operation, OperationLog
from fencepost_torture._system_environment import Account, ProcessTask, SystemEnvironment

RESOURCES = 3
WRITES_MAX = 5
HELPING = 20
IDLE_SECONDS = 0.05
"""An idle process leaves the CPU to those that have work."""
NOTHING = "nothing was done"

SCHEMA: LiteralString = """
    create table wish (id bigint primary key, resource text not null);
    create index on wish (resource, id);
    create table effect (id bigint generated always as identity primary key, resource text not null,
                         wish bigint not null, token bigint not null, value bigint not null);
    create index on effect (resource, wish);
    grant select, insert on wish, effect to fencepost_app;
"""
NEXT: LiteralString = """
    select min(w.id) from wish w where w.resource = %s
    and w.id > (select coalesce(max(e.wish), 0) from effect e where e.resource = %s)
"""
WRITE: LiteralString = """
    insert into effect (resource, wish, token, value)
    select %s, %s, %s, coalesce(max(e.value), 0) + 1 from effect e where e.resource = %s
    returning value
"""


class Leases:
    """A few resources that every holder wants."""

    name = "leases"
    processes = 3
    points = ()
    uses_redis = False
    bears_clock_jumps = True
    bears_restores = True

    def load(self) -> None:
        """Everything is loaded with this module."""

    @contextmanager
    def open(self, env: SystemEnvironment) -> Generator[Mapping[str, Any]]:
        with env.database.connect_admin() as admin:
            admin.execute(SCHEMA)
        self._asked: list[int] = []
        yield {}

    def serve(self, task: ProcessTask) -> None:
        ending = until_told_to_end()
        operation_log = OperationLog(Path(task.operation_log), f"holder-{task.boot}")
        with Fencepost(task.database_url, settings=PATIENT).sync() as fp:
            holder = LeaseHolder(fp, operation_log, task)
            while not ending.is_set():
                holder.take_a_turn(ending)

    def ask(self, env: SystemEnvironment, turn: int) -> None:
        resource = f"printer-{env.chance.randrange(RESOURCES)}"
        ids = list(range(turn * HELPING + 1, (turn + 1) * HELPING + 1))
        env.insist(lambda: _wish(env, resource, ids))
        self._asked += ids

    def account(self, env: SystemEnvironment) -> Account:
        asked = int(env.value("select count(*) from wish")) if env.restored else len(self._asked)
        return Account(asked, int(env.value("select count(*) from effect")))

    def judge(self, env: SystemEnvironment) -> Iterable[Breach]:
        # What the load generator was told is certain. Only a restored backup may have lost it.
        asked = [wish for (wish,) in env.rows("select id from wish")] if env.restored else self._asked
        done = env.rows("select wish, resource, token from effect order by id")
        yield from exactly_once(map(str, asked), [str(wish) for wish, _, _ in done])
        yield from in_order("tokens grow", [(resource, token) for _, resource, token in done])
        yield from in_order("order of a key", [(resource, wish) for wish, resource, _ in done])
        operations = list(env.operation_log.operations())
        yield from tokens_are_new(operations, env.restored)
        if not env.restored:
            yield from histories_hold(operations)

    def remains(self, env: SystemEnvironment) -> Iterable[Breach]:
        return ()


def tokens_are_new(operations: Iterable[Operation], restored: Sequence[float]) -> Iterable[Breach]:
    """No token is given out twice, and none from before a restored backup is valid after it."""
    owners: dict[tuple[str, int], str] = {}
    given: dict[tuple[str, int], float] = {}
    for operation in operations:
        owner, answer = str(operation.question["owner"]), operation.answer
        if operation.what == "acquire" and isinstance(answer, int):
            token = (operation.subject, answer)
            if owners.setdefault(token, owner) != owner:
                yield Breach("tokens grow", operation.subject, f"{answer} is {owners[token]}'s and {owner}'s")
            given.setdefault(token, operation.ended)
        elif operation.what == "write" and isinstance(answer, int):
            token = (operation.subject, int(operation.question["token"]))
            if any(given[token] < moment < operation.begun for moment in restored):
                yield Breach("tokens grow", operation.subject, f"{owner} wrote under a token that was lost")


def histories_hold(operations: Iterable[Operation]) -> Iterable[Breach]:
    """Each resource is independent, so each has a history of its own."""
    by_subject: dict[str, list[Operation]] = {}
    for operation in operations:
        if operation.answer != NOTHING:
            by_subject.setdefault(operation.subject, []).append(operation)
    for subject, history in sorted(by_subject.items()):
        yield from linearizable(subject, history, LeaseModel())


class LeaseHolder:
    """One process that holds one resource after another."""

    def __init__(self, fp: SyncFencepost, operation_log: OperationLog, task: ProcessTask) -> None:
        self._fp = fp
        self._operation_log = operation_log
        self._task = task
        self._turns = count(1)

    def take_a_turn(self, ending: SignalEvent) -> None:
        """Acquire, write a few times, release. An unknown outcome ends the turn: the next has a new token.

        A new acquisition waits for every fenced transaction before it, including one of this process whose
        COMMIT is still in flight.
        """
        turn = next(self._turns)
        resource = f"printer-{(turn + self._task.place) % RESOURCES}"
        # A new name each time, as after a restart.
        lease = self._acquire(resource, f"holder-{self._task.boot}-{turn}")
        if lease is None:
            ending.wait(IDLE_SECONDS)
            return
        written = 0
        while written < WRITES_MAX and not ending.is_set() and self._write(lease):
            written += 1
        self._release(lease)
        if not written:
            ending.wait(IDLE_SECONDS)

    def _acquire(self, resource: str, owner: str) -> Lease | None:
        operation = self._operation_log.begin("acquire", resource, owner=owner)
        try:
            lease = self._fp.run(kernel_lease.acquire(resource, owner, self._task.lease_seconds))
        except (FencepostError, psycopg.Error) as error:
            self._not_done(operation, error)
            return None
        self._operation_log.end(operation, lease.token)
        return lease

    def _write(self, lease: Lease) -> bool:
        """False when there is nothing to write, or writing is not allowed any more."""
        try:
            with self._fp.transaction() as tx:
                row = tx.execute(NEXT, (lease.resource, lease.resource)).fetchone()
        except (FencepostError, psycopg.Error):
            return False
        if row is None or row[0] is None:
            return False
        operation = self._operation_log.begin("write", lease.resource, owner=lease.owner, token=lease.token)
        try:
            value = self._write_fenced(lease, row[0])
        except (FencepostError, psycopg.Error) as error:
            self._not_done(operation, error)
            return False
        self._operation_log.end(operation, value)
        return True

    def _write_fenced(self, lease: Lease, wish: int) -> int:
        with self._fp.transaction() as tx:
            tx.run(kernel_lease.fence(lease.resource, lease.token))
            row = tx.execute(WRITE, (lease.resource, wish, lease.token, lease.resource)).fetchone()
            assert row is not None
            return int(row[0])

    def _release(self, lease: Lease) -> None:
        operation = self._operation_log.begin("release", lease.resource, owner=lease.owner, token=lease.token)
        try:
            self._fp.run(kernel_lease.release(lease))
        except (FencepostError, psycopg.Error) as error:
            self._not_done(operation, error)
        else:
            self._operation_log.end(operation, "released")

    def _not_done(self, operation: str, error: Exception) -> None:
        """A refusal is an answer; a lost commit is unknown; every other error means that nothing was done."""
        if isinstance(error, Refusal):
            self._operation_log.end(operation, error.reason)
        elif not isinstance(error, IndeterminateCommit):
            self._operation_log.end(operation, NOTHING)


def _wish(env: SystemEnvironment, resource: str, ids: list[int]) -> None:
    """Insert them by their numbers: what a try that looked lost has written is not written again."""
    with env.asking() as connection:
        connection.execute(
            "insert into wish select unnest(%s::bigint[]), %s on conflict do nothing", (ids, resource)
        )


LEASES = Leases
