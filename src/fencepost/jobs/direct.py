"""The direct path: into the stream at once, without the outbox. For a rollback only.

It writes twice, to PostgreSQL and to Redis, and a crash in between leaves a job that only the dispatcher of
some worker brings on its way. The outbox has no such window: leave OUTBOX_ENABLED alone.
"""

from __future__ import annotations

import base64
import json
from contextlib import suppress

from redis.asyncio import Redis
from redis.exceptions import RedisError

from fencepost.drive.lanes import stream_of
from fencepost.drive.stream import Streams
from fencepost.errors import Refusal, ServerUnavailable
from fencepost.jobs.job import Database
from fencepost.jobs.settings import JobSettings
from fencepost.jobs.submission import Submission
from fencepost.kernel import job as kernel_job
from fencepost.kernel.call import Json
from fencepost.logs import get_logger

_log = get_logger(__name__)
ACTOR = "direct submission"


def envelope(payload: Json) -> str:
    """The payload as readers of the stream know it."""
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
    """Submits one job: its row, its payload, its entry. An error means that it will not run."""

    def __init__(self, database: Database, redis: Redis, settings: JobSettings) -> None:
        self._database = database
        self._redis = redis
        self._streams = Streams(redis, settings.stream_group)
        self._settings = settings

    async def submit(self, submission: Submission) -> kernel_job.Submitted:
        submitted = await self._database.run(submission.call())
        if submitted.created and submission.run_at is None and submission.delay_seconds is None:
            try:
                await self._drive(submission, submitted.job_id)
            except (RedisError, OSError) as error:
                await self._give_up(submission, submitted.job_id, error)
        return submitted

    async def _drive(self, submission: Submission, job_id: int) -> None:
        await self._redis.set(
            payload_ref(job_id), envelope(submission.payload), ex=self._settings.payload_ttl_seconds
        )
        stream = stream_of(self._settings.stream_key, submission.queue, submission.lane)
        sent = await self._streams.dispatch(stream, submission.lane, [job_id], self._settings.stream_maxlen)
        # So that no dispatcher drives it again. One that was faster has written an entry of its own, and the
        # claim refuses the second.
        await self._database.run(kernel_job.dispatched([job_id], sent.entry_ids, sent.incarnation))

    async def _give_up(self, submission: Submission, job_id: int, error: Exception) -> None:
        """Take the payload and the job back. A job that somebody drives already has been submitted."""
        with suppress(RedisError, OSError):
            await self._redis.delete(payload_ref(job_id))
        _log.warning(
            "direct_submission_failed",
            job_id=job_id,
            trace_id=submission.headers.get("trace_id"),
            reason="redis_error",
            error=str(error),
        )
        try:
            await self._database.run(kernel_job.cancel(job_id, ACTOR, expected="pending"))
        except Refusal:
            return
        raise ServerUnavailable(
            f"Redis did not take job {job_id}, so it was cancelled: {error}. With OUTBOX_ENABLED=true, which "
            "is the default, a submission needs PostgreSQL alone."
        ) from error
