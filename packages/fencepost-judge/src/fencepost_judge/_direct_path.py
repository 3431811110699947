"""The direct path: a submission goes to the stream at once, without the outbox. For a rollback only.

OUTBOX_ENABLED=false, a name of the compatibility profile, chooses it. The submission is committed, then its
payload is written to Redis, then its entry. When Redis fails, all of it is taken back and the caller gets an
error. A crash in between leaves a submission that a worker's dispatcher delivers. The outbox has no such
window: leave OUTBOX_ENABLED alone.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import psycopg
from pydantic import Field

from fencepost.client import Fencepost
from fencepost.errors import FencepostError, IndeterminateCommit, Refusal, ServerUnavailable, SettingsError
from fencepost.jobs.settings import JobSettings
from fencepost.kernel import job as kernel_job
from fencepost.kernel.call import Json
from fencepost.layered_settings import From, LayeredSettings
from fencepost.logs import get_logger
from fencepost.redis_streams.connection import connect
from fencepost.redis_streams.errors import RedisError
from fencepost.redis_streams.stream import Dispatched, Streams
from fencepost.redis_streams.stream_names import NORMAL
from fencepost_judge import _judge_calls as judge_calls

if TYPE_CHECKING:
    from redis.asyncio import Redis

_log = get_logger(__name__)
ACTOR = "direct submission"
DATABASE_ERRORS = (FencepostError, psycopg.Error, OSError)


class DirectPathSettings(LayeredSettings):
    """Read only while the judge uses the names of earlier systems."""

    outbox_enabled: Annotated[bool, From("OUTBOX_ENABLED", "api.outbox.enabled")] = True
    payload_ttl_seconds: Annotated[
        int, Field(ge=1), From("JOB_PAYLOAD_TTL_SEC", "api.stream.payload_ttl_sec")
    ] = 86_400


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
    """Delivers one committed submission: its payload, then its entry.

    An error means that nothing is left of the submission, except for `IndeterminateCommit`: PostgreSQL failed
    too before the submission could be taken back, so it may be judged.
    """

    def __init__(self, fp: Fencepost, queue: str, job_settings: JobSettings, ttl_seconds: int) -> None:
        if fp.redis_url is None:
            raise SettingsError(
                "OUTBOX_ENABLED is false, and REDIS_URL is not set: the direct path writes to Redis. Set "
                "REDIS_URL, or leave OUTBOX_ENABLED alone."
            )
        self._fp = fp
        self._redis_url = fp.redis_url
        self._settings = job_settings
        self._stream = job_settings.stream(queue, NORMAL)
        self._ttl_seconds = ttl_seconds

    async def deliver(self, job_id: int, task: Json, *, scope: str, key: str | None) -> None:
        """Write the payload and the entry; `scope` and `key` are the submission's idempotency key."""
        async with self._connected() as redis:
            try:
                sent = await self._write(redis, job_id, task)
            except (RedisError, OSError) as error:
                with suppress(RedisError, OSError):
                    await redis.delete(payload_ref(job_id))
                await self._take_back(job_id, scope, key, error)
            else:
                await self._record(job_id, sent)

    async def forget(self, job_id: int) -> None:
        """Delete the payload of a judged submission. Best effort: it expires after JOB_PAYLOAD_TTL_SEC."""
        async with self._connected() as redis:
            with suppress(RedisError, OSError):
                await redis.delete(payload_ref(job_id))

    async def _write(self, redis: Redis, job_id: int, task: Json) -> Dispatched:
        await redis.set(payload_ref(job_id), envelope(task), ex=self._ttl_seconds)
        streams = Streams(redis, self._settings.stream_group)
        return await streams.dispatch(self._stream, NORMAL, [job_id], self._settings.stream_maxlen)

    async def _record(self, job_id: int, sent: Dispatched) -> None:
        """Records the entry, so that no dispatcher writes another. A faster dispatcher has written its own
        entry, and the claim refuses the second.

        The submission is committed, so it is judged whatever this call returns, and no error is raised: a
        caller that gets an error submits again. What a full stream did not take, a dispatcher writes when
        there is room.
        """
        if not sent.entry_ids:
            _log.warning("direct_submission_waits", job_id=job_id, reason="stream_full")
            return
        try:
            await self._fp.run(kernel_job.dispatched([job_id], sent.entry_ids, sent.incarnation))
        except DATABASE_ERRORS as error:
            _log.warning(
                "direct_submission_not_recorded", job_id=job_id, reason="database_error", error=str(error)
            )

    async def _take_back(self, job_id: int, scope: str, key: str | None, error: Exception) -> None:
        """Remove the submission, its job and its idempotency key. What a dispatcher was faster with stays."""
        _log.warning("direct_submission_failed", job_id=job_id, reason="redis_error", error=str(error))
        try:
            await self._fp.run(judge_calls.withdraw(job_id, ACTOR, scope, key))
        except Refusal:
            return
        except DATABASE_ERRORS as lost:
            raise IndeterminateCommit(
                f"Redis did not take submission {job_id} ({error}), and PostgreSQL did not remove it "
                f"({lost}): it may be judged. Ask for its status before you submit again."
            ) from lost
        raise ServerUnavailable(
            f"Redis did not take submission {job_id}, so it was removed: {error}. With OUTBOX_ENABLED=true, "
            "which is the default, a submission needs PostgreSQL alone."
        ) from error

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[Redis]:
        redis = connect(self._redis_url, reply_seconds=self._fp.settings.redis_reply_seconds)
        try:
            yield redis
        finally:
            await redis.aclose()
