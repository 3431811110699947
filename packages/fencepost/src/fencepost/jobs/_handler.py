"""A handler: a typed function, and how its jobs are submitted and run."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Unpack,
    cast,
    overload,
)

from fencepost.database import AsyncDatabase, SyncDatabase
from fencepost.errors import InvalidInput
from fencepost.jobs._options import OVERRIDES_HEADER, JobOptions, Overrides, Place
from fencepost.jobs._payload_schema import PayloadSchema, chunk_shape_of, key_of, shape_of
from fencepost.jobs.hooks import Hooks
from fencepost.kernel import job as kernel_job
from fencepost.kernel._job_need import Serves
from fencepost.kernel.call import Call, Json
from fencepost.kernel.job import Submission
from fencepost.tracing import with_trace
from fencepost.transaction import SyncTransaction, Transaction, send

if TYPE_CHECKING:
    from fencepost.jobs.job import Job
    from fencepost.kernel.drivers import AsyncConnection, SyncConnection

P = ParamSpec("P")
Function = Callable[Concatenate["Job", P], Any]


@dataclass(frozen=True)
class Handler(Generic[P]):
    """A function that runs jobs of one kind. Its arguments are the payload, validated on submit and on
    run."""

    function: Function[P]
    queue: str
    kind: str
    declared: JobOptions = field(default_factory=JobOptions)
    """The options of its jobs."""
    database: AsyncDatabase | None = field(default=None, repr=False, compare=False)
    """The client that declared it: `enqueue` submits through it."""
    sync_database: Callable[[], SyncDatabase] | None = field(default=None, repr=False, compare=False)
    hooks: Hooks = field(default_factory=Hooks, repr=False, compare=False)
    """The hooks and the middleware of that client."""

    def __call__(self, job: Job, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function, for a test. Await it if the function is a coroutine function."""
        return self.function(job, *args, **kwargs)

    def options(self, *, queue: str | None = None, **changes: Unpack[Overrides]) -> Handler[P]:
        """The same handler with other options for the jobs that are submitted through it: any option of
        `@fp.job` but the kind, and `run_at`, `delay` and `headers`. None removes a timeout, a unique key or
        a concurrency key."""
        declared = self.declared.changed(**changes)
        changed = replace(self, declared=declared, queue=self.queue if queue is None else queue)
        changed.check()
        return changed

    def check(self) -> None:
        """Rejects options that do not fit the function."""
        shape, options = self.shape, self.declared
        unique = options.unique
        shape.check_key("unique", unique.key if unique else None)
        shape.check_names("unique", unique.named if unique else ())
        shape.check_key("concurrency_key", options.concurrency_key)
        shape.check_key("rate", options.rate.key if options.rate else None)
        shape.check_names("search_by", options.labels.search_by)
        _check_place(cast("Handler[...]", self))

    def running_as(self, headers: Mapping[str, Json]) -> Handler[P]:
        """The handler with what the submission of this job changed of how it runs."""
        if OVERRIDES_HEADER not in headers:
            return self
        changed = replace(self, declared=self.declared.overridden(headers))
        _check_place(cast("Handler[...]", changed))
        return changed

    def submission(self, *args: P.args, **kwargs: P.kwargs) -> Submission:
        """The job as a value: nothing is sent yet."""
        return self._submission(self.shape.given(args, kwargs))

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[kernel_job.Submitted]:
        """The submission as a kernel call, to be sent by the caller."""
        return self.submission(*args, **kwargs).call()

    @overload
    def submit(
        self, tx: Transaction | AsyncConnection, *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[kernel_job.Submitted]: ...
    @overload
    def submit(
        self, tx: SyncTransaction | SyncConnection, *args: P.args, **kwargs: P.kwargs
    ) -> kernel_job.Submitted: ...
    def submit(self, tx: Any, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Submit a job in a Fencepost transaction or on your connection. The job and your rows commit
        together, or neither does."""
        return cast("Any", send)(tx, self.call(*args, **kwargs))

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> kernel_job.Submitted:
        """Submit a job in a transaction of its own, through the client that declared the handler."""
        if self.database is None:
            raise self._has_no_client()
        return await self.database.run(self.call(*args, **kwargs))

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> kernel_job.Submitted:
        """`enqueue` for code without an event loop, through the sync client that is open; if none is, one is
        opened, and closed with the client."""
        if self.sync_database is None:
            raise self._has_no_client()
        return self.sync_database().run(self.call(*args, **kwargs))

    @overload
    def submit_many(
        self, tx: Transaction | AsyncConnection, rows: Iterable[Mapping[str, Any]]
    ) -> Awaitable[list[kernel_job.Submitted]]: ...
    @overload
    def submit_many(
        self, tx: SyncTransaction | SyncConnection, rows: Iterable[Mapping[str, Any]]
    ) -> list[kernel_job.Submitted]: ...
    def submit_many(self, tx: Any, rows: Iterable[Mapping[str, Any]]) -> Any:
        """Submit many jobs with one statement. Each row holds one job's arguments by name; results keep the
        order.

        All of them belong to one trace.
        """
        together = replace(self, declared=self.declared.changed(headers=with_trace(self.declared.headers)))
        jobs = [together._submission(self.shape.given((), row)) for row in rows]
        has_keys, has_limit = self.declared.unique is not None, self.declared.concurrency_key is not None
        call = kernel_job.submit_many(
            self.queue,
            self.kind,
            [job.payload for job in jobs],
            self.declared,
            unique_keys=[job.unique_key for job in jobs] if has_keys else None,
            concurrency_keys=[job.concurrency_key for job in jobs] if has_limit else None,
            headers=[job.headers for job in jobs] if jobs else None,
        )
        return cast("Any", send)(tx, call)

    def payload(self, *args: P.args, **kwargs: P.kwargs) -> Json:
        """The arguments as a JSON document, by name. Defaults are left out: the worker has its own."""
        return self.shape.payload(self.shape.given(args, kwargs))

    def parse(self, payload: Json) -> dict[str, Any]:
        """The arguments of a payload. Raises InvalidInput when it does not fit the function."""
        return self.shape.parse(payload, ignore_unknown=self.declared.unknown_arguments == "ignore")

    @cached_property
    def shape(self) -> PayloadSchema:
        """The schema of its payload."""
        return (shape_of if self.declared.chunk is None else chunk_shape_of)(self.function, self.kind)

    @cached_property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function; any other runs in a thread."""
        return inspect.iscoroutinefunction(self.function)

    @cached_property
    def place(self) -> Place:
        """Where it runs: `run_in` if given, otherwise the loop for a coroutine function and a thread for any
        other."""
        return self.declared.run_in or ("loop" if self.is_async else "thread")

    def run(self, job: object, arguments: Mapping[str, Any]) -> Any:
        """What the function returns inside the middleware of its form: an awaitable, if it is a coroutine
        function."""
        call = partial(cast("Callable[..., Any]", self.function), job, **arguments)
        return self.hooks.wrap(call, job, is_async=self.is_async)()

    def _has_no_client(self) -> InvalidInput:
        return InvalidInput(
            f"{self.kind} was declared without a client, so it cannot enqueue; declare it with @fp.job, or "
            "submit it in a transaction.",
            field="handler",
        )

    def _submission(self, given: Mapping[str, Any]) -> Submission:
        options = self.declared
        unique, limited = options.unique, options.concurrency_key
        arguments = self.shape.with_defaults(given)
        # Two calls are the same whether a default was written out or not.
        compared = None if unique is None else self.shape.payload(arguments)
        return Submission(
            queue=self.queue,
            kind=self.kind,
            payload=self.shape.payload(given),
            options=options,
            unique_key=None if unique is None else unique.text(self.queue, self.kind, arguments, compared),
            concurrency_key=None if limited is None else key_of(limited, arguments),
            headers={**with_trace(options.headers), **self._rate_header(arguments)},
        )

    def _rate_header(self, arguments: Mapping[str, Any]) -> dict[str, Json]:
        rate = self.declared.rate
        if rate is None or rate.key is None:
            return {}
        return {"rate_key": key_of(rate.key, arguments)}


class Handlers:
    """The handlers of one process, by kind."""

    def __init__(self, hooks: Hooks | None = None) -> None:
        self.hooks = hooks or Hooks()
        self._by_kind: dict[str, Handler[...]] = {}

    def add(self, handler: Handler[...]) -> None:
        if handler.kind in self._by_kind:
            raise InvalidInput(
                f"{handler.kind} has a handler already; give this one another kind.", field="kind"
            )
        # A signature that cannot be a payload fails now, not at the first job.
        handler.check()
        self._by_kind[handler.kind] = handler

    def get(self, kind: str) -> Handler[...] | None:
        return self._by_kind.get(kind)

    def of(self, queues: Iterable[str]) -> Handlers:
        """The handlers of the given queues. A workflow waits in a part of its queue, QUEUE/NAME@VERSION."""
        chosen, wanted = Handlers(self.hooks), set(queues)
        unknown = sorted(wanted - {part for h in self for part in (h.queue, h.queue.partition("/")[0])})
        if unknown:
            raise InvalidInput(
                f"No handler serves {', '.join(unknown)}; there are {', '.join(self.queues) or 'none'}.",
                field="queues",
            )
        chosen._by_kind.update(
            (kind, h)
            for kind, h in self._by_kind.items()
            if h.queue in wanted or h.queue.partition("/")[0] in wanted
        )
        return chosen

    def __iter__(self) -> Iterator[Handler[...]]:
        return iter(self._by_kind.values())

    def __len__(self) -> int:
        return len(self._by_kind)

    def serves(self, offers: Sequence[str] = ()) -> Serves:
        """What a worker of these handlers serves."""
        known = {h.kind: None if h.declared.unknown_arguments == "ignore" else h.shape.names for h in self}
        return Serves(known, tuple(offers))

    @property
    def queues(self) -> tuple[str, ...]:
        return tuple(sorted({handler.queue for handler in self}))


def _check_place(handler: Handler[...]) -> None:
    """Checks that `run_in` suits the function when the handler is declared, not when its first job runs."""
    if handler.place == "loop" and not handler.is_async:
        raise InvalidInput(
            f"{handler.kind} is no coroutine function and would block the loop; it runs in a thread or a "
            "process.",
            field="run_in",
        )
    if handler.place != "loop" and handler.is_async:
        raise InvalidInput(
            f"{handler.kind} is a coroutine function, which runs in the loop; write `def` for a thread or a "
            "process.",
            field="run_in",
        )
    if handler.place == "process" and "<locals>" in handler.function.__qualname__:
        raise InvalidInput(
            f"{handler.kind} stands inside another function, where a process cannot find it; move it to the "
            "top of its module.",
            field="run_in",
        )
