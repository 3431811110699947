"""The job as its handler sees it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime

from fencepost._connection_line import ConnectionLine
from fencepost.crashpoints import crash_point
from fencepost.database import AsyncDatabase, SyncDatabase
from fencepost.errors import InvalidInput
from fencepost.jobs._group_commit import GroupCommit, Member, Statement, check_query
from fencepost.jobs._job_fields import trace_id_of
from fencepost.kernel import _batch as kernel_batch
from fencepost.kernel import job as kernel_job
from fencepost.kernel._batch import BatchResult
from fencepost.kernel._workflow import Record
from fencepost.kernel.call import Call, Json
from fencepost.transaction import SyncTransaction, Transaction


class Job:
    """One attempt at a job. Every write through it is fenced by the attempt."""

    __slots__ = (
        "_database",
        "_groups",
        "_instead",
        "_running",
        "_stopped",
        "_sync_database",
        "finished",
        "owner",
        "parked",
    )

    def __init__(
        self,
        running: kernel_job.Running,
        owner: str,
        database: AsyncDatabase,
        sync_database: Callable[[], SyncDatabase],
        groups: GroupCommit | None = None,
    ) -> None:
        """Without `groups`, `finish_with` has a transaction of its own."""
        self._running = running
        self._groups = groups
        self._database = database
        self._sync_database = sync_database
        # A plain flag: nothing waits for it, and an event costs more than the rest of this object.
        self._stopped = False
        self._instead: tuple[Json, str] | None = None
        self.owner = owner
        self.finished = False
        self.parked = False
        """Whether it was given back in a transaction of its own: a workflow that sleeps or waits."""

    @property
    def running(self) -> kernel_job.Running:
        """The claim that this attempt is."""
        return self._running

    @property
    def database(self) -> AsyncDatabase:
        """The client of its worker."""
        return self._database

    @property
    def sync_database(self) -> Callable[[], SyncDatabase]:
        """Opens the client of its worker for code without an event loop."""
        return self._sync_database

    @property
    def id(self) -> int:
        """The job's id; `fencepost explain job:ID` tells its history."""
        return self._running.job_id

    @property
    def attempt(self) -> int:
        """The fencing token: unique to this attempt at the job."""
        return self._running.attempt

    @property
    def tries(self) -> int:
        """The number of tries, this one included."""
        return self._running.tries

    @property
    def queue(self) -> str:
        """The queue that it was submitted to."""
        return self._running.queue

    @property
    def kind(self) -> str:
        """The kind, which names its handler."""
        return self._running.kind

    @property
    def headers(self) -> Mapping[str, Json]:
        """What the submission carried beside the arguments."""
        return self._running.headers

    @property
    def submitted_at(self) -> datetime:
        """When it was submitted, by the database's clock."""
        return self._running.submitted_at

    @property
    def trace_id(self) -> str:
        """The trace that it was submitted in: the same for all its tries."""
        return trace_id_of(self._running)

    @property
    def stopped(self) -> bool:
        """Whether the handler should stop: the job was cancelled, lost its lease or timed out. For sync
        handlers."""
        return self._stopped

    def stop(self) -> None:
        """Ask the handler to end: `stopped` is true from now on."""
        self._stopped = True

    @property
    def line(self) -> ConnectionLine | None:
        """Where a handler's own transaction waits for its turn: handlers outnumber connections by far."""
        return None if self._groups is None else self._groups.line

    def finish_as(self, result: Json = None, *, final_status: str = "ok") -> None:
        """Inside the block of `finish`: replaces its result and final status with these."""
        self._instead = (result, final_status)

    @asynccontextmanager
    async def finish(self, result: Json = None, *, final_status: str = "ok") -> AsyncGenerator[Transaction]:
        """Fences the attempt, runs your writes and finishes the job in one commit. A stale attempt is refused
        before the block runs."""
        self._instead = None
        crash_point("jobs.finish.before_fence")
        async with self._database.transaction_in(
            self.line, first=self._fence(), last=lambda: self._finish(result, final_status)
        ) as tx:
            crash_point("jobs.finish.after_fence")
            yield tx
            crash_point("jobs.finish.before_commit")
        self.finished = True
        crash_point("jobs.finish.after_commit")

    async def finish_with(
        self, *statements: Statement, result: Json = None, final_status: str = "ok"
    ) -> None:
        """`finish` for writes that are known before it: fences the attempt, runs the statements and finishes
        the job in one commit, which jobs share that finish at the same time. A statement is a query and its
        parameters. It fails as it would alone, and takes no other job with it."""
        done = kernel_job.Finish(self.id, self.attempt, final_status, result)
        if await self.commit_with(done, statements, self._note_finished):
            return
        async with self.finish(result, final_status=final_status) as tx:
            for query, parameters in statements:
                await tx.execute(query, parameters)

    async def commit_with(
        self,
        done: kernel_job.Finish | Record,
        statements: Sequence[Statement],
        on_commit: Callable[[], None] = lambda: None,
    ) -> bool:
        """Run the statements and finish the job, or record its step, with a commit that others share. False
        when nothing was written: it needs a transaction of its own."""
        for query, _ in statements:
            check_query(query)
        return self._groups is not None and await self._groups.finish(Member(done, statements, on_commit))

    def _note_finished(self) -> None:
        self.finished = True

    @contextmanager
    def finish_sync(self, result: Json = None, *, final_status: str = "ok") -> Generator[SyncTransaction]:
        """`finish` for handlers without an event loop.

        Written out: its crash points have names of their own, and a layer for both forms would cost every job
        more than it saves here.
        """
        self._instead = None
        crash_point("jobs.finish_sync.before_fence")
        with self._sync_database().transaction(
            first=self._fence(), last=lambda: self._finish(result, final_status)
        ) as tx:
            crash_point("jobs.finish_sync.after_fence")
            yield tx
            crash_point("jobs.finish_sync.before_commit")
        self.finished = True
        crash_point("jobs.finish_sync.after_commit")

    async def progress(self, value: Json) -> None:
        """Publish the job's progress to operators."""
        await self._database.run(self._progress(value))

    def progress_sync(self, value: Json) -> None:
        """Report progress from a handler that is no coroutine."""
        self._sync_database().run(self._progress(value))

    async def batch_results(self) -> list[BatchResult]:
        """In the callback of a batch: how each of its jobs ended, with result or error, in order of id."""
        found: list[BatchResult] = []
        while page := await self._database.run(self._batch_page(found)):
            found += page
        return found

    def batch_results_sync(self) -> list[BatchResult]:
        """`batch_results` for handlers without an event loop."""
        found: list[BatchResult] = []
        while page := self._sync_database().run(self._batch_page(found)):
            found += page
        return found

    def _batch_page(self, found: list[BatchResult]) -> Call[list[BatchResult]]:
        batch = self.headers.get("batch")
        if batch is None:
            raise InvalidInput(
                f"job {self.id} is no callback of a batch: fp.jobs.batch(tx, jobs, then=job) makes one.",
                field="batch",
            )
        return kernel_batch.results(batch["batch_id"], after=found[-1].job_id if found else None)

    def _fence(self) -> Call[None]:
        return kernel_job.fence(self.id, self.attempt, self.owner)

    def _finish(self, result: Json, final_status: str) -> Call[None]:
        result, final_status = self._instead or (result, final_status)
        return kernel_job.finish(kernel_job.Finish(self.id, self.attempt, final_status, result), self.owner)

    def _progress(self, value: Json) -> Call[None]:
        return kernel_job.progress(self.id, self.attempt, self.owner, value)
