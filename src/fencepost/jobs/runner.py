"""Running the handlers of claimed jobs, each as a task, and handing on what came of it, once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import copy_context
from functools import partial

from structlog.contextvars import bind_contextvars

from fencepost.jobs.execution import Active, Lost, Outcome, describe, execute, leave
from fencepost.jobs.handler import Handler
from fencepost.jobs.processes import HandlerProcesses
from fencepost.jobs.threads import HandlerThreads
from fencepost.logs import get_logger
from fencepost.tracing import is_traced, span

_log = get_logger(__name__)
# structlog's own variables, bound in a context that ends here: to find them by name for each job took longer
# than an empty handler.
_JOB_ID, _ATTEMPT, _TRACE_ID = (
    token.var
    for token in copy_context().run(bind_contextvars, job_id=None, attempt=None, trace_id=None).values()
)
AT_ONCE = 50
"""So many are begun before the loop looks around: five hundred at once would keep the next claim, and the
answers of PostgreSQL and Redis, waiting until the last of them has run."""


class Runner:
    """Starts, stops and waits for handlers."""

    def __init__(
        self,
        threads: HandlerThreads,
        processes: HandlerProcesses | None,
        on_outcome: Callable[[Active, Outcome], None],
    ) -> None:
        self._threads = threads
        self._processes = processes
        self._on_outcome = on_outcome
        self._unbegun: deque[tuple[Active, Handler[...]]] = deque()

    @property
    def is_starting(self) -> bool:
        """Whether somebody was given to `start` who has not begun."""
        return bool(self._unbegun)

    def start(self, claimed: Iterable[tuple[Active, Handler[...]]]) -> None:
        """Begin them in a moment: whoever called us asks for more first, so that PostgreSQL works while they
        do."""
        if not self._unbegun:
            asyncio.get_running_loop().call_soon(self._start_some)
        self._unbegun.extend(claimed)

    def _start_some(self) -> None:
        loop = asyncio.get_running_loop()
        # Asked once for all of them: the question costs as much as an empty handler.
        run = self._run_traced if is_traced() else self._run
        for _ in range(min(AT_ONCE, len(self._unbegun))):
            active, handler = self._unbegun.popleft()
            active.task = loop.create_task(run(active, handler))
            if active.job.stopped:
                self.cancel(active)
        if self._unbegun:
            loop.call_soon(self._start_some)

    def cancel(self, active: Active) -> None:
        active.job.stop()
        if active.task is not None:
            # A task that is cancelled before it has begun runs none of its code.
            active.task.add_done_callback(partial(self._ended_unbegun, active))
            active.task.cancel()

    async def _run_traced(self, active: Active, handler: Handler[...]) -> None:
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

    async def _run(self, active: Active, handler: Handler[...]) -> Outcome:
        running = active.running
        # Not unbound: a task has a context of its own, which ends with it.
        _JOB_ID.set(running.job_id)
        _ATTEMPT.set(running.attempt)
        _TRACE_ID.set(_trace_id(active))
        try:
            outcome = await execute(active, handler, self._threads, self._processes)
        except BaseException as error:
            _log.error("execution_failed", job_id=running.job_id, error=describe(error))
            # Left to its lease: nobody knows what state this process is in.
            self._hand_on(active, Lost())
            raise
        self._hand_on(active, outcome)
        return outcome

    def _ended_unbegun(self, active: Active, _task: asyncio.Task[object]) -> None:
        if not active.outcome_known:
            self._hand_on(active, Lost() if active.lost else leave(active.running, "release"))

    def _hand_on(self, active: Active, outcome: Outcome) -> None:
        active.outcome_known = True
        self._on_outcome(active, outcome)


def _trace_id(active: Active) -> str:
    """Whoever submitted it without a trace: its tries belong together all the same."""
    running = active.running
    given = running.headers.get("trace_id") if running.headers else None
    return str(given) if given else f"{running.job_id:032x}"
