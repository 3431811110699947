"""Workflows under test: a worker whose clock is moved over their sleeps, and crashes at every point of every
step."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Literal

from fencepost import crashpoints
from fencepost.client import Fencepost
from fencepost.jobs.settings import JobSettings
from fencepost.kernel import _event as kernel_event
from fencepost.kernel.call import Json
from fencepost.kernel.eviction import evict_job
from fencepost.kernel.job import Submission
from fencepost.testing._clock import Clock
from fencepost.testing._errors import EffectsDiffer, KitError

Fault = Literal["kill", "pause"]
POLL_SECONDS = 0.01
STUCK_SECONDS = 60.0
NEVER_YEAR = 9000
OF_STEPS = ("workflow.", "jobs.group.")
"""The points of steps; those of `wf.write` lie in the commit that jobs share too."""


@dataclass(frozen=True, slots=True)
class CrashReport:
    """What `crash_everywhere` did: each point with the hit at which it crashed, and how."""

    crashes: Sequence[tuple[str, int, Fault]]
    effects: Any
    """What every run left behind."""


@contextmanager
def stubbed_steps(fp: Fencepost, stubs: Mapping[str, Callable[..., Any]]) -> Generator[None]:
    """Inside the block, run these functions in the place of the steps of these names."""
    known = fp.workflow_runtime.stubs
    before = dict(known)
    known.update(stubs)
    try:
        yield
    finally:
        known.clear()
        known.update(before)


class WorkflowHarness:
    """Runs workflows to their end on a worker in this process. Time does not pass: it is moved.

    async with workflow_harness(fp, clock, events={"approve:7": {"by": "anna"}}) as harness:
        job_id = await harness.run(fulfil.submission(order_id=7))
    """

    def __init__(self, fp: Fencepost, clock: Clock, events: Mapping[str, Json]) -> None:
        self.fp = fp
        self.clock = clock
        self._events = events
        self._crashed = False

    async def run(self, submission: Submission) -> int:
        """Start the workflow and drive it to its end: sleeps are skipped, events emitted, leases of crashed
        runs expire. Returns its id."""
        job_id = (await self.fp.run(submission.call())).job_id
        await self._drive(job_id, submission)
        return job_id

    async def run_with(self, submission: Submission, fault: Fault, point: str, nth: int) -> int:
        """The same, with a crash or a pause at the nth hit of a point."""
        self._crashed = False
        job_ids: list[int] = []

        def strike() -> None:
            self._crashed = True
            if fault == "kill":
                crashpoints.crash()
            self._take_away(job_ids, submission.options.lease_seconds)

        with crashpoints.watching(crashpoints.at(point, strike, nth=nth)):
            job_ids.append((await self.fp.run(submission.call())).job_id)
            await self._drive(job_ids[0], submission)
        return job_ids[0]

    def _take_away(self, job_ids: Sequence[int], lease_seconds: float) -> None:
        """The process is stopped at the point, until its lease is over and its job was put back; a
        transaction that is open there is ended, as an eviction does it."""
        self.clock.advance(lease_seconds + 1)
        for job_id in job_ids:
            # This thread has a loop, which is blocked.
            eviction = threading.Thread(
                target=asyncio.run, args=(evict_job(self.fp.database_url, job_id, 0),)
            )
            eviction.start()
            eviction.join()

    async def _drive(self, job_id: int, submission: Submission) -> None:
        left_seconds = STUCK_SECONDS
        while True:
            state, seconds, events = await self._look(job_id)
            if state in ("finished", "dead", "cancelled"):
                return
            if state == "running" and self._crashed:
                self._crashed = False
                await asyncio.to_thread(self.clock.advance, submission.options.lease_seconds + 1)
            elif state == "pending" and await self._emit(events):
                left_seconds = STUCK_SECONDS
            elif state == "pending" and seconds is not None and seconds > 0:
                await asyncio.to_thread(self.clock.advance, seconds + 0.001)
                left_seconds = STUCK_SECONDS
            await self._wake(submission.queue)
            await asyncio.sleep(POLL_SECONDS)
            left_seconds -= POLL_SECONDS
            if left_seconds <= 0:
                raise KitError(
                    f"workflow {job_id} is {state} and does not go on; it waits for {events or 'no event'}. "
                    "Events that a workflow waits for are given to the harness: `events={name: payload}`."
                )

    async def _look(self, job_id: int) -> tuple[str, float | None, list[str]]:
        """Its state, how long it still sleeps (None without an end), and the events it waits for."""
        async with self.fp.transaction() as tx:
            cursor = await tx.execute(
                """select j.state,
                          case when extract(year from j.run_at) < %s
                               then extract(epoch from j.run_at - fencepost.clock())::double precision end,
                          array(select w.event from fencepost.workflow_waits w
                                where w.job_id = j.job_id and w.event is not null)
                   from fencepost.jobs j where j.job_id = %s""",
                (NEVER_YEAR, job_id),
            )
            row = await cursor.fetchone()
        assert row is not None, "it was submitted"
        return row[0], row[1], row[2]

    async def _emit(self, events: Sequence[str]) -> bool:
        """Emit what the test gives of these; whether one of them was new."""
        given = [event for event in events if event in self._events]
        emitted = [await self.fp.run(kernel_event.emit(name, self._events[name])) for name in given]
        return any(emitted)

    async def _wake(self, queue: str) -> None:
        """Moving the clock wakes no sleeper by itself."""
        async with self.fp.transaction() as tx:
            await tx.execute("select pg_notify('fencepost', 'job:' || %s)", (queue,))


@asynccontextmanager
async def workflow_harness(
    fp: Fencepost,
    clock: Clock,
    *,
    events: Mapping[str, Json] | None = None,
    settings: JobSettings | None = None,
) -> AsyncGenerator[WorkflowHarness]:
    """A worker for the workflows of `fp`, which is open, on a database whose time the test moves.

    `events` are emitted as soon as a workflow waits for them.
    """
    chosen = settings or JobSettings(
        poll_seconds=0.02, reclaim_interval_seconds=0.02, reclaim_grace_seconds=0, drain_seconds=1
    )
    worker = fp.jobs.worker(chosen)
    running = asyncio.create_task(worker.run())
    try:
        yield WorkflowHarness(fp, clock, events or {})
    finally:
        worker.stop()
        await running


async def crash_everywhere(
    harness: WorkflowHarness,
    make: Callable[[], Submission],
    effects: Callable[[int], Any | Awaitable[Any]],
    *,
    points: str | tuple[str, ...] = OF_STEPS,
    faults: Sequence[Fault] = ("kill", "pause"),
) -> CrashReport:
    """Run a workflow once without a fault, then once for every hit of every point, with a fault there.

    `make` makes a new submission for each run, and `effects` returns what the run with this id has left
    behind. A run that leaves something else than the first raises EffectsDiffer. `points` are beginnings of
    the names of crash points, by default of all that steps have.
    """
    hits: Counter[str] = Counter()

    def count(name: str) -> None:
        if name.startswith(points):
            hits[name] += 1

    with crashpoints.watching(count):
        expected = await _effects(effects, await harness.run(make()))
    if not hits:
        raise KitError(f"The workflow reaches no point that begins with {points!r}: nothing was shown.")
    crashes: list[tuple[str, int, Fault]] = []
    for name in sorted(hits):
        for nth in range(1, hits[name] + 1):
            for fault in faults:
                seen = await _effects(effects, await harness.run_with(make(), fault, name, nth))
                if seen != expected:
                    raise EffectsDiffer(
                        f"After a {fault} at {name}, hit {nth}, the workflow left {seen!r}; without one it "
                        f"leaves {expected!r}."
                    )
                crashes.append((name, nth, fault))
    return CrashReport(crashes, expected)


async def _effects(effects: Callable[[int], Any | Awaitable[Any]], job_id: int) -> Any:
    found = effects(job_id)
    return await found if isawaitable(found) else found
