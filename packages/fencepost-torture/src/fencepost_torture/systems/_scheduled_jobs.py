"""Jobs of other kinds: cron jobs, beside stream entries that cannot be read, for workers that come and go.

No caller asks for a tick: which ticks there must be follows from the schedule and the database's clock. The
entries are written by a foreign client. And some jobs stop their worker, while more entries are on their way
to it: as when a new version is rolled out, the next worker continues where it stopped.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, LiteralString

from fencepost import Fencepost, Job
from fencepost.jobs.settings import JobSettings
from fencepost.logs import configure_logging
from fencepost.testing import Breach
from fencepost_torture._child_setup import PATIENT
from fencepost_torture._stray_entries import INVALID, MISSING, StrayEntries
from fencepost_torture._system_environment import Account, ProcessTask, SystemEnvironment
from fencepost_torture._ticks import Ticks, microseconds
from fencepost_torture.systems._jobs import EFFECT, Jobs, at_once, declare, settings_of, submit

if TYPE_CHECKING:
    from fencepost.jobs._worker import Worker
    from fencepost.kernel.schedule import Missed

STRAYS = 3
"""Stray entries with each batch."""
EACH = tuple(map(Ticks, (1000, 1100, 1300, 1700)))
"""Schedules that catch up every missed tick: over time their ticks come at all distances."""
LATEST = Ticks(1900)
"""The schedule that runs only the latest missed tick."""

# A tick's job is identified by its schedule and its moment, as every other is by its key.
SCHEMA: LiteralString = """
    create or replace function note_finishing() returns trigger language plpgsql security definer as $f$
    begin
      insert into public.finishing
      select new.job_id, new.attempt, new.state, coalesce(j.payload ->> 'key', j.headers ->> 'schedule'
        || '@' || (extract(epoch from (j.headers ->> 'tick')::timestamptz) * 1000000)::bigint), j.kind
      from fencepost.job j where j.job_id = new.job_id;
      return null;
    end $f$;
"""
FINISHED: LiteralString = "select count(*) from finishing where kind <> 'tick'"
NOW: LiteralString = "select fencepost.clock()"
TICKED: LiteralString = "select key from effect where starts_with(key, 'every-')"


class ScheduledJobs(Jobs):
    """Workers on one queue, with schedules, that stop in turn."""

    name = "odd-jobs"
    # A backup does not have the entries that the foreign client has written since.
    bears_restores = False
    stream_key = "fencepost:{torture-odd-jobs}"
    points = (
        "jobs.give_back.after_commit",
        "jobs.give_back.before_commit",
        "jobs.poison.after_record",
        "jobs.poison.before_record",
        "jobs.schedule.after_fire",
        "jobs.schedule.before_fire",
    )

    @contextmanager
    def open(self, env: SystemEnvironment) -> Generator[Mapping[str, Any]]:
        with super().open(env) as more:
            with env.database.connect_admin() as admin:
                admin.execute(SCHEMA)
            self._strays = StrayEntries(self.stream_key)
            self._since: int | None = None
            self._until: int | None = None
            yield more

    def serve(self, task: ProcessTask) -> None:
        configure_logging(level="error", form="json")
        asyncio.run(_work(task))

    def ask(self, env: SystemEnvironment, turn: int) -> None:
        farewell = f"farewell-{turn}"
        env.insist(lambda: submit(env, "farewell", [farewell], 0, 0.0))
        self._asked.append(farewell)
        super().ask(env, turn)
        for number in range(STRAYS):
            self._strays.write(env, f"stray-{turn}-{number}", INVALID if number % 2 else MISSING)

    def account(self, env: SystemEnvironment) -> Account:
        finished, owed = int(env.value(FINISHED)), self._strays.owed(env)
        if finished and self._since is None:
            # A worker runs, and so has declared the schedules: from here on every tick is owed.
            self._since = microseconds(env.value(NOW))
        done = finished + self._strays.found
        return Account(len(self._asked) + self._strays.found + owed, done)

    def judge(self, env: SystemEnvironment) -> Iterable[Breach]:
        yield from super().judge(env)
        yield from self._strays.judge(env)

    def remains(self, env: SystemEnvironment) -> Iterable[Breach]:
        yield from super().remains(env)
        if self._until is None:
            # Every process still runs, so each tick up to now must be done by one of them.
            self._until = microseconds(env.value(NOW))
        ticked = [key for (key,) in env.rows(TICKED)]
        late = self._due(ticked) - set(ticked)
        latest = [] if self._since is None else list(LATEST.between(self._since, self._until)[-1:])
        if LATEST.among(ticked)[-1:] < latest:
            late.add(LATEST.key(*latest))
        yield from (Breach("left behind", key, "has come, and its job is not done") for key in sorted(late))

    def _wanted(self, env: SystemEnvironment, done: Sequence[str]) -> Sequence[str]:
        """Includes ticks that were done but not required: those before and after the time that counts, and
        those of the schedule that runs only the latest."""
        ticked = {ticks.key(tick) for ticks in (*EACH, LATEST) for tick in ticks.among(done)}
        return [*super()._wanted(env, done), *(self._due(done) | ticked)]

    def _due(self, done: Sequence[str]) -> set[str]:
        since, until = self._since, self._until
        if since is None or until is None:
            return set()
        return set[str]().union(*(ticks.due(done, since, until) for ticks in EACH))


class Rota:
    """Runs one worker after another, until it is ended."""

    def __init__(self, fp: Fencepost, settings: JobSettings) -> None:
        self._fp = fp
        self._settings = settings
        self._worker: Worker | None = None
        self._is_over = False

    async def run(self) -> None:
        while not self._is_over:
            self._worker = self._fp.jobs.worker(self._settings)
            await self._worker.run()

    def relieve(self) -> None:
        """Stop the current worker."""
        if self._worker is not None:
            self._worker.stop()

    def end(self) -> None:
        self._is_over = True
        self.relieve()


async def _work(task: ProcessTask) -> None:
    fp = Fencepost(task.database_url, redis_url=task.redis_url, settings=PATIENT)
    rota = Rota(fp, _settings(task))
    declare(fp, task.lease_seconds)
    _declare_odd(fp, task.lease_seconds, rota.relieve)
    async with fp:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, rota.end)
        await rota.run()


def _settings(task: ProcessTask) -> JobSettings:
    """A batch is smaller than the free slots: the next entries are on their way while jobs begin."""
    own = {"stream_key": ScheduledJobs.stream_key, "concurrency": 12, "batch": 4, "notice_claims": 0}
    return settings_of(task).model_copy(update=own)


def _declare_odd(fp: Fencepost, lease_seconds: float, relieve: Callable[[], None]) -> None:
    @fp.job("default", kind="farewell", tries=1000, lease=lease_seconds, retry=at_once)
    async def farewell(job: Job, key: str, fail: int, linger: float) -> None:
        relieve()
        async with job.finish({"key": key}) as tx:
            await tx.execute(EFFECT, (key, job.id, job.attempt))

    @fp.job("default", kind="tick", tries=1000, lease=lease_seconds, retry=at_once)
    async def tick(job: Job) -> None:
        moment = microseconds(datetime.fromisoformat(str(job.headers["tick"])))
        key = f"{job.headers['schedule']}@{moment}"
        async with job.finish({"key": key}) as tx:
            await tx.execute(EFFECT, (key, job.id, job.attempt))

    for ticks in (*EACH, LATEST):
        missed: Missed = "once" if ticks is LATEST else "all"
        fp.every(ticks.every_ms / 1000, name=ticks.schedule, missed=missed)(tick)


ODD_JOBS = ScheduledJobs
