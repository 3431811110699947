"""Where workers live and die: a database with effects, a Redis, and the rules that the history must keep."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg

from fencepost.client import Fencepost
from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from fencepost.jobs.settings import JobSettings
from fencepost.kernel import job as kernel_job
from fencepost.kernel.drivers import run
from fencepost.redis_streams._keys import beside
from fencepost.redis_streams.connection import connect_sync
from fencepost.testing import Breach, Child, HistoryLine, check, once
from tests.acceptance.jobs import worker_processes
from tests.reused_databases import furnish
from tests.waiting_for import Waiter

STREAM = "fencepost:{jobs}"
GROUP = "fencepost:workers"

# Every finishing write that commits leaves a row, by whatever process and in whatever way.
SCHEMA: LiteralString = """
    create table asked (key text primary key, kind text not null);
    create table effect (
      id bigint generated always as identity, key text, job_id bigint, attempt bigint, who text);
    create table finishing (job_id bigint, attempt bigint, state text);
    grant select, insert on asked, effect to fencepost_app;
    create function note_finishing() returns trigger language plpgsql security definer as $f$
    begin
      insert into public.finishing values (new.job_id, new.attempt, new.state);
      return null;
    end $f$;
    create trigger note_finishing after insert on fencepost.job_finished
      for each row execute function note_finishing();
