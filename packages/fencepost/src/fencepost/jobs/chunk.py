"""A chunk: many jobs of one kind, as a handler that takes them together sees them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Generic, TypeVar, overload

from fencepost._durations import Duration
from fencepost.crashpoints import crash_point
from fencepost.errors import REFUSALS, InvalidInput, Refusal
from fencepost.jobs._failure_text import error_text, stored_text, traceback_text
from fencepost.jobs.job import Job
from fencepost.jobs.retry_policy import Cancel, Snooze
from fencepost.kernel import job as kernel_job
from fencepost.kernel.call import Call, Json
from fencepost.transaction import SyncTransaction, Transaction

T = TypeVar("T")
Decide = Callable[[Job, Exception], kernel_job.Leave]
"""How a job leaves that ended with this exception, by its handler's policy."""


class ChunkMember(Generic[T]):
    """One job of a chunk. Without a decision about it, it is finished with the others."""

    __slots__ = ("_decide", "_done", "_left", "arguments", "decision", "job")

    def __init__(self, job: Job, arguments: T, decide: Decide) -> None:
        self.job = job
        self.arguments = arguments
        self._decide = decide
        self._left: kernel_job.Left | None = None
        self._done = False
        self.decision: kernel_job.Finish | kernel_job.Leave = kernel_job.Finish(job.id, job.attempt)

    @property
    def left(self) -> tuple[kernel_job.Leave, kernel_job.Left] | None:
        """How it left in the transaction of `finish`, if it was not finished there."""
        if self._left is None or not isinstance(self.decision, kernel_job.Leave):
            return None
        return self.decision, self._left

    def finish_as(self, result: Json = None, *, final_status: str = "ok") -> None:
        """Finish it with this result and final status."""
        self._set(kernel_job.Finish(self.job.id, self.job.attempt, final_status, result))

    def fail(self, error: Exception | str) -> None:
        """Its try has failed: it is tried again by the handler's policy, or dead."""
        self._set(self._decide(self.job, RuntimeError(error) if isinstance(error, str) else error))

    def bury(self, error: Exception | str) -> None:
        """It cannot succeed: it is dead."""
        text = stored_text(error) if isinstance(error, str) else error_text(error)
        traceback = None if isinstance(error, str) else traceback_text(error)
        self._set(kernel_job.Leave(self.job.id, self.job.attempt, "bury", text, 0.0, traceback))

    def snooze(self, duration: Duration) -> None:
        """Put it back for this long. The try is not charged."""
        self._set(self._decide(self.job, Snooze(duration)))

    def cancel(self, text: str = "") -> None:
        """End it as cancelled, with the reason."""
        self._set(self._decide(self.job, Cancel(text)))

    def _set(self, decision: kernel_job.Finish | kernel_job.Leave) -> None:
        if self._done:
            raise InvalidInput(f"Job {self.job.id} has ended: its chunk is committed.", field="chunk")
        self.decision = decision

    def settle(self, left: kernel_job.Left | None) -> None:
        """The transaction of `finish` has committed."""
        self._done, self._left = True, left
        if left is None:
            self.job.finished = True
        else:
            self.job.parked = True


class Chunk(Generic[T]):
    """The jobs that a chunk handler takes together. Every write through it is fenced by all their attempts.

    One transaction finishes them all, or none: a member that was lost or cancelled refuses the others too,
    because what the handler computed from all of them cannot be divided afterwards. The others come back
    without a charge.
    """

    def __init__(self, members: Sequence[ChunkMember[T]]) -> None:
        self._members = tuple(members)

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[ChunkMember[T]]:
        return iter(self._members)

    @overload
    def __getitem__(self, index: int) -> ChunkMember[T]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ChunkMember[T]]: ...
    def __getitem__(self, index: int | slice) -> ChunkMember[T] | Sequence[ChunkMember[T]]:
        return self._members[index]

    @property
    def queue(self) -> str:
        """The queue of its jobs."""
        return self._members[0].job.queue

    @property
    def kind(self) -> str:
        """The kind of its jobs."""
        return self._members[0].job.kind

    @property
    def stopped(self) -> bool:
        """Whether the handler should stop: a member was cancelled or lost, or the time is over."""
        return any(member.job.stopped for member in self._members)

    @asynccontextmanager
    async def finish(self) -> AsyncGenerator[Transaction]:
        """Fences every member, runs your writes, and settles all members as decided, in one commit."""
        crash_point("jobs.chunk.before_fence")
        async with self._members[0].job.database.transaction(first=self._fence()) as tx:
            crash_point("jobs.chunk.after_fence")
            yield tx
            finishing, leaving = self._settling()
            unfinished = await tx.run(finishing) if finishing else []
            _refuse(unfinished)
            left = await tx.run(leaving) if leaving else []
            _refuse(left)
            crash_point("jobs.chunk.before_commit")
        self._settle(left)
        crash_point("jobs.chunk.after_commit")

    @contextmanager
    def finish_sync(self) -> Generator[SyncTransaction]:
        """`finish` for handlers without an event loop."""
        crash_point("jobs.chunk_sync.before_fence")
        with self._members[0].job.sync_database().transaction(first=self._fence()) as tx:
            crash_point("jobs.chunk_sync.after_fence")
            yield tx
            finishing, leaving = self._settling()
            unfinished = tx.run(finishing) if finishing else []
            _refuse(unfinished)
            left = tx.run(leaving) if leaving else []
            _refuse(left)
            crash_point("jobs.chunk_sync.before_commit")
        self._settle(left)
        crash_point("jobs.chunk_sync.after_commit")

    @property
    def _owner(self) -> str:
        return self._members[0].job.owner

    def _fence(self) -> Call[None]:
        jobs = [(member.job.id, member.job.attempt) for member in self._members]
        return kernel_job.fence_all(jobs, self._owner)

    def _settling(
        self,
    ) -> tuple[Call[list[kernel_job.Unfinished]] | None, Call[list[kernel_job.Left]] | None]:
        decisions = [member.decision for member in self._members]
        finishes = [one for one in decisions if isinstance(one, kernel_job.Finish)]
        leaves = [one for one in decisions if isinstance(one, kernel_job.Leave)]
        return (
            kernel_job.finish_many(finishes, self._owner, leaving=leaves) if finishes else None,
            kernel_job.leave_many(leaves, self._owner) if leaves else None,
        )

    def _settle(self, left: Sequence[kernel_job.Left]) -> None:
        by_id = {one.job_id: one for one in left}
        for member in self._members:
            member.settle(by_id.get(member.job.id))


def _refuse(answers: Sequence[kernel_job.Unfinished] | Sequence[kernel_job.Left]) -> None:
    """Inside the transaction: one member that is refused refuses them all."""
    for answer in answers:
        if answer.refusal is not None:
            refused: type[Refusal] = REFUSALS[answer.refusal]
            raise refused(
                f"job {answer.job_id} of the chunk was refused: {answer.refusal}",
                noun="job",
                subject=str(answer.job_id),
                seen=answer.seen,
            )
