"""A workflow in memory: no server, no worker, no waiting. For unit tests of what its function decides."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, ParamSpec, TypeVar, cast

from fencepost.jobs._group_commit import Statement
from fencepost.jobs.job import Job
from fencepost.kernel import _workflow as kernel
from fencepost.kernel import job as kernel_job
from fencepost.kernel.call import Json
from fencepost.kernel.job import Submission
from fencepost.testing._errors import KitError
from fencepost.workflows._child_job import ChildJob, Spawned
from fencepost.workflows._errors import ChildJobFailed, EventTimeout
from fencepost.workflows._handler import WorkflowHandler
from fencepost.workflows._run_state import RunState, StepCall, StepOptions, Undo, in_seconds
from fencepost.workflows._step_codec import Codec, codec_for, codec_of
from fencepost.workflows._step_log import StepLog
from fencepost.workflows._workflow import Workflow

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Restarted(BaseException):
    """The workflow asked to begin again."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments


@dataclass
class InlineOutcome:
    """What a workflow did in memory."""

    steps: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    """Each step and its result, in order; a sleep with its seconds, an event with its payload."""
    undo: list[Submission] = field(default_factory=list[Submission])
    """The jobs that would undo it, newest step first: submitted when it fails."""
    error: Exception | None = None
    restarts: int = 0
    value: Any = None

    @property
    def result(self) -> Any:
        """What the function returned; raises what it raised."""
        if self.error is not None:
            raise self.error
        return self.value

    @property
    def names(self) -> list[str]:
        """The names of the steps, in the order in which they ran."""
        return [name for name, _ in self.steps]


@dataclass
class _World:
    """What the test gives to the workflow."""

    outcome: InlineOutcome
    events: Mapping[str, Json]
    children: Mapping[str, Callable[..., Any]]
    tx: Any


async def run_inline(
    workflow: WorkflowHandler[..., Any],
    /,
    *,
    arguments: Mapping[str, Any] | None = None,
    events: Mapping[str, Json] | None = None,
    stubs: Mapping[str, Callable[..., Any]] | None = None,
    children: Mapping[str, Callable[..., Any]] | None = None,
    tx: Any = None,
    version: int | None = None,
    restarts_max: int = 10,
) -> InlineOutcome:
    """Run an async workflow in memory.

    Sleeps end at once. An event that is not among `events` times out if it has a timeout. `stubs` run in the
    place of steps, `children` in the place of children, by kind or by name, and `tx` is what the functions of
    `wf.transaction` get. A failure is in the outcome, beside the jobs that would undo the steps.
    """
    if not inspect.iscoroutinefunction(workflow.function):
        raise KitError(f"{workflow.name} is no coroutine function: only those run in memory.")
    outcome = InlineOutcome()
    world = _World(outcome, events or {}, children or {}, tx)
    payload = workflow.handler.payload(**(arguments or {}))
    while True:
        running = _running(workflow, payload, outcome.restarts)
        log = StepLog(running, "inline", kernel.Loaded(None, ()))
        # It has no connections: nothing here writes.
        job = Job(running, "inline", cast("Any", None), lambda: cast("Any", None))
        run = RunState(job, workflow.name, version or workflow.version, log, stubs or {})
        try:
            value = await workflow.function(_InlineWorkflow(run, world), **workflow.handler.parse(payload))
        except Restarted as again:
            outcome.restarts += 1
            outcome.steps.clear()
            outcome.undo.clear()
            if outcome.restarts > restarts_max:
                raise KitError(f"{workflow.name} began again {outcome.restarts} times.") from None
            payload = workflow.handler.payload(**again.arguments)
            continue
        except Exception as error:
            outcome.error = error
            return outcome
        codec = codec_of(workflow.function)
        outcome.value = codec.decode(codec.encode(value))
        outcome.undo.clear()
        return outcome


