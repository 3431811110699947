"""Runs the handlers of claimed jobs in tasks and passes the outcome of each on, once.

`HeldJobs` are the jobs that a worker holds. `Executor` starts and stops their handlers, `execute` runs one
and returns its outcome as a value, `ThreadPool` has the threads for handlers without an event loop.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import Any, cast

from structlog.contextvars import bind_contextvars

from fencepost.errors import InvalidInput, Refusal, ServerUnavailable
from fencepost.jobs._failure_text import error_text, stored_text, traceback_text
from fencepost.jobs._handler import Handler
from fencepost.jobs._job_fields import job_fields, trace_id_of
from fencepost.jobs._metrics import JobMetrics
from fencepost.jobs._payload_schema import ChunkSchema
from fencepost.jobs._process_pool import FailedInProcess, ProcessPool
from fencepost.jobs.chunk import Chunk, ChunkMember
from fencepost.jobs.hooks import Ended, tell
from fencepost.jobs.job import Job
from fencepost.jobs.retry_policy import (
    PAYLOAD_INVALID,
    Bury,
    Cancel,
    Retry,
    Snooze,
    Verdict,
    exponential,
    server_wait,
)
from fencepost.kernel import job as kernel_job
from fencepost.kernel.call import document
from fencepost.logs import get_logger, is_debugged
from fencepost.redis_streams.stream import StreamEntry
from fencepost.signals import announce
from fencepost.tracing import is_traced, span

_log = get_logger(__name__)
# structlog's own variables, bound in a context that ends here: finding them by name for each job took longer
# than an empty handler.
_JOB_ID, _ATTEMPT, _TRACE_ID = (
    token.var
    for token in copy_context().run(bind_contextvars, job_id=None, attempt=None, trace_id=None).values()
)
DELAY_SECONDS_MAX = 365 * 86_400.0
AT_ONCE = 50
"""How many handlers start before the loop handles other events: five hundred at once would delay the next
claim, and the answers of PostgreSQL and Redis, until the last of them has run."""


@dataclass(slots=True, eq=False)
class HeldJob:
    """A job that this worker holds. `deadline` is the end of its lease on this machine's monotonic clock."""

    running: kernel_job.Running
    entry: StreamEntry | None
    job: Job
    deadline: float
    task: asyncio.Task[Any] | None = None
    lost: bool = False
    cancelled: bool = False
    outcome_known: bool = False
    started_at: float = field(default_factory=time.monotonic)
    run_seconds: float = 0.0
    """How long its handler ran."""
    end: Ended | None = None
    """What hooks are told of its end, if there are any."""

    @property
    def ended(self) -> bool:
        """Whether its handler has ended: the outcome is decided, if not yet written."""
        return self.outcome_known or self.job.finished or self.job.parked


