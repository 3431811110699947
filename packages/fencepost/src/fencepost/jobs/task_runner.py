"""Runs the handlers of claimed jobs in tasks, and passes each outcome on once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import copy_context

from structlog.contextvars import bind_contextvars

from fencepost.jobs.executor import HeldJob, Lost, Outcome, describe, execute, leave
from fencepost.jobs.handler import Handler
from fencepost.jobs.process_pool import ProcessPool
from fencepost.jobs.thread_pool import ThreadPool
from fencepost.logs import get_logger
from fencepost.tracing import is_traced, span

_log = get_logger(__name__)
# structlog's own variables, bound in a context that ends here: finding them by name for each job took longer
# than an empty handler.
_JOB_ID, _ATTEMPT, _TRACE_ID = (
    token.var
    for token in copy_context().run(bind_contextvars, job_id=None, attempt=None, trace_id=None).values()
)
AT_ONCE = 50
"""How many handlers start before the loop handles other events: five hundred at once would delay the next
claim, and the answers of PostgreSQL and Redis, until the last of them has run."""


class TaskRunner:
    """Starts, stops and waits for handlers."""

    def __init__(
        self,
        threads: ThreadPool,
        processes: ProcessPool | None,
        on_outcome: Callable[[HeldJob, Outcome], None],
    ) -> None:
        self._threads = threads
        self._processes = processes
        self._on_outcome = on_outcome
        self._unbegun: deque[tuple[HeldJob, Handler[...]]] = deque()
        self._attendant: asyncio.Task[None] | None = None
        """Tasks that may run another handler."""
        self._is_called = False

    @property
    def is_starting(self) -> bool:
        """Whether a job that was given to `start` has not begun."""
        return bool(self._unbegun)

    def start(self, claimed: Iterable[tuple[HeldJob, Handler[...]]]) -> None:
        """Begin them soon: the caller first sends its next request, so that PostgreSQL works while the
        handlers run."""
        self._unbegun.extend(claimed)
        # A running task's handler has waited, or this code would not run: the task takes no other.
        self._attendant = None
        self._start_soon()

    def _start_soon(self) -> None:
        if self._unbegun and not self._is_called:
            self._is_called = True
            asyncio.get_running_loop().call_soon(self._start_some)

    def _start_some(self) -> None:
        """One task for many handlers while they end at once; one task for each when the last has waited."""
        self._is_called = False
        loop = asyncio.get_running_loop()
        waits = self._attendant is not None and not self._attendant.done()
        places = min(AT_ONCE if waits else 1, len(self._unbegun))
        for _ in range(places):
            self._attendant = loop.create_task(self._attend())
        if len(self._unbegun) > places:
            # After the first step of those, and before any waiting task continues.
            self._start_soon()

    def cancel(self, active: HeldJob) -> None:
        active.job.stop()
        # Its task may run another job by now.
        if active.task is not None and not active.outcome_known:
            active.task.cancel()

    async def _attend(self) -> None:
        """Run one handler after another as long as none has waited.

        A task costs more than an empty handler. A task that has waited is not reused, and neither is one that
        was cancelled or whose context was changed: handlers see nothing of each other.
        """
        attendant = asyncio.current_task()
        assert attendant is not None
        # Checked once for all of them: the check costs as much as an empty handler.
        run = self._run_traced if is_traced() else self._run
        for _ in range(AT_ONCE):
            if not self._unbegun:
                return
            active, handler = self._unbegun.popleft()
            if active.job.stopped:
                self._hand_on(active, Lost() if active.lost else leave(active.running, "release"))
                continue
            active.task = attendant
            _name(active)
            before = copy_context()
            await run(active, handler)
            if self._attendant is not attendant or attendant.cancelling() or copy_context() != before:
                return

    async def _run_traced(self, active: HeldJob, handler: Handler[...]) -> None:
        running = active.running
        carried = {"trace_id": _trace_id(active), **running.headers}
        about: dict[str, str | int] = {
            "job_id": running.job_id,
            "attempt": running.attempt,
            "queue": running.queue,
        }
        with span(f"job {running.kind}", "consumer", carried, **about) as note:
            outcome = await self._run(active, handler)
            note(outcome=type(outcome).__name__.lower())

    async def _run(self, active: HeldJob, handler: Handler[...]) -> Outcome:
        try:
            outcome = await execute(active, handler, self._threads, self._processes)
        except BaseException as error:
            _log.error("execution_failed", job_id=active.running.job_id, error=describe(error))
            # Left to its lease: the state of this process is unknown.
            self._hand_on(active, Lost())
            raise
        self._hand_on(active, outcome)
        return outcome

    def _hand_on(self, active: HeldJob, outcome: Outcome) -> None:
        active.outcome_known = True
        self._on_outcome(active, outcome)


def _name(active: HeldJob) -> None:
    """Binds the job's names for the handler's logs. They are not unbound: the next job binds its own, and a
    context ends with its task."""
    _JOB_ID.set(active.running.job_id)
    _ATTEMPT.set(active.running.attempt)
    _TRACE_ID.set(_trace_id(active))


def _trace_id(active: HeldJob) -> str:
    """The trace id of a job: one that was submitted without a trace still has one id for all its tries."""
    running = active.running
    given = running.headers.get("trace_id") if running.headers else None
    return str(given) if given else f"{running.job_id:032x}"
