"""`Fencepost`: the client of the kernel, and the runtimes that use it, in one object."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Self, cast, overload

from fencepost import client
from fencepost.errors import Backpressure, InvalidInput
from fencepost.jobs.cron import every
from fencepost.jobs.handler import Function, Handler, Handlers, Place
from fencepost.jobs.job_results import Polling, wait_for_result, wait_for_result_sync
from fencepost.jobs.metrics import JobMetrics
from fencepost.jobs.payload_schema import Key
from fencepost.jobs.pruner import Pruner
from fencepost.jobs.retry_policy import Rate, RetryPolicy, exponential
from fencepost.jobs.scheduler import Schedule, Scheduler, Schedules, declare
from fencepost.jobs.settings import JobSettings
from fencepost.jobs.submission import Priority, Submission, priority_number, send
from fencepost.kernel import batch as kernel_batch
from fencepost.kernel import queue as kernel_queue
from fencepost.kernel.call import Json
from fencepost.kernel.job import Submitted
from fencepost.kernel.schedule import Missed
from fencepost.listener import Listener
from fencepost.loop import Loop
from fencepost.metrics import Metrics
from fencepost.retention import Retention, RetentionMetrics
from fencepost.server_addresses import of_this_directory
from fencepost.settings import Settings

if TYPE_CHECKING:
    from fencepost.flows.graph import Flow
    from fencepost.flows.metrics import FlowMetrics
    from fencepost.flows.settings import FlowSettings
    from fencepost.flows.worker import FlowWorker
    from fencepost.jobs.worker import Worker
    from fencepost.kernel.drivers import AsyncConnection, SyncConnection
    from fencepost.transaction import SyncTransaction, Transaction
    from fencepost.workflows.events import Events
    from fencepost.workflows.handler import WorkflowDecorator, WorkflowRuntime

P = ParamSpec("P")


class Fencepost(client.KernelClient):
    """Exactly-once effects on one database, and the jobs that produce them.

    fp = Fencepost.from_env()

    @fp.job("thumbnails", attempts=5, lease=30)
    async def thumbnail(job: Job, image_id: int) -> None: ...

    async with fp:
        async with fp.transaction() as tx:
            await thumbnail.submit(tx, image_id=7)
    """

    def __init__(
        self,
        database_url: str,
        *,
        redis_url: str | None = None,
        settings: Settings | None = None,
        job_settings: JobSettings | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        super().__init__(database_url, settings=settings, metrics=metrics)
        self.redis_url = redis_url
        self.job_settings = job_settings or JobSettings()
        self.handlers = Handlers()
        self.schedules = Schedules()
        self._facade: SyncFencepost | None = None
        self._facade_lock = threading.Lock()
        self._listener: Listener | None = None
        self._listening: asyncio.Task[None] | None = None
        self._retention_wanted = 0
        self._retention_loops: list[Loop] = []

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, config_file: Path | None = None) -> Self:
        """Reads DATABASE_URL and REDIS_URL, or uses the pair that `fencepost up` runs in this directory."""
        settings = Settings.load(environ, config_file)
        place = of_this_directory(settings)
        return cls(
            place.service_url,
            redis_url=place.redis_url,
            settings=settings,
            job_settings=JobSettings.load(environ, config_file),
        )

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
            self._listener = self._listening = None
        if self._facade is not None:
            await asyncio.to_thread(self._facade.close)
            self._facade = None
        await super().close()

    def sync(self) -> SyncFencepost:
        """The same client for code without an event loop, with its own pool: `with fp.sync() as sync_fp`."""
        return SyncFencepost(self.database_url, self.settings, self.metrics, self._observer)

    def job(
        self,
        queue: str,
        *,
        kind: str | None = None,
        attempts: int = 5,
        lease: float | None = None,
        timeout: float | None = None,
        priority: Priority | int = "normal",
        retry: RetryPolicy | None = None,
        run_in: Place | None = None,
        unique: Key | None = None,
        concurrency_key: Key | None = None,
        concurrency_limit: int = 1,
        rate: Rate | None = None,
    ) -> Callable[[Function[P]], Handler[P]]:
        """Declare a handler. Its jobs wait in `queue`; its arguments after the job are the payload."""

        def declare_handler(function: Function[P]) -> Handler[P]:
            handler = Handler(
                function=function,
                queue=queue,
                kind=kind or function.__name__,
                tries_max=attempts,
                lease_seconds=self.job_settings.lease_seconds if lease is None else lease,
                timeout_seconds=timeout,
                priority=priority_number(priority),
                policy=retry or exponential(),
                run_in=run_in,
                unique=unique,
                concurrency_key=concurrency_key,
                concurrency_limit=concurrency_limit,
                rate=rate,
            )
            self.handlers.add(cast("Handler[...]", handler))
            return handler

        return declare_handler

    def workflow(
        self,
        queue: str,
        *,
        kind: str | None = None,
        version: int = 1,
        accepts: Collection[int] | None = None,
        attempts: int = 5,
        lease: float | None = None,
        timeout: float | None = None,
        priority: Priority | int = "normal",
        retry: RetryPolicy | None = None,
        unique: Key | None = None,
        concurrency_key: Key | None = None,
        concurrency_limit: int = 1,
        rate: Rate | None = None,
    ) -> WorkflowDecorator:
        """Declare a workflow: a job that remembers its steps. A worker runs those of the versions that it
        `accepts`, and sees no others; new ones are started with `version`.

        @fp.workflow("orders", version=3, accepts={2, 3})
        async def fulfil(wf: Workflow, order_id: int) -> Receipt: ...
        """
        # Most programs have no workflow.
        from fencepost.workflows.handler import declare_workflow  # noqa: PLC0415

        def declare_part(part: str, versioned_kind: str, function: Callable[..., Any]) -> Handler[...]:
            return self.job(
                part,
                kind=versioned_kind,
                attempts=attempts,
                lease=lease,
                timeout=timeout,
                priority=priority,
                retry=retry,
                unique=unique,
                concurrency_key=concurrency_key,
                concurrency_limit=concurrency_limit,
                rate=rate,
            )(function)

        def declare_function(function: Callable[..., Any]) -> Any:
            return declare_workflow(
                self.workflow_runtime,
                declare_part,
                function,
                queue,
                name=kind,
                version=version,
                accepts=accepts,
            )

        return cast("WorkflowDecorator", declare_function)

    @cached_property
    def events(self) -> Events:
        """Emits the events that workflows wait for."""
        from fencepost.workflows.events import Events  # noqa: PLC0415

        return Events()

    @cached_property
    def workflow_runtime(self) -> WorkflowRuntime:
        """What the workflows of this client share."""
        from fencepost.workflows.handler import WorkflowRuntime  # noqa: PLC0415

        return WorkflowRuntime(self, self._sync_facade)

    def cron(
        self,
        expression: str,
        *,
        zone: str = "UTC",
        missed: Missed = "once",
        grace: float = 60,
        name: str | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> Callable[[Handler[P]], Handler[P]]:
        """Run a handler on a cron schedule, above `@fp.job`: one job for each tick, on any number of workers.

        `missed` decides about ticks that passed while no worker ran: `once` runs one job for them all, `all`
        runs one for each, `skip` drops those older than `grace` seconds.
        """

        def schedule(handler: Handler[P]) -> Handler[P]:
            known = cast("Handler[...]", handler)
            self.schedules.add(
                Schedule(name or known.kind, known, expression, zone, missed, grace, arguments or {})
            )
            return handler

        return schedule

    def every(
        self,
        seconds: float,
        *,
        missed: Missed = "once",
        grace: float = 60,
        name: str | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> Callable[[Handler[P]], Handler[P]]:
        """As `cron`, at a fixed interval counted from 1970, so that all workers compute the same ticks."""
        return self.cron(every(seconds), missed=missed, grace=grace, name=name, arguments=arguments)

    async def submit(self, submission: Submission, *, within: float = 0) -> Submitted:
        """Submit one job in its own transaction. While its queue is full, wait up to `within` seconds.

        await fp.submit(thumbnail.submission(image_id=7), within=5)
        """
        polling = Polling(within)
        while True:
            try:
                return await self._submit(submission)
            except Backpressure:
                if polling.is_over:
                    raise
                await asyncio.sleep(polling.wait_seconds())
                await self.run(kernel_queue.count())

    async def result(self, job: Submitted | int, *, within: float = 30) -> Json:
        """Wait until the job has ended and return its result.

        Raises JobFailed if it is dead, Cancelled, NotFound, and TimeoutError if it has not ended in time.
        """
        job_id = job if isinstance(job, int) else job.job_id
        return await wait_for_result(self, self._subscribe, job_id, within)

    @overload
    def batch(
        self,
        tx: Transaction | AsyncConnection,
        jobs: Iterable[Submitted],
        *,
        then: Submitted | None = None,
        name: str | None = None,
    ) -> Awaitable[int]: ...
    @overload
    def batch(
        self,
        tx: SyncTransaction | SyncConnection,
        jobs: Iterable[Submitted],
        *,
        then: Submitted | None = None,
        name: str | None = None,
    ) -> int: ...
    def batch(
        self, tx: Any, jobs: Iterable[Submitted], *, then: Submitted | None = None, name: str | None = None
    ) -> Any:
        """Make a batch of jobs, in the transaction that submitted them: `then` runs when all have ended.

        The batch does not wait for jobs that existed already (a unique key). Returns the batch's id.
        """
        if then is not None and not then.created:
            raise InvalidInput("The job that a batch calls must be a new one.", field="then")
        members = [job.job_id for job in jobs if job.created]
        call = kernel_batch.make(members, callback_id=then.job_id if then else None, name=name)
        return cast("Any", send)(tx, call)

    def worker(self, settings: JobSettings | None = None, *, queues: Sequence[str] | None = None) -> Worker:
        """A worker for every declared handler; `run` it while this client is open."""
        # A process that only submits need not load Redis and the code that reads its streams.
        from fencepost.jobs.process_pool import ProcessPool  # noqa: PLC0415
        from fencepost.jobs.worker import Worker  # noqa: PLC0415

        handlers = self.handlers if queues is None else self.handlers.of(queues)
        fitting = _with_heartbeat_for(handlers, settings or self.job_settings)
        return Worker(
            handlers,
            self,
            self._sync_facade,
            self._job_metrics,
            fitting,
            database_url=self.database_url,
            listen_url=self.settings.listen_database_url or self.database_url,
            redis_url=self.redis_url,
            redis_reply_seconds=self.settings.redis_reply_seconds,
            processes=ProcessPool(fitting.processes or os.cpu_count() or 1, self.database_url, self.settings),
            prepare=lambda: declare(self, handlers, self.schedules, self.owner),
            chores={
                "schedule": Scheduler(self).tick,
                "prune": Pruner(self, fitting).tick,
            },
            beside=self.retention,
        )

    def flow_worker(self, flow: Flow, settings: FlowSettings | None = None) -> FlowWorker:
        """A worker of a flow; `run` it while this client is open. Any number of them share the flow's tasks.

        await fp.flow_worker(totals).run(stop)
        """
        # Most programs have no flow: they need not load the code that reads and writes streams.
        from fencepost.flows.worker import FlowWorker  # noqa: PLC0415

        return FlowWorker(
            self,
            flow,
            redis_url=self.redis_url,
            settings=settings,
            metrics=self._flow_metrics,
            beside=self.retention,
        )

    @asynccontextmanager
    async def retention(self) -> AsyncGenerator[None]:
        """While the block runs, delete idempotency keys, settled messages and history past their retention.

        Workers, `serve` and `up` use it. However many blocks one client has open, the deletion runs once.
        """
        self._retention_wanted += 1
        if self._retention_wanted == 1:
            metrics = self._retention_metrics
            ticks = Retention(self, self.settings, metrics).ticks
            self._retention_loops = [Loop(name, tick, metrics.loop_errors) for name, tick in ticks.items()]
            for loop in self._retention_loops:
                loop.start()
        try:
            yield
        finally:
            self._retention_wanted -= 1
            if self._retention_wanted == 0:
                await asyncio.gather(*(loop.stop() for loop in self._retention_loops))

    @cached_property
    def _retention_metrics(self) -> RetentionMetrics:
        """Made once, like the job metrics."""
        return RetentionMetrics.on(self.metrics)

    @cached_property
    def _flow_metrics(self) -> FlowMetrics:
        """Made once, like the job metrics."""
        from fencepost.flows.metrics import FlowMetrics  # noqa: PLC0415 - As above.

        return FlowMetrics.on(self.metrics)

    @cached_property
    def _job_metrics(self) -> JobMetrics:
        """Made once: a registry refuses a second metric of the same name."""
        return JobMetrics.on(self.metrics)

    async def _submit(self, submission: Submission) -> Submitted:
        if self.job_settings.outbox_enabled or self.redis_url is None:
            return await self.run(submission.call())
        from fencepost.jobs.direct_path import DirectPath  # noqa: PLC0415
        from fencepost.redis_streams.connection import connect  # noqa: PLC0415 - As for a worker.

        redis = connect(self.redis_url, reply_seconds=self.settings.redis_reply_seconds)
        try:
            return await DirectPath(self, redis, self.job_settings).submit(submission)
        finally:
            await redis.aclose()

    def _subscribe(self, topic: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Listening begins with the first subscriber, and ends with the client."""
        if self._listener is None:
            self._listener = Listener(self.settings.listen_database_url or self.database_url)
            self._listening = asyncio.create_task(self._listener.run(), name="fencepost-results")
        self._listener.on(topic, callback)
        return partial(self._listener.off, topic, callback)

    def _sync_facade(self) -> SyncFencepost:
        """For handlers that run in threads: opened on first use, closed with the client."""
        with self._facade_lock:
            if self._facade is None:
                facade = self.sync()
                facade.open()
                self._facade = facade
            return self._facade


class SyncFencepost(client.SyncKernelClient):
    """`Fencepost` for Django, Flask and scripts: the same calls, without an event loop."""

    def submit(self, submission: Submission, *, within: float = 0) -> Submitted:
        """Submit one job in its own transaction; while its queue is full, wait up to `within` seconds."""
        polling = Polling(within)
        while True:
            try:
                return self.run(submission.call())
            except Backpressure:
                if polling.is_over:
                    raise
                time.sleep(polling.wait_seconds())
                self.run(kernel_queue.count())

    def result(self, job: Submitted | int, *, within: float = 30) -> Json:
        """Wait until the job has ended and return its result; raises as the async form does."""
        job_id = job if isinstance(job, int) else job.job_id
        listen_url = self.settings.listen_database_url or self.database_url
        return wait_for_result_sync(self, listen_url, job_id, within)


def _with_heartbeat_for(handlers: Handlers, settings: JobSettings) -> JobSettings:
    """Three heartbeats within the shortest lease, so that one lost heartbeat loses no job."""
    shortest = min((handler.lease_seconds for handler in handlers), default=settings.lease_seconds)
    beat_seconds = min(settings.heartbeat_seconds, shortest / 3)
    return settings.model_copy(update={"heartbeat_seconds": beat_seconds})
