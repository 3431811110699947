"""Runs due jobs in the calling process, without a worker: for tests of an application.

The same claims, the same handlers, the same finishing writes as in a worker, one job at a time. What a worker
has beside them is left out: heartbeats, Redis, schedules, the recovery of lost jobs, other processes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from fencepost._connections import Connections
from fencepost.database import AsyncDatabase, SyncDatabase
from fencepost.errors import InvalidInput
from fencepost.jobs._executor import Committed, HeldJob, Outcome, Refused, ThreadPool, execute
from fencepost.jobs._handler import Handler, Handlers
from fencepost.jobs.job import Job
from fencepost.kernel import job as kernel_job
from fencepost.kernel import job_queries

LEASE_SECONDS = 3600.0
"""Nothing renews it: long enough for a person at a debugger."""
_is_running: ContextVar[bool] = ContextVar("fencepost_inline_runner", default=False)


class RanJob(NamedTuple):
    """One try of a job: the state that it left the job in. `pending` means that it runs again later."""

    job_id: int
    kind: str
    state: str
    error: str | None


@dataclass(slots=True)
class Drained:
    """The tries that were run, in their order."""

    jobs: list[RanJob] = field(default_factory=list[RanJob])

    def count(self, state: str) -> int:
        return sum(job.state == state for job in self.jobs)

    @property
    def finished(self) -> int:
        return self.count("finished")

    @property
    def pending(self) -> int:
        """Tries after which the job waits again: it failed with tries left, or snoozed."""
        return self.count("pending")

    @property
    def dead(self) -> int:
        return self.count("dead")

    @property
    def cancelled(self) -> int:
        return self.count("cancelled")


class _Inline(ThreadPool):
    """Calls functions where they are called, for code without an event loop."""

    async def call(self, function: Callable[[], Any]) -> Any:
        return function()


class InlineRunner:
    """Runs the due jobs of declared handlers."""

    def __init__(
        self,
        connections: Connections[Any],
        handlers: Handlers,
        database: AsyncDatabase,
        sync_database: Callable[[], SyncDatabase],
    ) -> None:
        self._connections = connections
        self._handlers = handlers
        self._database = database
        self._sync_database = sync_database
        self._owner = f"{connections.owner}/inline"

    @property
    def is_running(self) -> bool:
        """Whether this is called from inside a job that runs inline, or from the runner itself."""
        return _is_running.get()

    def nothing(self) -> Drained:
        return Drained()

    async def run_due(
        self, ran: Drained | None = None, *, queues: Collection[str] | None, later: bool = False, limit: int
    ) -> Drained:
        """Run jobs until none is due; with `later` also those whose time has not come. Adds to `ran`."""
        ran = Drained() if ran is None else ran
        chosen = self._handlers if queues is None else self._handlers.of(queues)
        threads = _Inline(lambda: None) if self._connections.is_blocking else ThreadPool(lambda: None)
        token = _is_running.set(True)
        try:
            for _ in range(limit):
                claimed = await self._claim(chosen, later=later)
                if claimed is None:
                    return ran
                ran.jobs.append(await self._run(claimed, threads))
            if await self._claim(chosen, later=later, look=True) is None:
                return ran
            raise InvalidInput(
                f"{limit} tries have run and jobs are still due. A job that submits itself, or snoozes for "
                "ever, never ends; raise limit if that many are right.",
                field="limit",
            )
        finally:
            _is_running.reset(token)
            threads.close()

    async def _claim(
        self, handlers: Handlers, *, later: bool, look: bool = False
    ) -> kernel_job.Running | None:
        """The most urgent due job of the first queue that has one; with `look` it is put back."""
        for queue in handlers.queues:
            if later:
                await self._hurry(queue)
            for priority in range(kernel_job.PRIORITY_COUNT):
                answers = await self._connections.run(
                    kernel_job.claim_next(
                        queue, priority, self._owner, 1, lease_seconds=LEASE_SECONDS, dispatched=True
                    )
                )
                for answer in answers:
                    if answer.running is not None:
                        if look:
                            await self._release(answer.running)
                        return answer.running
        return None

    async def _hurry(self, queue: str) -> None:
        waiting = await self._connections.run(job_queries.page(state="pending", queue=queue, limit=1000))
        for job_id in await self._connections.run(job_queries.waiting_for_time(waiting)):
            await self._connections.run(job_queries.hurry(job_id, self._owner))

    async def _run(self, running: kernel_job.Running, threads: ThreadPool) -> RanJob:
        handler = self._handlers.get(running.kind)
        if handler is None:
            await self._release(running)
            raise InvalidInput(
                f"job {running.job_id} has the kind {running.kind}, for which no handler is declared.",
                field="kind",
            )
        job = Job(running, self._owner, self._database, self._sync_database)
        held = HeldJob(running, None, job, deadline=float("inf"))
        outcome = await execute(held, await self._inline(handler, running), threads)
        return RanJob(running.job_id, running.kind, *await self._settle(running, outcome))

    async def _inline(self, handler: Handler[...], running: kernel_job.Running) -> Handler[...]:
        """The handler as it can run here: in a thread instead of a process; without an event loop also
        without its time limit, which needs one."""
        changes: dict[str, Any] = {"run_in": "thread"} if handler.place == "process" else {}
        if self._connections.is_blocking:
            if handler.is_async:
                await self._release(running)
                raise InvalidInput(
                    f"{handler.kind} is a coroutine function: run it with `await fp.testing.drain()`.",
                    field="handler",
                )
            changes["timeout_seconds"] = None
        return replace(handler, declared=replace(handler.declared, **changes)) if changes else handler

    async def _settle(self, running: kernel_job.Running, outcome: Outcome) -> tuple[str, str | None]:
        """Writes the outcome; returns the state of the job, and its error."""
        match outcome:
            case kernel_job.Finish():
                for unfinished in await self._connections.run(kernel_job.finish_many([outcome], self._owner)):
                    return unfinished.refusal, None
            case kernel_job.Leave():
                [left] = await self._connections.run(kernel_job.leave_many([outcome], self._owner))
                return left.state or str(left.refusal), outcome.error
            case Refused(reason):
                return reason, None
            case Committed(parked=True):
                return "pending", None
            case _:
                pass
        return "finished", None

    async def _release(self, running: kernel_job.Running) -> None:
        await self._connections.run(kernel_job.release(running.job_id, running.attempt, self._owner))
