"""A declared workflow: how it is started, run and waited for."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from fencepost._durations import Duration
from fencepost.database import AsyncDatabase, SyncDatabase
from fencepost.errors import InvalidInput
from fencepost.jobs._handler import Handler
from fencepost.jobs._options import Overrides
from fencepost.jobs.job import Job
from fencepost.kernel import _workflow as kernel
from fencepost.kernel import job as kernel_job
from fencepost.kernel.call import Call, Json
from fencepost.kernel.job import Submission
from fencepost.logs import get_logger
from fencepost.metrics import Metrics
from fencepost.transaction import SyncTransaction, Transaction, send
from fencepost.workflows._child_job import ChildJob
from fencepost.workflows._errors import Parked
from fencepost.workflows._metrics import WorkflowCounts, WorkflowMetrics
from fencepost.workflows._step_codec import codec_of
from fencepost.workflows._step_committer import StepCommitter
from fencepost.workflows._step_log import StepLog
from fencepost.workflows._sync_workflow import SyncWorkflow, SyncWorkflowRun
from fencepost.workflows._workflow import Workflow, WorkflowRun

if TYPE_CHECKING:
    from fencepost.kernel.drivers import AsyncConnection, SyncConnection

_log = get_logger(__name__)
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
_NO_STEPS = kernel.Loaded(None, ())


class ReadsResults(Protocol):
    """`fp.jobs.result`."""

    def __call__(self, job: kernel_job.Submitted | int, *, within: Duration = 30) -> Awaitable[Json]: ...


Declare = Callable[[str, str, Callable[..., Any]], Handler[...]]
"""Declares a job handler: `fp.job` with a queue and a kind."""


@dataclass(frozen=True)
class WorkflowHandler(Generic[P, R]):
    """A declared workflow. Its arguments after the workflow are the payload, validated on start and on
    run."""

    function: Callable[..., Any]
    queue: str
    name: str
    version: int
    handlers: Mapping[int, Handler[...]]
    """The job handler of each version that this code accepts."""
    read_result: ReadsResults

    @property
    def handler(self) -> Handler[...]:
        """The job handler of the version that is started."""
        return self.handlers[self.version]

    def options(self, **changes: Unpack[Overrides]) -> WorkflowHandler[P, R]:
        """The same workflow with other options for those that are started through it, as of a handler. A
        version has a queue of its own, which stays."""
        changed = self.handler.options(**changes)
        return replace(self, handlers={**self.handlers, self.version: changed})

    def submission(self, *args: P.args, **kwargs: P.kwargs) -> Submission:
        """The workflow as a value: nothing is sent yet."""
        described = {"name": self.name, "version": self.version, "round": 0}
        made = self.handler.options(headers={"workflow": described}).submission(*args, **kwargs)
        if made.unique_key is None:
            return made
        # One live workflow for a key, whatever its version.
        key = made.unique_key.removeprefix(f"{made.kind}:")
        return replace(made, unique_key=f"{self.name}:{key}")

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[kernel_job.Submitted]:
        """The start as a kernel call, to be sent by the caller."""
        return self.submission(*args, **kwargs).call()

    @overload
    def start(
        self, tx: Transaction | AsyncConnection, *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[kernel_job.Submitted]: ...
    @overload
    def start(
        self, tx: SyncTransaction | SyncConnection, *args: P.args, **kwargs: P.kwargs
    ) -> kernel_job.Submitted: ...
    def start(self, tx: Any, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Start a workflow in a Fencepost transaction or on your connection. It and your rows commit
        together, or neither does."""
        return cast("Any", send)(tx, self.call(*args, **kwargs))

    def child(self, *args: P.args, **kwargs: P.kwargs) -> ChildJob[R]:
        """One of these as a child of another workflow, for `wf.spawn` and `wf.gather`."""
        return ChildJob(self.submission(*args, **kwargs), self.decode)

    def decode(self, result: Json) -> R:
        """The result of a finished workflow, as its function returned it."""
        return cast("R", codec_of(self.function).decode(result))

    async def result(self, workflow: kernel_job.Submitted | int, *, within: Duration = 30) -> R:
        """Wait until the workflow has ended and return its result; raises as `fp.jobs.result` does."""
        return self.decode(await self.read_result(workflow, within=within))