class _InlineWorkflow(Workflow):
    """The same interface, in memory."""

    def __init__(self, run: RunState, world: _World, options: StepOptions | None = None) -> None:
        super().__init__(cast("Any", run), options)
        self._state = run
        self._world = world

    def options(
        self,
        *,
        name: str | None = None,
        key: object = None,
        undo: Undo | None = None,
        durable: bool = True,
    ) -> Workflow:
        return _InlineWorkflow(self._state, self._world, StepOptions(name, key, undo, durable))

    async def step(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return await self._do(StepCall.of(self._options, function, args, kwargs), function, args, kwargs)

    async def transaction(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        call = StepCall.of(self._options, function, args, kwargs)
        return await self._do(call, function, (self._world.tx, *args), kwargs)

    async def write(self, *statements: Statement) -> None:
        call = StepCall.writing(self._options, statements)
        await self._do(call, _execute, (self._world.tx, *statements), {})

    async def sleep(self, delay: timedelta | float) -> None:
        name = self._options.named("sleep")
        self._state.log.use(name)
        self._note(name, in_seconds("delay", delay))

    async def event(self, event: str, kind: Any = Any, /, *, timeout: timedelta | float | None = None) -> Any:  # noqa: ASYNC109
        name = self._options.named(event)
        self._state.log.use(name)
        if event not in self._world.events:
            if timeout is None:
                raise KitError(f"The workflow waits for {event!r} for ever: give it in `events`.")
            self._note(name, None)
            raise EventTimeout(event)
        payload = codec_for(f"the payload of {event!r}", kind).decode(self._world.events[event])
        self._note(name, payload)
        return payload

    async def spawn(self, child: ChildJob[T]) -> Spawned[T]:
        name = self._options.named(child.submission.kind)
        self._state.log.use(name)
        outcome = await self._run_child(child)
        return Spawned(name, 0, [0], lambda _: _unwrap(outcome, child))

    async def result(self, spawned: Spawned[T]) -> T:
        self._state.log.use(f"{spawned.name}/result")
        value = spawned.decode(None)
        self._note(spawned.name, value)
        return value

    async def gather(self, *wanted: ChildJob[T]) -> list[T]:
        settled = await self._all(wanted)
        for one in settled:
            if isinstance(one, ChildJobFailed):
                raise one
        return cast("list[T]", settled)

    async def gather_settled(self, *wanted: ChildJob[T]) -> list[T | ChildJobFailed]:
        return await self._all(wanted)

    async def restart(self, **arguments: Any) -> NoReturn:
        raise Restarted(arguments)

    async def _recorded(self, default: str, codec: Codec, make: Callable[[], T]) -> T:
        name = self._options.named(default)
        self._state.log.use(name)
        value = cast("T", codec.decode(codec.encode(self._state.stubbed(name, make)())))
        self._note(name, value)
        return value

    async def _do(
        self,
        call: StepCall,
        function: Callable[..., Any],
        given: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        self._state.log.use(call.name)
        value = self._state.stubbed(call.name, function)(*given, **kwargs)
        value = await value if inspect.isawaitable(value) else value
        decoded = call.codec.decode(call.codec.encode(value))
        self._note(call.name, decoded)
        undo = self._options.undo_for(decoded)
        if undo is not None:
            self._world.outcome.undo.insert(0, undo)
        return decoded

    async def _all(self, wanted: Sequence[ChildJob[T]]) -> list[T | ChildJobFailed]:
        name = self._options.named("gather")
        self._state.log.use(name)
        settled: list[T | ChildJobFailed] = []
        for child in wanted:
            outcome = await self._run_child(child)
            try:
                settled.append(_unwrap(outcome, child))
            except ChildJobFailed as failed:
                settled.append(failed)
        self._note(name, settled)
        return settled

    async def _run_child(self, child: ChildJob[Any]) -> kernel.ChildOutcome:
        kind = child.submission.kind
        function = self._world.children.get(kind) or self._world.children.get(kind.partition("@")[0])
        if function is None:
            raise KitError(f"The workflow starts the child {kind!r}: give a function for it in `children`.")
        try:
            value = function(**cast("dict[str, Any]", child.submission.payload))
            value = await value if inspect.isawaitable(value) else value
        except Exception as error:
            return kernel.ChildOutcome(0, "dead", "failed", 1, None, f"{type(error).__name__}: {error}")
        return kernel.ChildOutcome(0, "finished", "ok", 1, codec_for(kind, Any).encode(value), None)

    def _note(self, name: str, value: Any) -> None:
        self._world.outcome.steps.append((name, value))


async def _execute(tx: Any, *statements: Statement) -> None:
    """What `wf.write` does with `tx`; nothing without one."""
    if tx is None:
        return
    for query, parameters in statements:
        answer = tx.execute(query, parameters)
        if inspect.isawaitable(answer):
            await answer


def _unwrap(outcome: kernel.ChildOutcome, child: ChildJob[T]) -> T:
    if outcome.state != "finished":
        raise ChildJobFailed(outcome)
    return child.decode(outcome.result)


def _running(workflow: WorkflowHandler[..., Any], payload: Json, restarts: int) -> kernel_job.Running:
    described = {"name": workflow.name, "version": workflow.version, "round": restarts}
    now = datetime.now(UTC)
    handler = workflow.handler
    return kernel_job.Running(
        0, 1, 1, handler.queue, 1, handler.kind, payload, {"workflow": described}, 60, now, now
    )
