"""`fp.jobs`: submit jobs, wait for them, decide about them, and run them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fencepost._connections import Connections
from fencepost._durations import Duration, seconds_of
from fencepost._sync_form import Awaited, Form, Operations, operation
from fencepost.database import OpenClient, SyncDatabase
from fencepost.errors import Backpressure, InvalidInput
from fencepost.jobs._handler import Handlers
from fencepost.jobs._job_results import PolledJob, Polling, poll, wait_for_end, wait_for_result
from fencepost.jobs._metrics import JobMetrics
from fencepost.jobs._scheduler import Schedules
from fencepost.jobs.settings import JobSettings
from fencepost.kernel import _batch as kernel_batch
from fencepost.kernel import job as kernel_job
from fencepost.kernel import job_queries
from fencepost.kernel import queue as kernel_queue
from fencepost.kernel.call import Call, Json
from fencepost.kernel.job import Submission, Submitted
from fencepost.kernel.job_queries import FoundJob, JobOutcome, State
from fencepost.transaction import Transaction, in_transaction

if TYPE_CHECKING:
    from fencepost.jobs._suspects import OnlySuspects, SpareCommand
    from fencepost.jobs._worker import Worker


class JobOperations(Operations[Form]):
    """What is done with jobs from outside. A job is named by its id, or by what its submission answered."""

    def __init__(self, connections: Connections[Any]) -> None:
        self._connections = connections
        self.is_blocking = connections.is_blocking

    @operation
    async def submit(self, submission: Submission, *, within: Duration = 0) -> Submitted:
        """Submit one job in its own transaction. While its queue is full, wait at most `within`.

        await fp.jobs.submit(thumbnail.submission(image_id=7), within=5)

        `thumbnail.submit(tx, image_id=7)` submits it together with your rows.
        """
        polling = Polling(seconds_of("within", within))
        while True:
            try:
                return await self._connections.run(submission.call())
            except Backpressure:
                if polling.is_over:
                    raise
                await self._connections.pause(polling.wait_seconds())
                await self._connections.run(kernel_queue.count())

    @in_transaction
    def batch(
        self, jobs: Iterable[Submitted], *, then: Submitted | None = None, name: str | None = None
    ) -> Call[int]:
        """Make a batch of jobs, in the transaction that submitted them: `then` runs when all have ended.

        The batch does not wait for jobs that existed already (a unique key). Returns the batch's id.
        """
        if then is not None and not then.created:
            raise InvalidInput("The job that a batch calls must be a new one.", field="then")
        members = [job.job_id for job in jobs if job.created]
        return kernel_batch.make(members, callback_id=then.job_id if then else None, name=name)

    @operation
    async def get(self, job: Submitted | int) -> JobOutcome | None:
        """The job's state, and its result or error when it has ended; None if there is no such job."""
        return await self._connections.run(job_queries.look(_id_of(job)))

    @operation
    async def result(self, job: Submitted | int, *, within: Duration = 30) -> Json:
        """Wait until the job has ended and return its result.

        Raises JobFailed if it is dead, Cancelled, NotFound, and TimeoutError if it has not ended in time.
        """
        return await wait_for_result(self._connections, _id_of(job), seconds_of("within", within))

    @operation
    async def wait(self, job: Submitted | int, *, within: Duration = 30) -> JobOutcome:
        """Wait until the job has ended and return how, also when it is dead or cancelled.

        Raises NotFound, and TimeoutError if it has not ended in time.
        """
        return await wait_for_end(self._connections, _id_of(job), seconds_of("within", within))

    @operation
    async def poll(self, job: Submitted | int) -> PolledJob:
        """How the job stands, without waiting; from the standby, if STANDBY_DATABASE_URL names one.

        Raises NotFound. An outcome that is final never changes, however old the answer is.
        """
        return await poll(self._connections, _id_of(job))

    @operation
    async def search(
        self,
        *,
        tags: Sequence[str] = (),
        arguments: Mapping[str, Json] | None = None,
        state: State | None = None,
        queue: str | None = None,
        kind: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[FoundJob]:
        """The jobs that have all these tags and arguments, newest first; `before` an id for the next page.

        A handler declares the arguments by which its jobs are found: `search_by=("user_id",)`.
        """
        kernel_job.check_words("tags", tags)
        ids = await self._connections.run(
            job_queries.search_ids(
                tags=tags,
                arguments=arguments,
                state=state,
                queue=queue,
                kind=kind,
                before_id=before,
                limit=limit,
            )
        )
        return await self._connections.run(job_queries.found(ids))

    @operation
    async def reschedule(
        self,
        job: Submitted | int,
        *,
        run_at: datetime | None = None,
        delay: Duration | None = None,
        actor: str | None = None,
    ) -> datetime:
        """Give a waiting job another time; returns it. A time in the past means now.

        Refuses a job that runs or is dead, and the callback of an open batch (Mismatch); one that has ended
        (AlreadyFinished, Cancelled); and one that does not exist (NotFound).
        """
        if (run_at is None) == (delay is None):
            raise InvalidInput("Give run_at or delay: when the job shall run.", field="run_at")
        if run_at is not None and run_at.tzinfo is None:
            raise InvalidInput("run_at has no time zone, so it could be any hour.", field="run_at")
        seconds = None if delay is None else seconds_of("delay", delay)
        return await self._connections.run(
            kernel_job.reschedule(_id_of(job), self._actor(actor), run_at=run_at, delay_seconds=seconds)
        )

    @operation
    async def cancel(self, job: Submitted | int, *, actor: str | None = None) -> str:
        """Cancel a job. Answers `cancelled`, or `requested` for one that runs: its worker stops it."""
        return await self._connections.run(kernel_job.cancel(_id_of(job), self._actor(actor)))

    @operation
    async def retry(self, job: Submitted | int, *, actor: str | None = None) -> None:
        """Run a job now: a waiting one at once, a dead or cancelled one from the beginning."""
        job_id, actor = _id_of(job), self._actor(actor)
        seen = await self._connections.run(job_queries.look(job_id))
        match None if seen is None else seen.state:
            case ("dead" | "cancelled") as state:
                await self._connections.run(kernel_job.replay(job_id, actor, expected=state))
            case _:
                await self._connections.run(job_queries.hurry(job_id, actor))

    @operation
    async def discard(self, job: Submitted | int, *, actor: str | None = None) -> None:
        """Delete a dead job that will not be retried."""
        await self._connections.run(kernel_job.discard(_id_of(job), self._actor(actor)))

    @operation
    async def pause(self, queue: str, *, actor: str | None = None) -> None:
        """Start nothing of a queue, on any worker. What runs goes on."""
        await self._connections.run(kernel_queue.pause(queue, self._actor(actor)))

    @operation
    async def resume(self, queue: str, *, actor: str | None = None) -> None:
        """Let workers claim jobs of a paused queue again."""
        await self._connections.run(kernel_queue.resume(queue, self._actor(actor)))

    @operation
    async def bound(self, queue: str, waiting_max: int | None, *, actor: str | None = None) -> None:
        """Refuse submissions past so many waiting jobs, with Backpressure; None removes the bound."""
        await self._connections.run(kernel_queue.bound(queue, waiting_max, self._actor(actor)))

    def _actor(self, actor: str | None) -> str:
        """The name under which a decision is recorded: this client, unless a person is named."""
        return actor or self._connections.owner


class Jobs(JobOperations[Awaited]):
    """`JobOperations`, and the workers of this process."""

    def __init__(
        self,
        connections: Connections[Transaction],
        fp: OpenClient,
        handlers: Handlers,
        schedules: Schedules,
        settings: JobSettings,
        redis_url: str | None,
        sync_database: Callable[[], SyncDatabase],
        beside: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        super().__init__(connections)
        self._fp = fp
        self._handlers = handlers
        self._schedules = schedules
        self._settings = settings
        self._redis_url = redis_url
        self._sync_database = sync_database
        self._beside = beside

    def worker(
        self,
        settings: JobSettings | None = None,
        *,
        queues: Sequence[str] | None = None,
        offers: Sequence[str] = (),
        suspects: OnlySuspects | SpareCommand | None = None,
        name: str = "worker",
    ) -> Worker:
        """A worker for every declared handler; `run` it while the client is open.

        `offers` are its abilities: a job whose header `needs` lists abilities runs only on a worker that
        offers all of them. `suspects` is for `fencepost worker`, which runs suspects in processes that it
        starts. `name` tells workers on one host apart (`fencepost workers disable NAME@HOST`); JOBS_WORKER_ID
        has precedence.
        """
        # A process that only submits need not load Redis and the code that reads its streams.
        from fencepost.jobs._worker import Worker  # noqa: PLC0415

        handlers = self._handlers if queues is None else self._handlers.of(queues)
        fitting = _with_heartbeat_for(handlers, settings or self._settings)
        return Worker(
            self._fp,
            handlers,
            self._schedules,
            fitting,
            self._metrics,
            redis_url=self._redis_url,
            sync_database=self._sync_database,
            beside=self._beside,
            offers=offers,
            suspects=suspects,
            name=name,
        )

    @cached_property
    def _metrics(self) -> JobMetrics:
        """Made once: a registry refuses a second metric of the same name."""
        return JobMetrics.on(self._fp.metrics)


def _id_of(job: Submitted | int) -> int:
    return job if isinstance(job, int) else job.job_id


def _with_heartbeat_for(handlers: Handlers, settings: JobSettings) -> JobSettings:
    """Three heartbeats within the shortest lease, so that one lost heartbeat loses no job."""
    shortest = min((handler.declared.lease_seconds for handler in handlers), default=settings.lease_seconds)
    beat_seconds = min(settings.heartbeat_seconds, shortest / 3)
    return settings.model_copy(update={"heartbeat_seconds": beat_seconds})
