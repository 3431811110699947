"""The worker: fetches jobs, runs their handlers and writes their outcomes.

The path of a job: Fetcher reads and claims, execute runs, Completer writes and acknowledges. Separate loops
run beside it: the heartbeat renews the leases, the dispatcher writes stream entries, the reclaimer and the
stream reconciler recover what was lost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress

from fencepost.errors import InvalidInput
from fencepost.jobs.capacity import Capacity
from fencepost.jobs.completer import Completer
from fencepost.jobs.dispatcher import Dispatcher
from fencepost.jobs.executor import HeldJob, leave
from fencepost.jobs.fetcher import Fetched, Fetcher
from fencepost.jobs.handler import Handler, Handlers
from fencepost.jobs.heartbeat import Beat, Heartbeat
from fencepost.jobs.interruptible_wait import pause, unless_set
from fencepost.jobs.job import AsyncDatabase, Job, SyncDatabase
from fencepost.jobs.metrics import JobMetrics
from fencepost.jobs.process_pool import ProcessPool
from fencepost.jobs.reclaimer import Reclaimer
from fencepost.jobs.redis_health import RedisHealth
from fencepost.jobs.settings import JobSettings
from fencepost.jobs.stream_reconciler import StreamReconciler
from fencepost.jobs.task_runner import TaskRunner
from fencepost.jobs.thread_pool import ThreadPool
from fencepost.kernel.eviction import evict_job
from fencepost.kernel.lease import owner_name
from fencepost.listener import Listener
from fencepost.logs import FloodGate, get_logger
from fencepost.loop import Loop
from fencepost.redis_streams.entry_refresher import EntryRefresher
from fencepost.redis_streams.stream import StreamEntry
from fencepost.signals import announce

_log = get_logger(__name__)
UNKNOWN_KIND_SECONDS = 5.0
UNKNOWN_KIND_SECONDS_MAX = 300.0
FAREWELL_SECONDS = 10.0
REFRESH_SECONDS_MAX = 2.0


class Worker:
    """Runs jobs of the handlers' queues until it is stopped."""

    def __init__(
        self,
        handlers: Handlers,
        database: AsyncDatabase,
        sync_database: Callable[[], SyncDatabase],
        metrics: JobMetrics,
        settings: JobSettings,
        *,
        database_url: str,
        listen_url: str,
        redis_url: str | None,
        redis_reply_seconds: float = 5,
        processes: ProcessPool | None = None,
        prepare: Callable[[], Awaitable[None]] | None = None,
        chores: Mapping[str, Callable[[], Awaitable[float]]] | None = None,
        beside: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> None:
        """`prepare` runs before the first job. `chores` are additional loops. `beside` is a context that
        stays open while the worker runs."""
        if not handlers.queues:
            raise InvalidInput("A worker needs a handler: declare one with @fp.job(...).", field="handlers")
        self.owner = owner_name(settings.worker_id or "worker")
        self._consumer = settings.stream_consumer or settings.worker_id or self.owner
        self._handlers = handlers
        self._database = database
        self._sync_database = sync_database
        self._database_url = database_url
        metrics = self._metrics = metrics.of(handlers)
        self._settings = settings
        self._gate = FloodGate()
        self._active: dict[HeldJob, None] = {}
        """The jobs that this worker holds, in the order of the claims."""
        self._latest: dict[int, HeldJob] = {}
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._room = asyncio.Event()
        self._called = asyncio.Event()
        self._accepting: asyncio.Task[Fetched | None] | None = None
        self._threads = ThreadPool(self._room.set)
        self._processes = processes
        self._prepare = prepare
        self._beside = beside
        self._capacity = Capacity(
            settings.concurrency, lambda: len(self._active) + self._threads.left_behind, self._room.set
        )
        self._link = RedisHealth(redis_url, metrics, settings, reply_seconds=redis_reply_seconds)
        self._listener = Listener(listen_url)
        self._settler = Completer(
            database,
            self._link,
            self.owner,
            metrics,
            self._settled,
            batch=settings.batch,
            more_soon=lambda: self._runner.is_starting,
        )
        self._runner = TaskRunner(self._threads, processes, self._settler.add)
        self._intake = Fetcher(
            handlers.queues,
            self.owner,
            self._consumer,
            database,
            self._link,
            metrics,
            settings,
            reply_seconds=redis_reply_seconds,
        )
        self._heartbeat = self._make_heartbeat(redis_url)
        self._dispatches = [self._make_dispatch(queue) for queue in handlers.queues]
        self._loops = [
            *self._make_recovery(),
            *self._dispatches,
            *(Loop(name, tick, metrics.loop_errors) for name, tick in (chores or {}).items()),
        ]

    async def run(self) -> None:
        """Work until `stop`, then finish running jobs, give back those that do not end in time, and
        return."""
        async with self._beside():
            await self._run()

    async def _run(self) -> None:
        self._event_loop = asyncio.get_running_loop()
        if self._prepare is not None:
            await self._prepare()
        await self._link.probe()
        self._heartbeat.start()
        for loop in self._loops:
            loop.start()
        background = [asyncio.create_task(self._listener.run()), asyncio.create_task(self._settler.run())]
        announce("worker.started")
        try:
            await self._work()
        finally:
            self._stopping.set()
            await self._drain()
            await asyncio.gather(*(loop.stop() for loop in self._loops))
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            await asyncio.to_thread(self._heartbeat.close)
            self._threads.close()
            if self._processes is not None:
                self._processes.close()
            await self._link.close()
            announce("worker.stopped")

    def stop(self) -> None:
        """Fetch no more jobs; `run` returns when the held jobs have ended. Call it on the event loop."""
        self._stopping.set()
        self._room.set()
        self._called.set()

    async def _work(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            self._room.clear()
            self._called.clear()
            if self._free() <= 0:
                with self._intake.drawing_on():
                    await self._room.wait()
                continue
            try:
                found = await self._take()
                failures = 0
            except Exception as error:
                failures += 1
                self._metrics.loop_errors.labels(loop="intake").inc()
                _log.warning("intake_failed", error=f"{type(error).__name__}: {error}", failures=failures)
                await pause(min(5.0, 0.1 * 2 ** min(failures, 10)), self._stopping)
                continue
            if not found and self._link.streams is None:
                announce("worker.idle")
                await pause(self._settings.poll_seconds, self._called)

    def _free(self) -> int:
        return 0 if self._stopping.is_set() else self._capacity.free

    async def _take(self) -> bool:
        """Read and claim, or claim directly from PostgreSQL; returns whether there was anything."""
        if self._link.streams is None and not self._intake.kept:
            return await self._draw()
        if self._intake.drew and not self._intake.draws:
            self._intake.drew = False
            announce("worker.drawn")
            for dispatch in self._dispatches:
                dispatch.wake()
        free = min(self._free(), self._settings.batch)
        # Entries that are delivered while we stop, and not received, stay pending; `leave` gives them back.
        entries = await unless_set(self._stopping, self._intake.read(free, self._held))
        if entries:
            await self._accept_beside(entries)
        elif self._intake.draws:
            return await self._draw()
        return bool(entries)

    def _draw_with_room(self) -> None:
        """Draws only with enough free places: with few, Redis spares PostgreSQL queries."""
        if self._free() >= self._settings.batch // 2:
            self._intake.draw_on()

    async def _draw(self) -> bool:
        """Claim directly from PostgreSQL."""
        with self._capacity.reserved(self._free()) as places:
            taken = await self._intake.claim_next(places)
            self._begin(taken)
        return bool(taken.claimed)

    def _held(self) -> list[StreamEntry]:
        return [active.entry for active in self._active if active.entry is not None]

    async def _accept_beside(self, entries: Sequence[StreamEntry]) -> None:
        """Read the next entries while a full batch is claimed; a smaller batch is claimed at once."""
        try:
            await self._accepted()
        except Exception:
            self._intake.keep(entries)
            raise
        self._accepting = asyncio.create_task(self._accept(entries))
        if len(entries) < self._settings.batch:
            await self._accepted()
        else:
            # The claim reserves its capacity before the free capacity is counted again.
            await asyncio.sleep(0)

    async def _accepted(self) -> None:
        """Wait for the claim in progress, and raise what it raised."""
        accepting, self._accepting = self._accepting, None
        if accepting is not None:
            await accepting

    async def _accept(self, entries: Sequence[StreamEntry]) -> Fetched | None:
        """Claim the jobs of the entries and start them; entries beyond the capacity are given back."""
        with self._capacity.reserved(len(entries)) as places:
            taken = await self._intake.claim(entries[:places]) if places else None
            if taken is not None:
                self._begin(taken)
        if places < len(entries):
            await self._intake.give_back(entries[places:])
        if taken is not None and taken.done:
            await self._settler.acknowledge(taken.done)
        return taken

    def _begin(self, taken: Fetched) -> None:
        began: list[tuple[HeldJob, Handler[...]]] = []
        now = time.monotonic()
        for running, entry in taken.claimed:
            job = Job(running, self.owner, self._database, self._sync_database)
            active = HeldJob(running, entry, job, taken.asked_at + running.lease_seconds, started_at=now)
            # This worker may have claimed the job again: an older attempt that still runs here is a zombie.
            older = self._latest.get(running.job_id)
            if older is not None and not older.ended:
                self._lose([older])
            self._latest[running.job_id] = active
            self._active[active] = None
            handler = self._handlers.get(running.kind)
            if handler is None:
                self._give_up(active)
            else:
                began.append((active, handler))
        self._metrics.held.set(len(self._active))
        self._runner.start(began)

    def _give_up(self, active: HeldJob) -> None:
        """For a kind without a handler: another worker may have one, so the job goes back, with a longer
        delay each time."""
        running = active.running
        delay = UNKNOWN_KIND_SECONDS * 2 ** min(running.attempt - 1, 10)
        self._gate.log(_log.warning, "unknown_kind", kind=running.kind, queue=running.queue)
        active.outcome_known = True
        self._settler.add(active, leave(running, "release", None, min(delay, UNKNOWN_KIND_SECONDS_MAX)))

    def _settled(self, actives: Sequence[HeldJob]) -> None:
        for active in actives:
            job_id = active.running.job_id
            self._active.pop(active, None)
            if self._latest.get(job_id) is active:
                del self._latest[job_id]
            announce("worker.settled")
        self._metrics.held.set(len(self._active))
        self._room.set()

    def _heard(self, beat: Beat) -> None:
        """Called from the heartbeat's thread."""
        assert self._event_loop is not None, "the heartbeat is started by run"
        with suppress(RuntimeError):  # The loop may be closed by now.
            self._event_loop.call_soon_threadsafe(self._end, beat)

    def _end(self, beat: Beat) -> None:
        self._lose(active for active in beat.lost if not active.ended)
        for active in beat.cancelled:
            if not active.cancelled:
                active.cancelled = True
                self._runner.cancel(active)

    def _lose(self, actives: Iterable[HeldJob]) -> None:
        """Stops the local execution of jobs with a lost lease: nothing is written, nothing acknowledged."""
        for active in actives:
            if not active.lost:
                active.lost = True
                _log.warning("lease_lost", job_id=active.running.job_id, attempt=active.running.attempt)
                announce("worker.lost")
                self._runner.cancel(active)

    async def _watch_leases(self) -> float:
        """Uses the local clock, because a database that does not answer cannot report that a lease has
        ended."""
        now = time.monotonic()
        self._lose([a for a in self._active if a.deadline <= now and not a.ended])
        return min(1.0, self._settings.heartbeat_seconds / 2)

    async def _drain(self) -> None:
        """Let handlers end; jobs that do not end in time are given back, and the try is not counted."""
        while self._runner.is_starting:  # noqa: ASYNC110 -- It advances with every turn of the loop.
            await asyncio.sleep(0)
        with suppress(Exception):
            # Entries that could not be claimed are pending for us: `leave` gives them back.
            await self._accepted()
        await self._wait_for_handlers(self._settings.drain_seconds)
        for active in tuple(self._active):
            self._runner.cancel(active)
        await self._wait_for_handlers(FAREWELL_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self._settler.drain()
                await self._intake.leave()

    async def _wait_for_handlers(self, seconds: float) -> None:
        tasks = [active.task for active in self._active if active.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    def _make_heartbeat(self, redis_url: str | None) -> Heartbeat:
        settings = self._settings
        refresher = None
        if redis_url is not None:
            # A Redis that hangs must not delay the next renewal.
            seconds = min(REFRESH_SECONDS_MAX, settings.heartbeat_seconds / 2)
            refresher = EntryRefresher(
                redis_url, settings.stream_group, self._consumer, reply_seconds=seconds
            )
        return Heartbeat(
            self._database_url,
            self.owner,
            self._metrics,
            refresher,
            held=lambda: tuple(self._active),
            on_beat=self._heard,
            alone=lambda: self._link.streams is None,
            interval_seconds=settings.heartbeat_seconds,
        )

    def _make_recovery(self) -> Sequence[Loop]:
        leases = [self._settings.lease_seconds, *(handler.lease_seconds for handler in self._handlers)]
        grace_seconds = self._settings.reclaim_grace_seconds
        reclaimer = Reclaimer(
            self._intake.streams,
            self._database,
            self._link,
            self._consumer,
            self._metrics,
            self._settings,
            longest_lease_seconds=max(leases),
            evict=lambda job_id: evict_job(self._database_url, job_id, grace_seconds),
            accept=self._accept,
            free=self._free,
        )
        sweeper = StreamReconciler(
            self._handlers.queues, self._database, self._link, self._metrics, self._settings
        )
        ticks = {
            "drive": self._link.probe,
            "leases": self._watch_leases,
            "reclaim": reclaimer.tick,
            "sweep": sweeper.tick,
        }
        return [Loop(name, tick, self._metrics.loop_errors) for name, tick in ticks.items()]

    def _make_dispatch(self, queue: str) -> Loop:
        dispatcher = Dispatcher(
            queue,
            self._database,
            self._link,
            self._metrics,
            self._settings,
            draws=lambda: self._intake.draws,
            on_backlog=self._draw_with_room,
        )
        loop = Loop("dispatch", dispatcher.tick, self._metrics.loop_errors)
        self._listener.on(f"job:{queue}", loop.wake)
        self._listener.on(f"job:{queue}", self._called.set)
        self._link.on_change(loop.wake)
        self._link.on_change(self._called.set)
        return loop
