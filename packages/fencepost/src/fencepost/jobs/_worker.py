"""The worker: composes the parts that run jobs, starts them, and stops them in order.

The way of a job is `dispatcher`, `fetcher`, `executor`, `completer`; it does not lead through this module.
The loops beside it renew leases (`heartbeat`), recover what was lost (`reclaimer`, `stream_reconciler`),
fire schedules (`scheduler`), delete what is old (`pruner`) and ask whether the worker is in service
(`standing`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress

from fencepost.database import OpenClient, SyncDatabase
from fencepost.errors import InvalidInput
from fencepost.jobs._completer import Completer
from fencepost.jobs._dispatcher import Dispatcher
from fencepost.jobs._executor import Executor, HeldJobs, ThreadPool
from fencepost.jobs._fetcher import Fetcher
from fencepost.jobs._handler import Handlers
from fencepost.jobs._heartbeat import Heartbeat, LeaseWatch, seen_seconds
from fencepost.jobs._metrics import JobMetrics
from fencepost.jobs._process_pool import ProcessPool
from fencepost.jobs._pruner import Pruner
from fencepost.jobs._reclaimer import Reclaimer
from fencepost.jobs._redis_health import RedisHealth
from fencepost.jobs._scheduler import Scheduler, Schedules, declare
from fencepost.jobs._standing import Standing
from fencepost.jobs._stream_reconciler import StreamReconciler
from fencepost.jobs._suspects import OnlySuspects, SpareCommand, SuspectRunner
from fencepost.jobs._worker_registry import WorkerRegistry
from fencepost.jobs.settings import JobSettings
from fencepost.kernel.lease import owner_name
from fencepost.listener import Listener
from fencepost.loop import Loop
from fencepost.redis_streams._entry_refresher import EntryRefresher
from fencepost.signals import announce

FAREWELL_SECONDS = 10.0
REFRESH_SECONDS_MAX = 2.0


class Worker:
    """Runs jobs of the handlers' queues until it is stopped."""

    def __init__(
        self,
        client: OpenClient,
        handlers: Handlers,
        schedules: Schedules,
        settings: JobSettings,
        metrics: JobMetrics,
        *,
        redis_url: str | None,
        sync_database: Callable[[], SyncDatabase],
        beside: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
        offers: Sequence[str] = (),
        suspects: OnlySuspects | SpareCommand | None = None,
        name: str = "worker",
    ) -> None:
        """`sync_database` is for handlers in threads. `beside` is a context that stays open while the worker
        runs. `offers` are the abilities for jobs whose header `needs` lists some. `suspects` says in which
        process they run: see `_suspects.py`. `name` begins its owner's name, unless JOBS_WORKER_ID does."""
        if not handlers.queues:
            raise InvalidInput("A worker needs a handler: declare one with @fp.job(...).", field="handlers")
        self._only_suspects = isinstance(suspects, OnlySuspects)
        self.owner = (
            suspects.owner if isinstance(suspects, OnlySuspects) else owner_name(settings.worker_id or name)
        )
        self._client = client
        self._handlers = handlers
        self._schedules = schedules
        metrics = metrics.of(handlers)
        self._settings = settings
        self._beside = beside
        serves = handlers.serves(offers)
        url, limits = client.database_url, client.settings
        self._listener = Listener(limits.listen_database_url or url)
        self._redis = RedisHealth(redis_url, metrics, settings, reply_seconds=limits.redis_reply_seconds)

        # The way of a job, from its end: each part is given the one that it passes the job on to.
        room = asyncio.Event()
        threads = ThreadPool(room.set)
        jobs_max = settings.max_jobs_per_process
        processes = ProcessPool(settings.processes or os.cpu_count() or 1, url, limits, jobs_max=jobs_max)
        held = HeldJobs(settings.concurrency, threads, room, metrics, jobs_max=jobs_max, on_spent=self.stop)
        self._completer = Completer(
            held,
            self.owner,
            client,
            self._redis,
            metrics,
            batch=settings.batch,
            hooks=handlers.hooks.finish,
            in_thread=threads.call,
        )
        self._executor = Executor(
            held, threads, processes, self._completer.add, slow_seconds=settings.slow_seconds
        )
        self._fetcher = Fetcher(
            handlers,
            held,
            self._executor,
            self._completer,
            self.owner,
            client,
            sync_database,
            self._redis,
            metrics,
            settings,
            serves,
            connections=limits.pool_max,
        )
        dispatchers = {
            queue: Dispatcher(
                queue,
                client,
                self._redis,
                metrics,
                settings,
                serves,
                draws=self._fetcher.draws,
                leaves_some=self._fetcher.leaves_some,
                on_backlog=self._fetcher.draw_with_room,
                on_set_aside=self._fetcher.claim_set_aside,
                on_notice=self._fetcher.claim_on_notice,
            )
            for queue in handlers.queues
        }

        # The loops beside it.
        self._heartbeat = Heartbeat(
            held,
            self._executor,
            self.owner,
            self._redis,
            metrics,
            _make_refresher(redis_url, self._fetcher.consumer, settings),
            WorkerRegistry(
                self.owner,
                handlers.queues,
                serves,
                ttl_seconds=seen_seconds(settings.heartbeat_seconds) * 3,
            ),
            database_url=url,
            interval_seconds=settings.heartbeat_seconds,
        )
        self._lease_watch = LeaseWatch(held, self._executor, heartbeat_seconds=settings.heartbeat_seconds)
        self._suspects = SuspectRunner(
            handlers,
            serves,
            held,
            self._fetcher,
            self.owner,
            client,
            metrics,
            settings,
            suspects if isinstance(suspects, SpareCommand) else None,
        )
        suspect_loop = Loop("suspects", self._suspects.tick, metrics.loop_errors)
        self._suspects.on_ended(suspect_loop.wake)
        reclaimer = Reclaimer(
            self._fetcher,
            client,
            self._redis,
            metrics,
            settings,
            database_url=url,
            longest_lease_seconds=max(settings.lease_seconds, *(h.declared.lease_seconds for h in handlers)),
            on_suspects=suspect_loop.wake,
        )
        self._scheduler = Scheduler(client, client.owner)
        standing = Standing(self.owner, held, client, poll_seconds=settings.poll_seconds)
        reconciler = StreamReconciler(handlers.queues, client, self._redis, metrics, settings)
        ticks = {
            "drive": self._redis.probe,
            "leases": self._lease_watch.tick,
            "reclaim": reclaimer.tick,
            "sweep": reconciler.tick,
            "standing": standing.tick,
            "schedule": self._scheduler.tick,
            "prune": Pruner(client, settings).tick,
        }
        dispatch_loops = {
            queue: Loop("dispatch", dispatcher.tick, metrics.loop_errors)
            for queue, dispatcher in dispatchers.items()
        }
        loops = {name: Loop(name, tick, metrics.loop_errors) for name, tick in ticks.items()}
        self._loops = [*dispatch_loops.values(), suspect_loop, *loops.values()]
        if self._only_suspects:
            self._loops = [loops["leases"]]

        # What wakes them.
        self._redis.on_change(self._fetcher.wake)
        self._fetcher.on_withheld(loops["standing"].wake)
        self._listener.on("schedule", loops["schedule"].wake)
        for queue, loop in dispatch_loops.items():
            self._listener.on(f"job:{queue}", loop.wake)
            self._listener.on(f"job:{queue}", self._fetcher.wake)
            self._redis.on_change(loop.wake)
            self._fetcher.on_drawn(loop.wake)
            self._fetcher.on_room_for_aside(queue, loop.wake)

    async def run(self) -> None:
        """Work until `stop`, then finish running jobs, give back those that do not end in time, and
        return."""
        async with self._beside():
            await self._run()

    def stop(self) -> None:
        """Fetch no more jobs; `run` returns when the held jobs have ended. Call it on the event loop."""
        self._fetcher.stop()

    async def _run(self) -> None:
        if not self._only_suspects:
            self._scheduler.release = await declare(
                self._client, self._handlers, self._schedules, self._client.owner
            )
        await self._redis.probe()
        self._heartbeat.start()
        for loop in self._loops:
            loop.start()
        background = [asyncio.create_task(self._listener.run()), asyncio.create_task(self._completer.run())]
        announce("worker.started")
        try:
            await (self._suspects.run_all() if self._only_suspects else self._fetcher.run())
        finally:
            self._fetcher.stop()
            await self._drain()
            await asyncio.gather(*(loop.stop() for loop in self._loops))
            await self._suspects.stop()
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            await self._heartbeat.stop()
            self._executor.close()
            await self._redis.close()
            announce("worker.stopped")

    async def _drain(self) -> None:
        """Let handlers end; jobs that do not end in time are given back, and the try is not counted."""
        await self._fetcher.finish_claim_aside()
        await self._executor.all_begun()
        with suppress(Exception):
            # Entries that could not be claimed are pending for us: `leave` gives them back.
            await self._fetcher.finish_claim()
        await self._executor.drain(self._settings.drain_seconds, FAREWELL_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self._completer.drain()
                await self._fetcher.leave()


def _make_refresher(redis_url: str | None, consumer: str, settings: JobSettings) -> EntryRefresher | None:
    if redis_url is None:
        return None
    # A Redis that hangs must not delay the next renewal.
    seconds = min(REFRESH_SECONDS_MAX, settings.heartbeat_seconds / 2)
    return EntryRefresher(redis_url, settings.stream_group, consumer, reply_seconds=seconds)
