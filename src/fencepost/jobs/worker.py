"""The worker: takes jobs in, runs their handlers, settles what came of them.

One way through: Intake claims, execute runs, Settler writes and acknowledges. Beside it, loops of their own:
the heartbeat keeps the leases, the dispatcher drives, the reclaimer and the sweeper bring back what was lost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import structlog

from fencepost.drive.stream import Entry
from fencepost.jobs.dispatcher import Dispatcher
from fencepost.jobs.drive_link import DriveLink
from fencepost.jobs.execution import Active, execute
from fencepost.jobs.handler import Handler, Handlers
from fencepost.jobs.heartbeat import Beat, Heartbeat
from fencepost.jobs.intake import Intake, Taken
from fencepost.jobs.job import Database, Job, SyncDatabase
from fencepost.jobs.listener import Listener
from fencepost.jobs.loop import Loop
from fencepost.jobs.metrics import JobMetrics
from fencepost.jobs.reclaimer import Reclaimer, longest
from fencepost.jobs.settings import JobSettings
from fencepost.jobs.settlement import Settler
from fencepost.jobs.sweeper import Sweeper
from fencepost.kernel import job as kernel_job
from fencepost.kernel.eviction import evict_job
from fencepost.kernel.lease import owner_name
from fencepost.signals import announce

_log = structlog.get_logger(__name__)
UNKNOWN_KIND_SECONDS = 5.0


class Worker:
    """Runs jobs of the handlers' queues until it is stopped."""

    def __init__(
        self,
        handlers: Handlers,
        database: Database,
        sync_database: Callable[[], SyncDatabase],
        metrics: JobMetrics,
        settings: JobSettings,
        *,
        database_url: str,
        listen_url: str,
        redis_url: str | None,
        redis_reply_seconds: float = 5,
    ) -> None:
        self.owner = owner_name(settings.worker_id or "worker")
        consumer = settings.stream_consumer or settings.worker_id or self.owner
        self._handlers = handlers
        self._database = database
        self._sync_database = sync_database
        self._database_url = database_url
        self._metrics = metrics
        self._settings = settings
        self._active: dict[tuple[int, int], Active] = {}
        self._stopping = asyncio.Event()
        self._room = asyncio.Event()
        self._executor = ThreadPoolExecutor(settings.concurrency, thread_name_prefix="fencepost-handler")
        self._link = DriveLink(redis_url, settings.stream_group, metrics, reply_seconds=redis_reply_seconds)
        self._listener = Listener(listen_url)
        self._settler = Settler(
            database, lambda: self._link.streams, self.owner, metrics, self._settled, batch=settings.batch
        )
        self._intake = Intake(handlers.queues, self.owner, consumer, database, self._link, metrics, settings)
        self._heartbeat = Heartbeat(
            database_url,
            redis_url,
            self.owner,
            settings.stream_group,
            consumer,
            metrics,
            held=lambda: tuple(self._active.values()),
            on_beat=self._heard,
            interval_seconds=settings.heartbeat_seconds,
        )
        self._loops = self._make_loops(consumer)

    async def run(self) -> None:
        """Work until `stop`, then finish what runs, give back what does not end in time, and leave."""
        self._event_loop = asyncio.get_running_loop()
        await self._link.probe()
        self._heartbeat.start()
        for loop in self._loops:
            loop.start()
        background = [asyncio.create_task(self._listener.run()), asyncio.create_task(self._settler.run())]
        announce("worker.started")
        try:
            await self._work()
        finally:
            await self._drain()
            for loop in self._loops:
                await loop.stop()
            for task in background:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            self._heartbeat.close()
            self._executor.shutdown(wait=False, cancel_futures=True)
            await self._link.close()
            announce("worker.stopped")

    def stop(self) -> None:
        """Take nothing more in; `run` returns when what is here has ended."""
        self._stopping.set()
        self._room.set()

    @property
    def free(self) -> int:
        return self._settings.concurrency - len(self._active)

    async def _work(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            if self.free <= 0:
                self._room.clear()
                await self._room.wait()
                continue
            try:
                taken = await self._unless_stopped(self._intake.take(self.free))
                failures = 0
            except Exception as error:
                failures += 1
                self._metrics.loop_errors.labels(loop="intake").inc()
                _log.warning("intake_failed", error=f"{type(error).__name__}: {error}", failures=failures)
                await self._pause(min(5.0, 0.1 * 2**failures))
                continue
            if taken is not None:
                await self._accept(taken)
                if not taken.claimed and self._link.streams is None:
                    announce("worker.idle")
                    await self._pause(self._settings.poll_seconds)

    async def _unless_stopped(self, take: Coroutine[Any, Any, Taken]) -> Taken | None:
        """Wait for jobs, but not longer than for the order to stop."""
        reading = asyncio.create_task(take)
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not reading.done():
            # What was read and not claimed stays pending and is taken over later.
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading
            return None
        return reading.result()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _accept(self, taken: Taken) -> None:
        for running, entry in taken.claimed:
            self._begin(running, entry)
        if taken.done:
            await self._settler.acknowledge(taken.done)

    def _begin(self, running: kernel_job.Running, entry: Entry | None) -> None:
        handler = self._handlers.get(running.kind)
        job = Job(running, self.owner, self._database, self._sync_database)
        active = Active(running, entry, job, time.monotonic() + running.lease_seconds)
        self._active[running.job_id, running.attempt] = active
        self._metrics.active.set(len(self._active))
        if handler is None:
            _log.warning("unknown_kind", kind=running.kind, job_id=running.job_id, queue=running.queue)
            leave = kernel_job.Leave(running.job_id, running.attempt, "release", None, UNKNOWN_KIND_SECONDS)
            self._settler.add(active, leave)
            return
        active.task = asyncio.create_task(self._execute(active, handler))

    async def _execute(self, active: Active, handler: Handler[Any]) -> None:
        running = active.running
        with structlog.contextvars.bound_contextvars(job_id=running.job_id, attempt=running.attempt):
            outcome = await execute(active, handler, self._executor)
        active.outcome_known = True
        self._settler.add(active, outcome)

    def _settled(self, active: Active) -> None:
        self._active.pop((active.running.job_id, active.running.attempt), None)
        self._metrics.active.set(len(self._active))
        self._room.set()
        announce("worker.settled")

    def _heard(self, beat: Beat) -> None:
        """From the heartbeat's thread."""
        if beat.lost or beat.cancelled:
            self._event_loop.call_soon_threadsafe(self._end, beat)

    def _end(self, beat: Beat) -> None:
        for active in beat.lost:
            if not active.lost:
                active.lost = True
                _log.warning("lease_lost", job_id=active.running.job_id, attempt=active.running.attempt)
                self._cancel(active)
        for active in beat.cancelled:
            if not active.cancelled:
                active.cancelled = True
                self._cancel(active)

    def _cancel(self, active: Active) -> None:
        active.job.stop()
        if active.task is not None:
            active.task.cancel()

    async def _drain(self) -> None:
        """Let handlers end; what does not within the time is given back, its try not counted."""
        tasks = [a.task for a in self._active.values() if a.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=self._settings.drain_seconds)
        for active in tuple(self._active.values()):
            self._cancel(active)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._settler.drain(), 10)

    def _make_loops(self, consumer: str) -> Sequence[Loop]:
        queues = self._handlers.queues
        errors = self._metrics.loop_errors
        reclaimer = Reclaimer(
            self._database,
            self._link,
            self._intake,
            consumer,
            self._metrics,
            self._settings,
            longest_lease_seconds=longest(
                [self._settings.lease_seconds, *(handler.lease_seconds for handler in self._handlers)]
            ),
            evict=lambda job_id: evict_job(self._database_url, job_id, self._settings.reclaim_grace_seconds),
            accept=self._accept,
            free=lambda: self.free,
        )
        sweeper = Sweeper(queues, self._database, self._link, self._metrics, self._settings)
        loops = [
            Loop("drive", self._link.probe, errors),
            Loop("reclaim", reclaimer.tick, errors),
            Loop("sweep", sweeper.tick, errors),
        ]
        for queue in queues:
            dispatcher = Dispatcher(
                queue, self._database, self._link, self._listener, self._metrics, self._settings
            )
            loop = Loop("dispatch", dispatcher.tick, errors)
            self._listener.on(f"job:{queue}", loop.wake)
            self._link.on_change(loop.wake)
            loops.append(loop)
        return loops
