"""Jobs: handlers that write with the finish, run in a thread, or leave the finish to the worker."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, LiteralString

import psycopg

import fencepost
from fencepost import Fencepost, Job, Retry
from fencepost.jobs.settings import JobSettings
from fencepost.kernel import job as kernel_job
from fencepost.kernel.drivers import run
from fencepost.logs import configure_logging
from fencepost.testing import Breach, points_in
from fencepost_torture._child_setup import PATIENT
from fencepost_torture._effects import exactly_once, in_order
from fencepost_torture._system_environment import Account, ProcessTask, SystemEnvironment

HELPING = 25
KINDS = ("own", "bare", "thread")
LINGER_LEASES = (0.0, 0.0, 0.0, 0.05, 0.4)
"""How long a job's work takes, in lease periods: long enough that faults hit a worker in the middle of it."""
# This workload does not reach these crash points; scheduled_jobs does.
NEVER_REACHED = ("jobs.schedule.", "jobs.poison.", "jobs.give_back.", "jobs.chunk")

# Every finishing write that commits leaves a row, whichever process made it.
SCHEMA: LiteralString = """
    create table asked (key text primary key);
    create table effect (id bigint generated always as identity primary key,
                         key text, job_id bigint, attempt bigint);
    create table finishing (job_id bigint, attempt bigint, state text, key text, kind text);
    grant select, insert on asked, effect to fencepost_app;
    create function note_finishing() returns trigger language plpgsql security definer as $f$
    begin
      insert into public.finishing
      select new.job_id, new.attempt, new.state, j.payload ->> 'key', j.kind from fencepost.job j
      where j.job_id = new.job_id;
      return null;
    end $f$;
    create trigger note_finishing after insert on fencepost.job_finished
      for each row execute function note_finishing();
"""
EFFECT: LiteralString = "insert into effect (key, job_id, attempt) values (%s, %s, %s)"
DONE: LiteralString = """
    select e.key, e.attempt from effect e union all
    select f.key, f.attempt from finishing f where f.kind = 'bare' and f.state = 'finished'
"""
OTHERWISE: LiteralString = """
    select j.key, j.count from (select f.key, count(*) from finishing f group by f.key) j where j.count <> 1
"""
OTHER_ATTEMPT: LiteralString = """
    select e.key, e.attempt, f.attempt from effect e join finishing f using (job_id)
    where e.attempt <> f.attempt
"""


class Jobs:
    """Workers on one queue."""

    name = "jobs"
    processes = 3
    uses_redis = True
    bears_clock_jumps = True
    bears_restores = True
    stream_key = JobSettings().stream_key
    points = tuple(
        sorted(
            str(point.name)
            for point in points_in(Path(fencepost.__file__).parent / "jobs")
            if point.hook == "crash_point" and not str(point.name).startswith(NEVER_REACHED)
        )
    )

    def load(self) -> None:
        """The worker is imported at its first use; without this, each process would import it."""
        import_module("fencepost.jobs._worker")

    @contextmanager
    def open(self, env: SystemEnvironment) -> Generator[Mapping[str, Any]]:
        with env.database.connect_admin() as admin:
            admin.execute(SCHEMA)
        self._asked: list[str] = []
        yield {}

    def serve(self, task: ProcessTask) -> None:
        configure_logging(level="error", form="json")
        asyncio.run(_work(task))

    def ask(self, env: SystemEnvironment, turn: int) -> None:
        kind = KINDS[env.chance.randrange(len(KINDS))]
        keys = [f"{kind}-{turn}-{n}" for n in range(HELPING)]
        fail = int(env.chance.random() < 0.15)
        linger = env.chance.choice(LINGER_LEASES) * env.lease_seconds
        env.insist(lambda: submit(env, kind, keys, fail, linger))
        self._asked += keys

    def account(self, env: SystemEnvironment) -> Account:
        asked = int(env.value("select count(*) from asked")) if env.restored else len(self._asked)
        return Account(asked, int(env.value("select count(*) from finishing")))

    def judge(self, env: SystemEnvironment) -> Iterable[Breach]:
        done = [key for key, _ in env.rows(DONE)]
        yield from exactly_once(self._wanted(env, done), done)
        for key, finishes in env.rows(OTHERWISE):
            yield Breach("one finishing write", key, f"was finished {finishes} times")
        for key, effect, finish in env.rows(OTHER_ATTEMPT):
            yield Breach("one attempt", key, f"took effect by {effect} and was finished by {finish}")
        yield from in_order("tokens grow", env.rows("select key, attempt from effect order by id"))

    def remains(self, env: SystemEnvironment) -> Iterable[Breach]:
        return env.entries_left(self.stream_key)

    def _wanted(self, env: SystemEnvironment, done: Sequence[str]) -> Sequence[str]:
        """What must have taken effect; nothing else may have."""
        # What the load generator was told is certain. The database may have lost it together with the effect
        # only through a restored backup.
        return [key for (key,) in env.rows("select key from asked")] if env.restored else self._asked