"""


@dataclass
class Refused:
    """A refusal as it was recorded: what was attempted, and the row that was seen."""

    reason: str
    attempted: Mapping[str, Any]
    seen: Mapping[str, Any]

    @property
    def is_explained(self) -> bool:
        """Whether the row that was seen bears the reason out."""
        return self.reason in EXPLANATIONS and EXPLANATIONS[self.reason](self)

    @property
    def state(self) -> str | None:
        return self.seen.get("state")


# The row is read a moment after the reason was found: a running job may have moved on, but never back.
EXPLANATIONS: Mapping[str, Callable[[Refused], bool]] = {
    "stale_attempt": lambda refused: refused.seen["attempt"] > refused.attempted["attempt"],
    "already_finished": lambda refused: refused.state in ("finished", "dead"),
    "not_running": lambda refused: refused.state is not None,
    "not_owner": lambda refused: (
        refused.state in ("finished", "pending", "dispatched")
        or refused.seen["owner"] != refused.attempted["owner"]
    ),
    "lease_expired": lambda refused: refused.state is not None,
    "in_flight": lambda refused: refused.state is not None,
    "cancelled": lambda refused: (
        refused.state == "cancelled" or bool(refused.seen.get("cancel_requested_at"))
    ),
    "not_found": lambda refused: refused.state is None,
}


@dataclass
class JobsEnv:
    database: Database
    redis_url: str
    lease_seconds: float = worker_processes.LEASE_SECONDS

    def __post_init__(self) -> None:
        self._looker = Waiter(self.database)

    def close(self) -> None:
        self._looker.close()

    def set_up(self) -> None:
        furnish(self.database, SCHEMA)

    def rows(self, query: LiteralString, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        return self._looker.rows(query, parameters)

    def value(self, query: LiteralString, parameters: tuple[Any, ...] = ()) -> Any:
        return self.rows(query, parameters)[0][0]

    @contextlib.contextmanager
    def redis(self) -> Any:
        client: Any = connect_sync(self.redis_url, reply_seconds=5)
        with contextlib.closing(client):
            yield client

    def mutate(self, signature: str, right: str, wrong: str) -> None:
        """Plant a bug in a function of the kernel, in this database alone."""
        definition = str(self.value("select pg_get_functiondef(%s::regprocedure)", (signature,)))
        assert right in definition, f"{signature} has no {right!r} to be replaced"
        with self.database.connect_admin() as admin:
            admin.execute(definition.replace(right, wrong).encode())

    # What is asked for.

    def ask(self, kind: str, keys: Sequence[str], *, fail: int = 0, linger: float = 0) -> list[int]:
        """Submit a job for each key, and write down what was asked for, in one transaction."""
        with psycopg.connect(self.database.url) as connection:
            with connection.cursor() as cursor:
                cursor.executemany("insert into asked values (%s, %s)", [(key, kind) for key in keys])
            answers = run(
                connection,
                kernel_job.submit_many(
                    "default",
                    kind,
                    [{"key": key, "fail": fail, "linger": linger} for key in keys],
                    kernel_job.SubmitOptions(tries=1000, lease_seconds=self.lease_seconds),
                ),
            )
            return [answer.job_id for answer in answers]

    def entry_for(self, job_id: int | str, **changes: Any) -> str:
        """An entry for a job that a worker holds."""
        fields = {"job_id": job_id, "enqueue_ts": 1, "payload_ref": "x", "priority": 1} | changes
        with self.redis() as redis:
            return str(redis.xadd(STREAM, fields))

    def deliver(self, entry_id: str, consumer: str, *, idle_ms: int = 0) -> None:
        """Give everything undelivered to a consumer; make that entry look idle."""
        with self.redis() as redis:
            with contextlib.suppress(Exception):
                redis.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
            redis.xreadgroup(GROUP, consumer, {STREAM: ">"})
            redis.xclaim(STREAM, GROUP, consumer, 0, [entry_id], idle=idle_ms)

    def record(self, job_id: int, entry_id: str, incarnation: str) -> None:
        """Tell the truth that the job is driven by that entry of that life of Redis."""
        with self.database.connect() as connection:
            run(connection, kernel_job.dispatched([job_id], [entry_id], incarnation))

    def drive(self, job_id: int, consumer: str | None = None, *, idle_ms: int = 0) -> None:
        """An entry that the database knows of, and the consumer that it was delivered to."""
        with self.redis() as redis:
            redis.set(beside(STREAM, "incarnation"), "life")
        entry_id = self.entry_for(job_id)
        self.record(job_id, entry_id, "life")
        if consumer is not None:
            self.deliver(entry_id, consumer, idle_ms=idle_ms)

    def entries(self) -> int:
        with self.redis() as redis:
            return int(redis.xlen(STREAM))

    # The workers.

    def child(self, *, crash: str = "", redis: bool = True, mutant: str = "", **changes: Any) -> Child:
        redis_url = self.redis_url if redis else None
        return Child(worker_processes.work, self.database.url, redis_url, changes, mutant, crash=crash)

    @contextlib.asynccontextmanager
    async def survivor(self, *, redis: bool = True, **changes: Any) -> AsyncGenerator[Fencepost]:
        """A worker in this process."""
        async with Fencepost(self.database.url, redis_url=self.redis_url if redis else None) as fp:
            worker_processes.declare(fp)
            worker = fp.jobs.worker(JobSettings(**(worker_processes.SETTINGS | changes)))
            task = asyncio.create_task(worker.run())
            try:
                yield fp
            finally:
                worker.stop()
                await asyncio.wait_for(task, 30)

    # What came of it.

    def left(self) -> int:
        return int(
            self.value(
                "select (select count(*) from fencepost.job_waiting)"
                " + (select count(*) from fencepost.job_running)"
            )
        )

    def nothing_is_left(self, *, within: float) -> None:
        try:
            Deadline(within, "every job has ended").wait(lambda: self.left() == 0)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.report()}") from error

    async def until(self, condition: str, holds: Callable[[], bool], *, within: float = 60) -> None:
        await asyncio.to_thread(Deadline(within, condition).wait, holds)

    async def until_nothing_is_left(self, *, within: float = 60) -> None:
        await asyncio.to_thread(self.nothing_is_left, within=within)

    def refusals(self) -> list[Refused]:
        return [
            Refused(*row)
            for row in self.rows("select reason, attempted, seen from fencepost.refusals where noun = 'job'")
        ]

    def history(self) -> list[HistoryLine]:
        """What was asked for and what took effect; a bare job's effect is its finishing write."""
        asked = [HistoryLine("asked", key) for (key,) in self.rows("select key from asked")]
        written = [
            HistoryLine("done", key, attempt)
            for key, attempt in self.rows("select key, attempt from effect order by id")
        ]
        bare = [
            HistoryLine("done", key, attempt)
            for key, attempt in self.rows(
                "select j.payload ->> 'key', f.attempt from finishing f join fencepost.jobs j using (job_id)"
                " where j.kind = 'bare'"
            )
        ]
        return [*asked, *written, *bare]

    def check(self) -> None:
        """Nothing lost, nothing doubled, by the attempt that finished; every refusal explained."""
        check(self.history(), once(), self._finished_once, self._by_the_finishing_attempt, self._explained)

    def _finished_once(self, _entries: Sequence[HistoryLine]) -> list[Breach]:
        rows = self.rows(
            "select j.job_id, j.state, (select count(*) from finishing f where f.job_id = j.job_id)"
            " from fencepost.jobs j"
        )
        return [
            Breach("finished once", f"job {job_id}", f"is {state} after {count} finishing writes")
            for job_id, state, count in rows
            if (state, count) != ("finished", 1)
        ]

    def _by_the_finishing_attempt(self, _entries: Sequence[HistoryLine]) -> list[Breach]:
        rows = self.rows(
            "select e.key, e.attempt, f.attempt from effect e join finishing f using (job_id)"
            " where e.attempt <> f.attempt"
        )
        return [
            Breach("one attempt", key, f"took effect by attempt {effect} and was finished by {finish}")
            for key, effect, finish in rows
        ]

    def _explained(self, _entries: Sequence[HistoryLine]) -> list[Breach]:
        return [
            Breach("explained", refused.reason, f"{refused.attempted} saw {refused.seen}")
            for refused in self.refusals()
            if not refused.is_explained
        ]

    def report(self) -> str:
        """Where everything is, for a person."""
        states = Counter(state for (state,) in self.rows("select state from fencepost.jobs"))
        stuck = self.rows(
            "select job_id, kind, state, attempt, tries, owner, expires_at, error from fencepost.jobs"
            " where state not in ('finished') order by job_id limit 10"
        )
        waiting = self.rows("select * from fencepost.job_waiting order by job_id limit 10")
        refused = Counter(refused.reason for refused in self.refusals())
        return f"{dict(states)}; refused {dict(refused)}; {stuck}; {waiting}"