@dataclass(frozen=True, slots=True)
class Committed:
    """The handler finished or parked the job in its own transaction: only the entry is left to settle."""

    parked: bool = False
    left: tuple[kernel_job.Leave, kernel_job.Left] | None = None
    """A member of a chunk that its handler did not finish: how it left."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Another owner has the job, or will have it: nothing is written, nothing acknowledged."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The database refused a write of this attempt; the reason says whether the entry is still needed."""

    reason: str
    seen: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The row that the database saw."""


Outcome = kernel_job.Finish | kernel_job.Leave | Committed | Lost | Refused


@dataclass(frozen=True, slots=True)
class _Failure:
    """A try that failed, with the exception for those who are told of it."""

    left: kernel_job.Leave
    error: BaseException


def _name_of(outcome: Outcome) -> str:
    match outcome:
        case kernel_job.Leave():
            return outcome.how
        case Committed(parked=True):
            return "parked"
        case _:
            return type(outcome).__name__.lower()


def is_poison(outcome: Outcome) -> bool:
    """Whether the handler could not be called with the payload."""
    return isinstance(outcome, kernel_job.Leave) and (outcome.error or "").startswith(f"{PAYLOAD_INVALID}: ")


class HeldJobs:
    """The jobs that this worker holds, in the order of their claims, and how many more it may hold.

    Two loops claim: a place that one of them has reserved is not available to the other. `room` is set when a
    place may have become free. `unbegun` are the jobs whose handlers have not begun.
    """

    def __init__(
        self,
        places: int,
        threads: ThreadPool,
        room: asyncio.Event,
        metrics: JobMetrics,
        *,
        jobs_max: int | None = None,
        on_spent: Callable[[], None] = lambda: None,
    ) -> None:
        """Holds `jobs_max` jobs in all, and calls `on_spent` when they are settled."""
        self.room = room
        self._left = math.inf if jobs_max is None else jobs_max
        self._on_spent = on_spent
        self.unbegun: deque[tuple[HeldJob, Handler[...]]] = deque()
        self.on_removed: Callable[[], None] = lambda: None
        self._places = places
        self._threads = threads
        self._metrics = metrics
        self._reserved = 0
        self._may_claim = True
        self._in_service = True
        self._is_apart = False
        self._emptied = asyncio.Event()
        self._jobs: dict[HeldJob, None] = {}
        self._latest: dict[int, HeldJob] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def all(self) -> tuple[HeldJob, ...]:
        """A copy, which any thread may make."""
        return tuple(self._jobs)

    @property
    def entries(self) -> list[StreamEntry]:
        return [active.entry for active in self._jobs if active.entry is not None]

    @property
    def free(self) -> int:
        """A thread that was left behind keeps its place until its function returns."""
        if not self._may_claim or not self._in_service or self._is_apart:
            return 0
        places = self._places - len(self._jobs) - self._threads.left_behind
        return int(max(0, min(places, self._left) - self._reserved))

    @property
    def is_full(self) -> bool:
        """Whether it holds as many as it may."""
        return len(self._jobs) + self._threads.left_behind >= self._places

    def let_claim(self, allowed: bool) -> None:
        """Whether places are given at all: not while leases cannot be renewed."""
        self._may_claim = allowed
        self.room.set()

    def serve(self, in_service: bool) -> None:
        """Whether places are given at all: not while the worker is drained or disabled."""
        if in_service != self._in_service:
            self._in_service = in_service
            self.room.set()

    @contextmanager
    def apart(self) -> Generator[None]:
        """Give no places inside the block: what is held ends, and only suspects are added."""
        self._is_apart = True
        try:
            yield
        finally:
            self._is_apart = False
            self.room.set()

    async def until_empty(self, within_seconds: float | None = None) -> bool:
        """Wait until nothing is held and no claim is in progress; False when it was not so in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_seconds):
                while self._jobs or self._reserved:
                    self._emptied.clear()
                    await self._emptied.wait()
        return not self._jobs and not self._reserved

    @contextmanager
    def reserved(self, most: int) -> Generator[int]:
        """Reserve up to `most` places inside the block; yields how many were reserved."""
        places = min(most, self.free)
        self._reserved += places
        try:
            yield places
        finally:
            self._reserved -= places
            # A loop that saw no free place because of this reservation checks again: perhaps nothing was
            # claimed.
            self.room.set()
            self._emptied.set()

    def add(self, active: HeldJob) -> HeldJob | None:
        """Hold a job; returns an older attempt at the same job that still runs here."""
        job_id = active.running.job_id
        older = self._latest.get(job_id)
        self._latest[job_id] = active
        self._jobs[active] = None
        self._left -= 1
        return None if older is None or older.ended else older

    def remove(self, actives: Sequence[HeldJob]) -> None:
        """Jobs whose outcome is settled: their places are free."""
        for active in actives:
            job_id = active.running.job_id
            self._jobs.pop(active, None)
            if self._latest.get(job_id) is active:
                del self._latest[job_id]
            announce("worker.settled")
        self._metrics.held.set(len(self._jobs))
        self.room.set()
        self._emptied.set()
        self.on_removed()
        if self._left <= 0 and not self._jobs:
            self._on_spent()