class WorkflowDecorator(Protocol):
    """What `fp.workflow(...)` returns."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Workflow, P], Awaitable[R]], /
    ) -> WorkflowHandler[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[SyncWorkflow, P], R], /) -> WorkflowHandler[P, R]: ...


class WorkflowRuntime:
    """What the workflows of a client share: its connections, and a step committer for each worker."""

    def __init__(
        self,
        database: AsyncDatabase,
        read_result: ReadsResults,
        sync_database: Callable[[], SyncDatabase],
        metrics: Metrics,
    ) -> None:
        self.metrics = WorkflowMetrics.on(metrics)
        self.database = database
        self.read_result = read_result
        self.sync_database = sync_database
        self.stubs: dict[str, Callable[..., Any]] = {}
        """What tests run in the place of steps."""
        self.workflows: dict[str, WorkflowHandler[..., Any]] = {}
        """Those that were declared, by the kind of each version."""
        self._by_owner: dict[str, StepCommitter] = {}

    def committer(self, owner: str) -> StepCommitter:
        committer = self._by_owner.get(owner)
        if committer is None:
            committer = self._by_owner[owner] = StepCommitter(self.database, owner)
        return committer


def declare_workflow(
    runtime: WorkflowRuntime,
    declare: Declare,
    function: Callable[..., Any],
    queue: str,
    *,
    name: str | None,
    version: int,
    accepts: Collection[int] | None,
) -> WorkflowHandler[..., Any]:
    """Declare the job handlers of a workflow: one for each version that this code accepts.

    Each version has a queue of its own, so a worker without it never sees it.
    """
    name = name or function.__name__
    versions = {version} if accepts is None else set(accepts)
    _check(queue, name, version, versions)
    codec_of(function)
    handlers: dict[int, Handler[...]] = {}
    workflow = WorkflowHandler[..., Any](function, queue, name, version, handlers, runtime.read_result)
    for one in sorted(versions):
        entry = _entry(runtime, workflow, one)
        kind = f"{name}@{one}"
        handlers[one] = declare(f"{queue}/{kind}", kind, entry)
        runtime.workflows[kind] = replace(workflow, version=one)
    return workflow


def _check(queue: str, name: str, version: int, versions: set[int]) -> None:
    for field, value, longest in (("queue", queue, 64), ("name", name, 48)):
        if not value or len(value.encode()) > longest or "/" in value or "@" in value:
            raise InvalidInput(
                f"{field} is {value!r}; for a workflow it has 1 to {longest} bytes, and neither / nor @.",
                field=field,
            )
    if version not in versions:
        raise InvalidInput(
            f"{name} has version {version} and accepts {sorted(versions)}: it would start workflows "
            "that it cannot run.",
            field="accepts",
        )
    if min(versions) < 1:
        raise InvalidInput("A version is 1 or more.", field="version")


def _entry(runtime: WorkflowRuntime, workflow: WorkflowHandler[..., Any], version: int) -> Callable[..., Any]:
    """The job handler that runs a workflow of one version."""
    function = workflow.function
    counts = WorkflowCounts(runtime.metrics, f"{workflow.name}@{version}")

    def encode(arguments: dict[str, Any]) -> Json:
        return workflow.handlers[version].payload(**arguments)

    def begun(job: Job) -> bool:
        """Whether the attempts before this one may have failed: a park gives its try back."""
        if job.attempt == 1:
            counts.started.inc()
        return job.running.tries > 1

    def ended(log: StepLog, value: Any) -> Json:
        if log.parked:
            counts.parked.inc()
            return None
        if log.unrequested:
            _log.info("unrequested_steps", workflow=workflow.name, steps=log.unrequested)
        result = codec_of(function).encode(value)
        counts.finished.inc()
        return result

    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def run_async(job: Job, **arguments: Any) -> Json:
            # A first attempt has no steps: nothing needs to be read.
            steps = _NO_STEPS if job.attempt == 1 else await runtime.database.run(kernel.load(job.id))
            log = StepLog(job.running, job.owner, steps)
            committer = runtime.committer(job.owner)
            repeats = begun(job) and await runtime.database.run(kernel.repeats(job.id, job.attempt))
            run = WorkflowRun(
                job,
                workflow.name,
                version,
                log,
                runtime.database,
                committer,
                encode,
                runtime.stubs,
                counts,
                repeats=repeats,
            )
            value: Any = None
            try:
                value = await function(Workflow(run), **arguments)
            except BaseException as error:
                # Parked, or what the code made of it: the workflow was given back, and nothing else counts.
                if not log.parked or not _is_exception_of_code(error):
                    counts.failed.inc()
                    raise
            finally:
                await run.close()
            return ended(log, value)

        return run_async

    @wraps(function)
    def run_sync(job: Job, **arguments: Any) -> Json:
        database = runtime.sync_database()
        steps = _NO_STEPS if job.attempt == 1 else database.run(kernel.load(job.id))
        log = StepLog(job.running, job.owner, steps)
        repeats = begun(job) and database.run(kernel.repeats(job.id, job.attempt))
        run = SyncWorkflowRun(
            job, workflow.name, version, log, database, encode, runtime.stubs, counts, repeats=repeats
        )
        value: Any = None
        try:
            value = function(SyncWorkflow(run), **arguments)
        except BaseException as error:
            if not log.parked or not _is_exception_of_code(error):
                counts.failed.inc()
                raise
        return ended(log, value)

    return run_sync


def _is_exception_of_code(error: BaseException) -> bool:
    """Whether it says nothing about the process: an exception of the workflow's own code, or Parked."""
    return isinstance(error, Parked | Exception | BaseExceptionGroup)
