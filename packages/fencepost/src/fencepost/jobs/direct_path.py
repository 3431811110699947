"""The direct path: writes to the stream at once, without the outbox. For a rollback only.

It writes twice, to PostgreSQL and to Redis, and a crash in between leaves a job that only a worker's
dispatcher delivers. The outbox has no such window: leave OUTBOX_ENABLED alone.
"""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg

from fencepost.errors import FencepostError, IndeterminateCommit, Refusal, ServerUnavailable
from fencepost.jobs.job import AsyncDatabase
from fencepost.jobs.settings import JobSettings
from fencepost.jobs.submission import Submission
from fencepost.kernel import job as kernel_job
from fencepost.kernel.call import Json
from fencepost.logs import get_logger
from fencepost.redis_streams.errors import RedisError
from fencepost.redis_streams.stream import Dispatched, Streams
from fencepost.redis_streams.stream_names import stream_of

if TYPE_CHECKING:
    from redis.asyncio import Redis

_log = get_logger(__name__)
ACTOR = "direct submission"
DATABASE_ERRORS = (FencepostError, psycopg.Error, OSError)


def envelope(payload: Json) -> str:
    """The payload in the format that stream readers expect."""
    document = json.dumps(payload, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return json.dumps(
        {
            "schema_version": 1,
            "task_data_b64": base64.b64encode(document.encode()).decode(),
            "encoding": "base64",
            "content_type": "application/json",
        }
    )


def payload_ref(job_id: int) -> str:
    return f"task:payload:{job_id}"


class DirectPath:
    """Submits one job: its row, its payload, its entry. An error means that the job will not run, except for
    `IndeterminateCommit`: PostgreSQL failed before the job could be withdrawn, so it may run.
    """

    def __init__(self, database: AsyncDatabase, redis: Redis, settings: JobSettings) -> None:
        self._database = database
        self._redis = redis
        self._streams = Streams(redis, settings.stream_group)
        self._settings = settings

    async def submit(self, submission: Submission) -> kernel_job.Submitted:
        submitted = await self._database.run(submission.call())
        if submitted.created and submission.run_at is None and submission.delay_seconds is None:
            try:
                sent = await self._drive(submission, submitted.job_id)
            except (RedisError, OSError) as error:
                await self._give_up(submission, submitted.job_id, error)
            else:
                await self._record(submission, submitted.job_id, sent)
        return submitted

    async def _drive(self, submission: Submission, job_id: int) -> Dispatched:
        await self._redis.set(
            payload_ref(job_id), envelope(submission.payload), ex=self._settings.payload_ttl_seconds
        )
        stream = stream_of(self._settings.stream_key, submission.queue, submission.priority)
        return await self._streams.dispatch(
            stream, submission.priority, [job_id], self._settings.stream_maxlen
        )

    async def _record(self, submission: Submission, job_id: int, sent: Dispatched) -> None:
        """Records the entry, so that no dispatcher writes another. A faster dispatcher has written its own
        entry, and the claim refuses the second.

        The job is committed, so it runs whatever this call returns, and no error is raised: a caller that
        gets an error submits again. What a full stream did not take, a dispatcher writes when there is room.
        """
        if not sent.entry_ids:
            self._warn("direct_submission_waits", submission, job_id, reason="stream_full")
            return
        try:
            await self._database.run(kernel_job.dispatched([job_id], sent.entry_ids, sent.incarnation))
        except DATABASE_ERRORS as error:
            self._warn(
                "direct_submission_not_recorded",
                submission,
                job_id,
                reason="database_error",
                error=str(error),
            )

    def _warn(self, event: str, submission: Submission, job_id: int, **why: str) -> None:
        _log.warning(event, job_id=job_id, trace_id=submission.headers.get("trace_id"), **why)

    async def _give_up(self, submission: Submission, job_id: int, error: Exception) -> None:
        """Withdraw the payload and the job. A job that was already dispatched counts as submitted."""
        with suppress(RedisError, OSError):
            await self._redis.delete(payload_ref(job_id))
        self._warn("direct_submission_failed", submission, job_id, reason="redis_error", error=str(error))
        try:
            await self._database.run(kernel_job.cancel(job_id, ACTOR, expected="pending"))
        except Refusal:
            return
        except DATABASE_ERRORS as lost:
            raise IndeterminateCommit(
                f"Redis did not take job {job_id} ({error}), and PostgreSQL did not cancel it ({lost}): "
                "it may run. Ask for the job before you submit it again."
            ) from lost
        raise ServerUnavailable(
            f"Redis did not take job {job_id}, so it was cancelled: {error}. With OUTBOX_ENABLED=true, which "
            "is the default, a submission needs PostgreSQL alone."
        ) from error