@dataclass(slots=True)
class _Gathered:
    """A chunk that waits for more jobs."""

    handler: Handler[...]
    timer: asyncio.TimerHandle
    actives: list[HeldJob] = field(default_factory=list[HeldJob])


class Executor:
    """Starts, stops and waits for the handlers of held jobs."""

    def __init__(
        self,
        held: HeldJobs,
        threads: ThreadPool,
        processes: ProcessPool | None,
        on_outcome: Callable[[HeldJob, Outcome], None],
        *,
        slow_seconds: float = math.inf,
    ) -> None:
        self._held = held
        self._slow_seconds = slow_seconds
        self._is_debugged = False
        self._threads = threads
        self._processes = processes
        self._on_outcome = on_outcome
        self._unbegun = held.unbegun
        self._reusable: asyncio.Task[None] | None = None
        """The task that may run another handler."""
        self._is_scheduled = False
        self._gathered: dict[str, _Gathered] = {}
        """Chunks that are not full yet, by kind."""

    def start(self, claimed: Iterable[tuple[HeldJob, Handler[...]]]) -> None:
        """Begin them soon: the caller first sends its next request, so that PostgreSQL works while the
        handlers run."""
        for one in claimed:
            if one[1].declared.chunk is None:
                self._unbegun.append(one)
            else:
                self._gather(*one)
        if self._gathered:
            # Later, because the places of these jobs are counted twice until their claim is over.
            asyncio.get_running_loop().call_soon(self._begin_if_full)
        # A running task's handler has waited, or this code would not run: the task takes no other.
        self._reusable = None
        self._start_soon()

    def _start_soon(self) -> None:
        if self._unbegun and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._start_some)

    def _start_some(self) -> None:
        """One task for many handlers while they end at once; one task for each when the last has waited."""
        self._is_scheduled = False
        loop = asyncio.get_running_loop()
        waits = self._reusable is not None and not self._reusable.done()
        places = min(AT_ONCE if waits else 1, len(self._unbegun))
        for _ in range(places):
            self._reusable = loop.create_task(self._run_in_turn())
        if len(self._unbegun) > places:
            # After the first step of those, and before any waiting task continues.
            self._start_soon()

    def cancel(self, active: HeldJob) -> None:
        active.job.stop()
        # Its task may run another job by now.
        if active.task is not None and not active.outcome_known:
            active.task.cancel()

    def lose(self, actives: Iterable[HeldJob]) -> None:
        """Stops the local execution of jobs with a lost lease: nothing is written, nothing acknowledged."""
        for active in actives:
            if not active.lost:
                active.lost = True
                _log.warning("lease_lost", **job_fields(active.running))
                announce("worker.lost")
                self.cancel(active)

    async def all_begun(self) -> None:
        """Wait until every handler that was given to `start` has begun. No chunk waits for more jobs."""
        self._begin_chunks()
        while self._unbegun:  # noqa: ASYNC110 -- It advances with every turn of the loop.
            await asyncio.sleep(0)

    async def drain(self, seconds: float, farewell_seconds: float) -> None:
        """Let handlers end for `seconds`, then cancel those that run and wait until they have given up."""
        await self._wait(seconds)
        for active in self._held.all():
            self.cancel(active)
        await self._wait(farewell_seconds)

    def close(self) -> None:
        self._threads.close()
        if self._processes is not None:
            self._processes.close()

    async def _wait(self, seconds: float) -> None:
        tasks = [active.task for active in self._held.all() if active.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    async def _run_in_turn(self) -> None:
        """Run one handler after another as long as none has waited.

        A task costs more than an empty handler. A task that has waited is not reused, and neither is one that
        was cancelled or whose context was changed: handlers see nothing of each other.
        """
        task = asyncio.current_task()
        assert task is not None
        # Checked once for all of them: the check costs as much as an empty handler.
        run = self._run_traced if is_traced() else self._run
        self._is_debugged = is_debugged(__name__)
        for _ in range(AT_ONCE):
            if not self._unbegun:
                return
            active, handler = self._unbegun.popleft()
            if active.job.stopped:
                self._hand_on(active, Lost() if active.lost else leave(active.running, "release"))
                continue
            active.task = task
            _name(active)
            before = copy_context()
            await run(active, handler)
            if self._reusable is not task or task.cancelling() or copy_context() != before:
                return

    def _gather(self, active: HeldJob, handler: Handler[...]) -> None:
        """Collect it with the others of its kind. A job whose last try failed runs alone: what failed a whole
        chunk fails next time only the job that is at fault."""
        if active.running.tries > 1:
            self._begin_chunk(handler, [active])
            return
        options = handler.declared
        gathered = self._gathered.get(handler.kind)
        if gathered is None:
            timer = asyncio.get_running_loop().call_later(
                options.chunk_wait_seconds, self._begin_gathered, handler.kind
            )
            gathered = self._gathered[handler.kind] = _Gathered(handler, timer)
        gathered.actives.append(active)
        if len(gathered.actives) >= (options.chunk or 1):
            self._begin_gathered(handler.kind)

    def _begin_if_full(self) -> None:
        """A worker without a free place gathers no more: what it has begins."""
        if self._gathered and self._held.is_full:
            self._begin_chunks()

    def _begin_chunks(self) -> None:
        for kind in tuple(self._gathered):
            self._begin_gathered(kind)

    def _begin_gathered(self, kind: str) -> None:
        gathered = self._gathered.pop(kind, None)
        if gathered is not None:
            gathered.timer.cancel()
            self._begin_chunk(gathered.handler, gathered.actives)

    def _begin_chunk(self, handler: Handler[...], actives: Sequence[HeldJob]) -> None:
        begun: list[HeldJob] = []
        for active in actives:
            if active.job.stopped:
                self._hand_on(active, Lost() if active.lost else leave(active.running, "release"))
            else:
                begun.append(active)
        if begun:
            task = asyncio.get_running_loop().create_task(self._run_chunk(handler, begun))
            for active in begun:
                active.task = task

    async def _run_chunk(self, handler: Handler[...], actives: Sequence[HeldJob]) -> None:
        began = time.monotonic()
        self._is_debugged = is_debugged(__name__)
        if self._is_debugged:
            for active in actives:
                _log.debug("job_started", chunk=len(actives), **job_fields(active.running))
        try:
            with span(f"chunk {handler.kind}", "consumer", {}, queue=handler.queue, jobs=len(actives)):
                outcomes = await execute_chunk(actives, handler, self._threads)
        except BaseException as error:
            _log.error("execution_failed", error=describe(error), kind=handler.kind, jobs=len(actives))
            for active in actives:
                self._hand_on(active, Lost())
            raise
        for active, outcome in zip(actives, outcomes, strict=True):
            active.run_seconds = time.monotonic() - began
            if self._is_debugged or active.run_seconds >= self._slow_seconds:
                self._log_end(active, outcome)
            self._hand_on(active, outcome)

    async def _run_traced(self, active: HeldJob, handler: Handler[...]) -> None:
        running = active.running
        carried = {"trace_id": trace_id_of(running), **running.headers}
        about: dict[str, str | int] = {
            "job_id": running.job_id,
            "attempt": running.attempt,
            "queue": running.queue,
        }
        with span(f"job {running.kind}", "consumer", carried, **about) as note:
            outcome = await self._run(active, handler)
            note(outcome=type(outcome).__name__.lower())

    async def _run(self, active: HeldJob, handler: Handler[...]) -> Outcome:
        began = time.monotonic()
        if self._is_debugged:
            _log.debug("job_started", **job_fields(active.running))
        try:
            outcome = await execute(active, handler, self._threads, self._processes)
        except BaseException as error:
            _log.error("execution_failed", error=describe(error), **job_fields(active.running))
            # Left to its lease: the state of this process is unknown.
            self._hand_on(active, Lost())
            raise
        active.run_seconds = time.monotonic() - began
        if self._is_debugged or active.run_seconds >= self._slow_seconds:
            self._log_end(active, outcome)
        self._hand_on(active, outcome)
        return outcome

    def _log_end(self, active: HeldJob, outcome: Outcome) -> None:
        """The line of a slow one is for everyone; `job_failed` says what became of a try that failed."""
        log = _log.info if active.run_seconds >= self._slow_seconds else _log.debug
        seconds = round(active.run_seconds, 3)
        log("job_ended", seconds=seconds, outcome=_name_of(outcome), **job_fields(active.running))

    def _hand_on(self, active: HeldJob, outcome: Outcome) -> None:
        active.outcome_known = True
        self._on_outcome(active, outcome)


async def execute(
    active: HeldJob,
    handler: Handler[...],
    threads: ThreadPool,
    processes: ProcessPool | None = None,
) -> Outcome:
    """Run the handler and return its outcome. Never raises: without an outcome the job is held for ever."""
    if handler.declared.chunk is not None:
        [outcome] = await execute_chunk([active], handler, threads)
        return outcome
    return await _told(active, handler, threads, await _attempt(active, handler, threads, processes))


async def _told(
    active: HeldJob, handler: Handler[...], threads: ThreadPool, outcome: Outcome | _Failure
) -> Outcome:
    """The outcome, after the hooks were told of a failure."""
    if not isinstance(outcome, _Failure):
        return outcome
    hooks = handler.hooks.error
    # A process has told its own hooks: it has the exception.
    if hooks and not isinstance(outcome.error, FailedInProcess):
        with suppress(asyncio.CancelledError):  # The outcome is decided.
            await tell("error", hooks, threads.call, active.job, outcome.error)
    return outcome.left


async def _attempt(
    active: HeldJob, handler: Handler[...], threads: ThreadPool, processes: ProcessPool | None
) -> Outcome | _Failure:
    running = active.running
    try:
        handler = handler.running_as(running.headers)
        arguments = handler.parse(running.payload)
    except Exception as error:
        return _Failure(leave(running, "bury", f"{PAYLOAD_INVALID}: {describe(error)}"), error)
    try:
        if handler.hooks.start:
            await tell("start", handler.hooks.start, threads.call, active.job)
        if handler.place == "loop" and handler.declared.timeout_seconds is None:
            # The common case; this saves a coroutine for each of them.
            if handler.hooks.async_middleware:
                result = await handler.run(active.job, arguments)
            else:
                result = await cast("Awaitable[Any]", handler.function(active.job, **arguments))
        # A process has its own timeout, which does not count its start-up time.
        elif handler.declared.timeout_seconds is None or handler.place == "process":
            result = await _invoke(active, handler, arguments, threads, processes)
        else:
            result = await _invoke_in_time(active, handler, arguments, threads)
    except asyncio.CancelledError:
        return _stopped(active, handler)
    except Refusal as refusal:
        return _refused(active, handler, refusal)
    except (Exception, SystemExit) as error:
        # SystemExit too: a handler that calls a command line must not end the worker.
        return _failed(active, handler, error)
    if active.job.parked:
        return Committed(parked=True)
    return Committed() if active.job.finished else _finish(running, result)


async def execute_chunk(
    actives: Sequence[HeldJob], handler: Handler[...], threads: ThreadPool
) -> list[Outcome]:
    """Run a chunk handler with these jobs and return the outcome of each, in order. Never raises."""
    members: dict[HeldJob, ChunkMember[Any]] = {}
    outcomes: dict[HeldJob, Outcome | _Failure] = {}

    def decide(job: Job, error: Exception) -> kernel_job.Leave:
        return _left_by(job.running, handler, error)

    shape = cast("ChunkSchema", handler.shape)
    for active in actives:
        try:
            arguments = shape.row(**handler.parse(active.running.payload))
        except Exception as error:
            left = leave(active.running, "bury", f"{PAYLOAD_INVALID}: {describe(error)}")
            outcomes[active] = _Failure(left, error)
        else:
            members[active] = ChunkMember(active.job, arguments, decide)
    if members:
        outcomes |= await _run_members(members, handler, threads)
    return [await _told(active, handler, threads, outcomes[active]) for active in actives]


async def _run_members(
    members: Mapping[HeldJob, ChunkMember[Any]], handler: Handler[...], threads: ThreadPool
) -> dict[HeldJob, Outcome | _Failure]:
    chunk = Chunk(tuple(members.values()))
    judge: Callable[[HeldJob, ChunkMember[Any]], Outcome | _Failure] = _member_ended
    try:
        for member in chunk:
            if handler.hooks.start:
                await tell("start", handler.hooks.start, threads.call, member.job)
        await _call_in_time(handler, threads, chunk)
    except asyncio.CancelledError:
        judge = partial(_member_stopped, handler=handler, is_ours=chunk.stopped)
    except Refusal as refusal:
        is_ours = refusal.noun == "job" and refusal.subject in {str(member.job.id) for member in chunk}
        judge = (
            partial(_member_refused, refusal=refusal)
            if is_ours
            else partial(_member_failed, handler=handler, error=refusal)
        )
    except (Exception, SystemExit) as error:
        judge = partial(_member_failed, handler=handler, error=error)
    return {active: _committed(active, member) or judge(active, member) for active, member in members.items()}


async def _call_in_time(handler: Handler[...], threads: ThreadPool, chunk: Chunk[Any]) -> None:
    seconds = handler.declared.timeout_seconds
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            if handler.is_async:
                await handler.run(chunk, {})
            else:
                await threads.call(lambda: handler.run(chunk, {}))
    except BaseException as error:
        if not handler.is_async:
            # The thread may still run, and checks this flag.
            for member in chunk:
                member.job.stop()
        if isinstance(error, TimeoutError) and limit.expired():
            raise TimeoutError(f"the handler did not finish within {seconds:g} s") from error.__cause__
        raise


def _committed(active: HeldJob, member: ChunkMember[Any]) -> Committed | None:
    """How it stands when its chunk's transaction has committed, whatever came after."""
    if active.job.finished:
        return Committed()
    return None if member.left is None else Committed(left=member.left)


def _member_ended(active: HeldJob, member: ChunkMember[Any]) -> Outcome | _Failure:
    decision = member.decision
    if isinstance(decision, kernel_job.Leave):
        return decision
    ended = _finish(active.running, decision.result)
    return decision if isinstance(ended, kernel_job.Finish) else ended


def _member_failed(
    active: HeldJob, member: ChunkMember[Any], *, handler: Handler[...], error: BaseException
) -> Outcome | _Failure:
    """The handler failed with all of them. That this one leaves was decided before."""
    if isinstance(member.decision, kernel_job.Leave):
        return member.decision
    return _failed(active, handler, error)


def _member_refused(active: HeldJob, member: ChunkMember[Any], *, refusal: Refusal) -> Outcome:
    """The refused one has lost its attempt; the others come back, and the try is not charged."""
    if refusal.subject == str(member.job.id):
        return Refused(refusal.reason, refusal.seen)
    return leave(active.running, "release")


def _member_stopped(
    active: HeldJob, _member: ChunkMember[Any], *, handler: Handler[...], is_ours: bool
) -> Outcome | _Failure:
    """One of them was cancelled or lost, or the worker stops: the others come back."""
    if is_ours and not active.lost:
        return leave(active.running, "release")
    return _stopped(active, handler)


def leave(
    running: kernel_job.Running,
    how: kernel_job.Leaving,
    error: str | None = None,
    delay_seconds: float = 0,
    traceback: str | None = None,
) -> kernel_job.Leave:
    delay = delay_seconds if math.isfinite(delay_seconds) else DELAY_SECONDS_MAX
    bounded = min(DELAY_SECONDS_MAX, max(0.0, delay))
    return kernel_job.Leave(running.job_id, running.attempt, how, error, bounded, traceback)


def describe(error: BaseException) -> str:
    """The error as a text that PostgreSQL can store, whatever it contains."""
    if isinstance(error, Cancel):
        return stored_text(error.text)
    return error.text if isinstance(error, FailedInProcess) else error_text(error)


async def _invoke(
    active: HeldJob,
    handler: Handler[...],
    arguments: dict[str, Any],
    threads: ThreadPool,
    processes: ProcessPool | None,
) -> Any:
    if handler.place == "process":
        assert processes is not None, "a worker with such handlers is given processes"
        return await processes.call(handler, active.running, active.job)
    if handler.is_async:
        return await handler.run(active.job, arguments)
    try:
        return await threads.call(lambda: handler.run(active.job, arguments))
    except BaseException:
        # The thread may still run, and checks this flag.
        active.job.stop()
        raise


async def _invoke_in_time(
    active: HeldJob, handler: Handler[...], arguments: dict[str, Any], threads: ThreadPool
) -> Any:
    seconds = handler.declared.timeout_seconds
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await _invoke(active, handler, arguments, threads, None)
    except TimeoutError as error:
        if not limit.expired():
            raise
        # What was cancelled shows where the handler was: the cause of the timeout, its context before 3.11.3.
        cancelled = error.__cause__ or error.__context__
        raise TimeoutError(f"the handler did not finish within {seconds:g} s") from cancelled


def _finish(running: kernel_job.Running, result: Any) -> kernel_job.Finish | _Failure:
    # Most return nothing, which needs no check.
    if result is not None:
        try:
            document("result", result)
        except InvalidInput as error:
            left = leave(running, "bury", f"the handler's result cannot be stored: {describe(error)}")
            return _Failure(left, error)
    return kernel_job.Finish(running.job_id, running.attempt, "ok", result)


def _stopped(active: HeldJob, handler: Handler[...]) -> Outcome | _Failure:
    """Why the task was cancelled: by an operator, a lost lease, a worker shutdown, or from inside."""
    if active.job.finished:
        return Committed()
    if active.lost:
        return Lost()
    if not active.job.stopped:
        return _failed(active, handler, RuntimeError("the handler was cancelled, but not by its worker"))
    # Once released, it ends as cancelled when a cancel was requested, and is given back otherwise.
    return leave(active.running, "release")


def _refused(active: HeldJob, handler: Handler[...], refusal: Refusal) -> Outcome | _Failure:
    """A refusal of this attempt ends it. Any other refusal is an error like any other."""
    if active.job.finished:
        return Committed()
    if (refusal.noun, refusal.subject) == ("job", str(active.running.job_id)):
        return Refused(refusal.reason, refusal.seen)
    return _failed(active, handler, refusal)


def _failed(active: HeldJob, handler: Handler[...], error: BaseException) -> Outcome | _Failure:
    if active.job.finished:
        # The commit succeeded and something after it failed: the effect and the finish both stand.
        _log.warning("failed_after_finish", error=describe(error), **job_fields(active.running))
        return Committed()
    if active.lost:
        return Lost()
    if isinstance(error, Snooze | Cancel):
        return _left_by(active.running, handler, error)
    if isinstance(error, ServerUnavailable):
        wait_seconds = server_wait(active.running.attempt, active.running.tries)
        if wait_seconds is not None:
            return _server_away(active.running, error, wait_seconds)
    return _Failure(_left_by(active.running, handler, error), error)


def _left_by(running: kernel_job.Running, handler: Handler[...], error: BaseException) -> kernel_job.Leave:
    """How a job leaves that ended with this exception."""
    if isinstance(error, Snooze):
        return leave(running, "release", delay_seconds=error.seconds)
    if isinstance(error, Cancel):
        return leave(running, "cancel", describe(error) or None)
    traceback = error.traceback if isinstance(error, FailedInProcess) else traceback_text(error)
    match _verdict(running, handler, error):
        case Bury():
            return leave(running, "bury", describe(error), traceback=traceback)
        case Retry(delay_seconds):
            return leave(running, "retry", describe(error), delay_seconds, traceback)


def _server_away(
    running: kernel_job.Running, error: ServerUnavailable, wait_seconds: float
) -> kernel_job.Leave:
    """The server's fault is not the job's: the try is not charged."""
    text = describe(error)
    _log.warning("server_unavailable", error=text, retry_seconds=wait_seconds, **job_fields(running))
    return leave(running, "release", text, wait_seconds)


def _verdict(running: kernel_job.Running, handler: Handler[...], error: BaseException) -> Verdict:
    """The verdict of the handler's policy; a policy that fails, or returns nothing, gets the default."""
    tries = running.tries
    if isinstance(error, FailedInProcess):
        return error.verdict
    known = error if isinstance(error, Exception) else RuntimeError(describe(error))
    try:
        verdict: object = handler.declared.retry(tries, known)
    except Exception as failure:
        verdict = failure
    if isinstance(verdict, Retry | Bury):
        return verdict
    _log.error("retry_policy_failed", verdict=repr(verdict), **job_fields(running))
    return exponential()(tries, known)


def _name(active: HeldJob) -> None:
    """Binds the job's names for the handler's logs. They are not unbound: the next job binds its own, and a
    context ends with its task."""
    _JOB_ID.set(active.running.job_id)
    _ATTEMPT.set(active.running.attempt)
    _TRACE_ID.set(trace_id_of(active.running))


_Function = Callable[[], Any]
_Deliver = Callable[[Any, BaseException | None], None]


class ThreadPool:
    """Runs functions in threads, as many at once as are requested, and reuses idle threads.

    The threads are daemons, unlike those of concurrent.futures: a handler that never returns must not keep a
    worker from ending. A caller may stop waiting (a timeout, a lost lease); the thread then runs on, and
    counts as left behind until its function returns, because nothing can end a thread from outside.
    """

    def __init__(self, on_return: Callable[[], None]) -> None:
        self._on_return = on_return
        self._calls: SimpleQueue[tuple[_Function, _Deliver] | None] = SimpleQueue()
        self._threads: int = 0
        self._busy: int = 0
        self.left_behind: int = 0

    async def call(self, function: _Function) -> Any:
        """What the function returns or raises. It sees the context variables of the caller."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        future.add_done_callback(self._note_leaving)
        context = copy_context()

        def deliver(result: Any, error: BaseException | None) -> None:
            with suppress(RuntimeError):  # The loop may be closed by now.
                loop.call_soon_threadsafe(self._returned, future, result, error)

        if self._busy == self._threads:
            self._threads += 1
            threading.Thread(target=self._work, name="fencepost-handler", daemon=True).start()
        self._busy += 1
        self._calls.put((lambda: context.run(function), deliver))
        return await future

    def close(self) -> None:
        """Ends idle threads now; the others end when their functions return."""
        for _ in range(self._threads):
            self._calls.put(None)

    def _note_leaving(self, future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            self.left_behind += 1

    def _returned(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        self._busy -= 1
        if future.cancelled():
            self.left_behind -= 1
        elif error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
        self._on_return()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            function, deliver = call
            try:
                result = function()
            except StopIteration as error:
                # A future accepts any exception but StopIteration, which would end a generator somewhere.
                deliver(None, RuntimeError(f"the function raised {error!r}"))
            except BaseException as error:
                deliver(None, error)
            else:
                deliver(result, None)
