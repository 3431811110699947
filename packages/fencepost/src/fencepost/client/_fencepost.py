"""`Fencepost`: the pools and settings of one database, the declared jobs, and a namespace for each noun."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, cast, overload

from fencepost._connection_line import ConnectionLine
from fencepost._connections import Connections
from fencepost._durations import Duration, optional_seconds_of, seconds_of
from fencepost._instrumentation import CallObserver
from fencepost._sync_form import Awaited, Blocking, SyncContext, complete
from fencepost.client._flows import Flows
from fencepost.client._graphs import GraphForms
from fencepost.client._idempotency import Idempotency
from fencepost.client._jobs import JobOperations, Jobs
from fencepost.client._leases import HeldLease, Leases
from fencepost.client._outbox import Outbox
from fencepost.client._schedules import ScheduleControl
from fencepost.client._testing import Testing
from fencepost.errors import InvalidInput, Refusal
from fencepost.jobs._cron import every
from fencepost.jobs._handler import Function, Handler, Handlers
from fencepost.jobs._options import JobOptions, Place, Priority, Unique, UnknownArguments, priority_number
from fencepost.jobs._payload_schema import Key
from fencepost.jobs._scheduler import Schedule, Schedules
from fencepost.jobs.chunk import Chunk
from fencepost.jobs.hooks import E, F, M, S
from fencepost.jobs.retry_policy import Rate, RetryPolicy, exponential
from fencepost.jobs.settings import JobSettings
from fencepost.kernel.call import Call
from fencepost.kernel.job import LabelTerms
from fencepost.kernel.lease import owner_name
from fencepost.kernel.schedule import Missed
from fencepost.loop import Loop
from fencepost.metrics import Metrics
from fencepost.retention import Retention, RetentionMetrics
from fencepost.server_addresses import of_this_directory
from fencepost.settings import Settings
from fencepost.transaction import SyncTransaction, Transaction

if TYPE_CHECKING:
    from fencepost.workflows._events import Events
    from fencepost.workflows._handler import WorkflowDecorator, WorkflowHandler, WorkflowRuntime

P = ParamSpec("P")
T = TypeVar("T")


class Fencepost(GraphForms):
    """Exactly-once effects on one database, and the jobs that produce them.

    fp = Fencepost.from_env()

    @fp.job("thumbnails", tries=5, lease=30)
    async def thumbnail(job: Job, image_id: int) -> None: ...

    async with fp:
        async with fp.transaction() as tx:
            await thumbnail.submit(tx, image_id=7)
        await fp.leases.acquire("printer", ttl=timedelta(minutes=1))
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
        self.database_url = database_url
        self.redis_url = redis_url
        self.settings = settings or Settings()
        self.job_settings = job_settings or JobSettings()
        self.metrics = metrics or Metrics()
        self.owner = owner_name("fencepost")
        """Unique to this process: the owner of its leases, and the actor of decisions that name none."""
        self.handlers = Handlers()
        observer = CallObserver.of(database_url, self.owner, self.settings, self.metrics)
        self._connections = Connections(
            database_url, self.settings, self.metrics, observer, self.owner, Transaction
        )
        self.leases: Leases[Awaited] = Leases(self._connections)
        self.idempotency = Idempotency()
        self.outbox: Outbox[Awaited] = Outbox(self._connections)
        self.schedules: ScheduleControl[Awaited] = ScheduleControl(
            self._connections, Schedules(), self.handlers
        )
        self.jobs = Jobs(
            self._connections,
            self,
            self.handlers,
            self.schedules.declared,
            self.job_settings,
            redis_url,
            self._sync_facade,
            self.retention,
        )
        self.testing: Testing[Awaited] = Testing(self._connections, self.handlers, self, self._sync_facade)
        self.flows = Flows(self, redis_url, self.retention)
        self._graph_workflow: WorkflowHandler[[dict[str, Any]], Any] | None = None
        self._facade: SyncFencepost | None = None
        self._facade_lock = threading.Lock()
        self._sync_clients: list[SyncFencepost] = []
        """Those made by `sync` that are open."""
        self._retention_wanted = 0
        self._retention_loops: list[Loop] = []

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, config_file: Path | None = None) -> Self:
        """Reads DATABASE_URL and REDIS_URL, or uses the pair that `fencepost up` runs in this directory."""
        settings = Settings.load(environ, config_file)
        addresses = of_this_directory(settings)
        return cls(
            addresses.service_url,
            redis_url=addresses.redis_url,
            settings=settings,
            job_settings=JobSettings.load(environ, config_file),
        )

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect, and refuse a schema that this code cannot work with."""
        await self._connections.open()

    async def close(self) -> None:
        """Close its connections, and those of its form without an event loop."""
        if self._facade is not None:
            await asyncio.to_thread(self._facade.close)
            self._facade = None
        await self._connections.close()

    def transaction(
        self, *, first: Call[Any] | None = None, last: Callable[[], Call[Any]] | None = None
    ) -> AbstractAsyncContextManager[Transaction]:
        """One transaction. It commits at the end of the block, unless the block raised or was refused.

        `first` and `last` are kernel calls that travel with BEGIN and with COMMIT, without round trips of
        their own. What they return is not read; a refusal is raised.
        """
        return self._connections.transaction(first, last)

    def transaction_in(
        self,
        line: ConnectionLine | None,
        *,
        first: Call[Any],
        last: Callable[[], Call[Any]] | None = None,
    ) -> AbstractAsyncContextManager[Transaction]:
        """`transaction` for the runtimes, whose handlers outnumber connections: those in a line wait for one
        another's connection, and not for the pool."""
        return self._connections.transaction(first, last, line)

    def lease(self, resource: str, *, ttl: Duration) -> AbstractAsyncContextManager[HeldLease, bool | None]:
        """Hold a lease for the block; a thread renews it. Losing it cancels the block: `leases.hold`."""
        return self.leases.hold(resource, ttl=ttl)

    async def run(self, call: Call[T]) -> T:
        """One kernel call in its own transaction."""
        return await self._connections.run(call)

    def sync(self) -> SyncFencepost:
        """The same client for code without an event loop, with its own pool: `with fp.sync() as sync_fp`."""
        return SyncFencepost(self, self._connections.observer, self._sync_clients)

    def note_refusal(self, refusal: Refusal) -> None:
        """Count, log and record a refusal that was raised on a connection of yours."""
        self._connections.observer.refused(refusal)

    @overload
    def job(
        self,
        queue: str,
        *,
        chunk: int,
        chunk_wait: Duration = 0.5,
        kind: str | None = None,
        tries: int = 5,
        lease: Duration | None = None,
        timeout: Duration | None = None,
        priority: Priority | int = "normal",
        retry: RetryPolicy | None = None,
        run_in: Place | None = None,
        unique: Key | Unique | None = None,
        concurrency_key: Key | None = None,
        concurrency_limit: int = 1,
        rate: Rate | None = None,
        unknown_arguments: UnknownArguments = "wait",
        tags: Sequence[str] = (),
        search_by: Sequence[str] = (),
    ) -> Callable[[Callable[[Chunk[T]], Any]], Handler[[T]]]: ...
    @overload
    def job(
        self,
        queue: str,
        *,
        kind: str | None = None,
        tries: int = 5,
        lease: Duration | None = None,
        timeout: Duration | None = None,
        priority: Priority | int = "normal",
        retry: RetryPolicy | None = None,
        run_in: Place | None = None,
        unique: Key | Unique | None = None,
        concurrency_key: Key | None = None,
        concurrency_limit: int = 1,
        rate: Rate | None = None,
        unknown_arguments: UnknownArguments = "wait",
        tags: Sequence[str] = (),
        search_by: Sequence[str] = (),
    ) -> Callable[[Function[P]], Handler[P]]: ...
    def job(
        self,
        queue: str,
        *,
        kind: str | None = None,
        tries: int = 5,
        lease: Duration | None = None,
        timeout: Duration | None = None,
        priority: Priority | int = "normal",
        retry: RetryPolicy | None = None,
        run_in: Place | None = None,
        unique: Key | Unique | None = None,
        concurrency_key: Key | None = None,
        concurrency_limit: int = 1,
        rate: Rate | None = None,
        unknown_arguments: UnknownArguments = "wait",
        tags: Sequence[str] = (),
        search_by: Sequence[str] = (),
        chunk: int | None = None,
        chunk_wait: Duration = 0.5,
    ) -> Any:
        """Declare a handler. Its jobs wait in `queue`; its arguments after the job are the payload.

        A job is tried at most `tries` times, and one try takes at most `timeout`. Its worker holds it for
        `lease` without a sign of life. `fp.jobs.search` finds its jobs by `tags`, and by the arguments that
        `search_by` names. Options that cannot be kept are refused here, with InvalidInput.

        A job with arguments that the function does not have, from a newer release, waits for a worker that
        knows them; with `unknown_arguments="ignore"` it runs here without them.

        With `chunk` the function takes up to that many jobs at once, as a `Chunk[T]`; `T` is a class with
        their arguments. A chunk that is not full begins `chunk_wait` after its first job came.
        """
        options = JobOptions(
            tries=tries,
            lease_seconds=optional_seconds_of("lease", lease) or self.job_settings.lease_seconds,
            timeout_seconds=optional_seconds_of("timeout", timeout),
            priority=priority_number(priority),
            retry=retry or exponential(),
            run_in=run_in,
            unique=Unique.of(unique),
            concurrency_key=concurrency_key,
            concurrency_limit=concurrency_limit,
            rate=rate,
            unknown_arguments=unknown_arguments,
            labels=LabelTerms(tags, search_by),
            chunk=chunk,
            chunk_wait_seconds=seconds_of("chunk_wait", chunk_wait),
        )

        def declare_handler(function: Function[P]) -> Handler[P]:
            handler = Handler(
                function,
                queue,
                kind or function.__name__,
                options,
                self,
                self._open_sync_client,
                self.handlers.hooks,
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
        tries: int = 5,
        lease: Duration | None = None,
        timeout: Duration | None = None,
        priority: Priority | int = "normal",
        retry: RetryPolicy | None = None,
        unique: Key | Unique | None = None,
        concurrency_key: Key | None = None,
        concurrency_limit: int = 1,
        rate: Rate | None = None,
        tags: Sequence[str] = (),
        search_by: Sequence[str] = (),
    ) -> WorkflowDecorator:
        """Declare a workflow: a job that remembers its steps. A worker runs those of the versions that it
        `accepts`, and sees no others; new ones are started with `version`.

        @fp.workflow("orders", version=3, accepts={2, 3})
        async def fulfil(wf: Workflow, order_id: int) -> Receipt: ...
        """
        # Most programs have no workflow.
        from fencepost.workflows._handler import declare_workflow  # noqa: PLC0415

        def declare_part(part: str, versioned_kind: str, function: Callable[..., Any]) -> Handler[...]:
            return self.job(
                part,
                kind=versioned_kind,
                tries=tries,
                lease=lease,
                timeout=timeout,
                priority=priority,
                retry=retry,
                unique=unique,
                concurrency_key=concurrency_key,
                concurrency_limit=concurrency_limit,
                rate=rate,
                tags=tags,
                search_by=search_by,
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

    def graph_runner(
        self,
        queue: str,
        *,
        kind: str = "graph",
        tries: int = 5,
        lease: Duration | None = None,
        priority: Priority | int = "normal",
        retry: RetryPolicy | None = None,
        tags: Sequence[str] = (),
    ) -> WorkflowHandler[[dict[str, Any]], Any]:
        """Declare the workflow that runs graphs, chains, groups and chords, beside the jobs that they are
        made of: workers of `queue` run it. A client has one."""
        from fencepost.workflows._graph_runner import graph_function  # noqa: PLC0415

        if self._graph_workflow is not None:
            raise InvalidInput("This client has a graph runner already.", field="graph_runner")
        declare = self.workflow(
            queue, kind=kind, tries=tries, lease=lease, priority=priority, retry=retry, tags=tags
        )
        made = declare(graph_function(self.workflow_runtime, self.handlers))
        self._graph_workflow = cast("WorkflowHandler[[dict[str, Any]], Any]", made)
        return self._graph_workflow

    def graph_workflow(self) -> WorkflowHandler[[dict[str, Any]], Any]:
        """The workflow that runs graphs. Raises InvalidInput when none was declared: nothing would run
        them."""
        if self._graph_workflow is None:
            raise InvalidInput(
                'No worker would run a graph of this client: declare `fp.graph_runner("graphs")` beside its '
                "jobs, where workers load it too.",
                field="graph_runner",
            )
        return self._graph_workflow

    def on_start(self, hook: S) -> S:
        """Call `hook(job)` before a handler runs. A hook never changes a job's outcome: what it raises is
        logged."""
        self.handlers.hooks.start.append(hook)
        return hook

    def on_error(self, hook: E) -> E:
        """Call `hook(job, error)` when a try has failed: in the handler's process, if it has one."""
        self.handlers.hooks.error.append(hook)
        return hook

    def on_finish(self, hook: F) -> F:
        """Call `hook(job, ended)` when the outcome of a try stands in the database."""
        self.handlers.hooks.finish.append(hook)
        return hook

    def middleware(self, function: M) -> M:
        """Run handlers inside `function(job, call)`, which calls the handler with `call()` and may change
        what it returns or raises. A coroutine function wraps coroutine functions, a plain one the others."""
        self.handlers.hooks.add_middleware(function)
        return function

    @cached_property
    def events(self) -> Events:
        """Emits the events that workflows wait for."""
        from fencepost.workflows._events import Events  # noqa: PLC0415

        return Events()

    @cached_property
    def workflow_runtime(self) -> WorkflowRuntime:
        """What the workflows of this client share."""
        from fencepost.workflows._handler import WorkflowRuntime  # noqa: PLC0415

        return WorkflowRuntime(self, self.jobs.result, self._sync_facade, self.metrics)

    def cron(
        self,
        expression: str,
        *,
        zone: str = "UTC",
        missed: Missed = "once",
        grace: Duration = 60,
        name: str | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> Callable[[Handler[P]], Handler[P]]:
        """Run a handler on a cron schedule, above `@fp.job`: one job for each tick, on any number of workers.

        `missed` decides about ticks that passed while no worker ran: `once` runs one job for them all, `all`
        runs one for each, `skip` drops those older than `grace`.
        """
        grace_seconds = seconds_of("grace", grace)

        def schedule(handler: Handler[P]) -> Handler[P]:
            known = cast("Handler[...]", handler)
            self.schedules.declared.add(
                Schedule(name or known.kind, known, expression, zone, missed, grace_seconds, arguments or {})
            )
            return handler

        return schedule

    def every(
        self,
        interval: Duration,
        *,
        missed: Missed = "once",
        grace: Duration = 60,
        name: str | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> Callable[[Handler[P]], Handler[P]]:
        """As `cron`, at a fixed interval counted from 1970, so that all workers compute the same ticks."""
        expression = every(seconds_of("interval", interval))
        return self.cron(expression, missed=missed, grace=grace, name=name, arguments=arguments)

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
        """Made once: a registry refuses a second metric of the same name."""
        return RetentionMetrics.on(self.metrics)

    def _open_sync_client(self) -> SyncFencepost:
        """The sync client that was opened last, or the one for handlers."""
        return self._sync_clients[-1] if self._sync_clients else self._sync_facade()

    def _sync_facade(self) -> SyncFencepost:
        """For handlers that run in threads: opened on first use, closed with the client."""
        with self._facade_lock:
            if self._facade is None:
                facade = self.sync()
                facade.open()
                self._facade = facade
            return self._facade


class SyncFencepost(GraphForms):
    """`Fencepost` for Django, Flask and scripts: the same operations, which block. Made by `fp.sync()`."""

    def __init__(self, fp: Fencepost, observer: CallObserver, opened: list[SyncFencepost]) -> None:
        self.database_url = fp.database_url
        self._opened = opened
        self.settings = fp.settings
        self.metrics = fp.metrics
        self.owner = fp.owner
        self._graph_workflow = fp.graph_workflow
        self._connections = Connections(
            fp.database_url, fp.settings, fp.metrics, observer, fp.owner, SyncTransaction
        )
        self.jobs: JobOperations[Blocking] = JobOperations(self._connections)
        self.testing: Testing[Blocking] = Testing(self._connections, fp.handlers, fp, lambda: self)
        self.leases: Leases[Blocking] = Leases(self._connections)
        self.idempotency = fp.idempotency
        self.outbox: Outbox[Blocking] = Outbox(self._connections)
        self.schedules: ScheduleControl[Blocking] = ScheduleControl(
            self._connections, fp.schedules.declared, fp.handlers
        )

    def graph_workflow(self) -> WorkflowHandler[[dict[str, Any]], Any]:
        """The workflow that runs graphs, which the async client has declared."""
        return self._graph_workflow()

    @cached_property
    def events(self) -> Events:
        """Emits the events that workflows wait for."""
        from fencepost.workflows._events import Events  # noqa: PLC0415 -- Most programs have no workflow.

        return Events()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Connect, and refuse a schema that this code cannot work with."""
        complete(self._connections.open())
        self._opened.append(self)

    def close(self) -> None:
        """Close its connections."""
        if self in self._opened:
            self._opened.remove(self)
        complete(self._connections.close())

    def transaction(
        self, *, first: Call[Any] | None = None, last: Callable[[], Call[Any]] | None = None
    ) -> AbstractContextManager[SyncTransaction]:
        """One transaction. It commits at the end of the block, unless the block raised or was refused.

        `first` and `last`: as in `Fencepost.transaction`.
        """
        return SyncContext(self._connections.transaction(first, last))

    def lease(self, resource: str, *, ttl: Duration) -> AbstractContextManager[HeldLease, bool | None]:
        """Hold a lease for the block; a thread renews it. `is_valid` tells whether it is lost."""
        return self.leases.hold(resource, ttl=ttl)

    def run(self, call: Call[T]) -> T:
        """One kernel call in its own transaction."""
        return complete(self._connections.run(call))

    def note_refusal(self, refusal: Refusal) -> None:
        """Count, log and record a refusal that was raised on a connection of yours."""
        self._connections.observer.refused(refusal)