async def _work(task: ProcessTask) -> None:
    fp = Fencepost(task.database_url, redis_url=task.redis_url, settings=PATIENT)
    declare(fp, task.lease_seconds)
    async with fp:
        worker = fp.jobs.worker(settings_of(task))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        await worker.run()


def declare(fp: Fencepost, lease_seconds: float) -> None:
    """The handlers. `fail` is how many tries fail, `linger` how long the work takes in seconds."""

    @fp.job("default", kind="own", tries=1000, lease=lease_seconds, retry=at_once)
    async def own(job: Job, key: str, fail: int, linger: float) -> None:
        await asyncio.sleep(linger)
        _stumble(job, fail)
        async with job.finish({"key": key}) as tx:
            await tx.execute(EFFECT, (key, job.id, job.attempt))

    @fp.job("default", kind="bare", tries=1000, lease=lease_seconds, retry=at_once)
    async def bare(job: Job, key: str, fail: int, linger: float) -> dict[str, str]:
        await asyncio.sleep(linger)
        _stumble(job, fail)
        return {"key": key}

    @fp.job("default", kind="thread", tries=1000, lease=lease_seconds, retry=at_once)
    def thread(job: Job, key: str, fail: int, linger: float) -> None:
        threading.Event().wait(linger)
        _stumble(job, fail)
        with job.finish_sync({"key": key}) as tx:
            tx.execute(EFFECT, (key, job.id, job.attempt))


def settings_of(task: ProcessTask) -> JobSettings:
    return JobSettings(
        lease_seconds=task.lease_seconds,
        heartbeat_seconds=task.lease_seconds / 5,
        poll_seconds=0.2,
        sweep_interval_seconds=0.3,
        reclaim_interval_seconds=0.3,
        reclaim_grace_seconds=0.2,
        drain_seconds=5,
        concurrency=10,
        # A worker that is delivered half a batch claims straight from PostgreSQL: with a small batch some
        # workers do, beside others that only read Redis.
        batch=10 if task.place % 2 else 50,
        # And some claim when they are notified, beside others that leave it to the streams.
        notice_claims=4 if task.place % 2 else 0,
    )


def at_once(_tries: int, _error: Exception) -> Retry:
    return Retry(0)


def _stumble(job: Job, fail: int) -> None:
    if job.tries <= fail:
        raise RuntimeError(f"try {job.tries} fails, as planned")


def submit(env: SystemEnvironment, kind: str, keys: list[str], fail: int, linger: float) -> None:
    """Submit the jobs. A commit whose reply was lost shows at the repeat: the keys are there already."""
    with contextlib.suppress(psycopg.errors.UniqueViolation), env.asking() as connection:
        with connection.cursor() as cursor:
            cursor.executemany("insert into asked values (%s)", [(key,) for key in keys])
        run(
            connection,
            kernel_job.submit_many(
                "default",
                kind,
                [{"key": key, "fail": fail, "linger": linger} for key in keys],
                kernel_job.SubmitOptions(tries=1000, lease_seconds=env.lease_seconds),
            ),
        )


JOBS = Jobs
