"""A million jobs wait, and Redis is wiped: nothing is lost, and nothing floods."""

import time
from collections.abc import AsyncIterator

import pytest

from fencepost.client import Fencepost
from fencepost.jobs._dispatcher import Dispatcher
from fencepost.jobs._metrics import JobMetrics
from fencepost.jobs._redis_health import RedisHealth
from fencepost.jobs._stream_reconciler import BATCH, BATCHES_PER_TICK, StreamReconciler
from fencepost.jobs.settings import JobSettings
from fencepost.kernel import job as kernel_job
from tests.acceptance.jobs.env import STREAM, JobsEnv

WAITING = 1_000_000
ROOM = 100_000
STATES = """
    select count(*), count(*) filter (where dispatched_at is not null), count(distinct incarnation)
    from fencepost.job_waiting
"""


@pytest.fixture
async def fp(env: JobsEnv) -> AsyncIterator[Fencepost]:
    async with Fencepost(env.database.url, redis_url=env.redis_url) as fp:
        yield fp


@pytest.mark.full
@pytest.mark.timeout(1200)
async def test_a_wipe_with_a_million_waiting_is_swept_in_pieces(env: JobsEnv, fp: Fencepost) -> None:
    for _ in range(WAITING // 10_000):
        await fp.run(kernel_job.submit_many("default", "own", [{"key": "x"}] * 10_000))
    settings = JobSettings(stream_maxlen=2 * ROOM, poll_seconds=0.1)
    metrics = JobMetrics.on(fp.metrics)
    redis = RedisHealth(env.redis_url, metrics, settings, reply_seconds=5)
    dispatcher = Dispatcher("default", fp, redis, metrics, settings)
    reconciler = StreamReconciler(["default"], fp, redis, metrics, settings)
    await redis.probe()
    try:
        await _fill(env, dispatcher)
        with env.redis() as redis:
            redis.flushall()
        longest = 0.0
        ticks = 0
        while env.rows(STATES)[0][1]:
            before = env.rows(STATES)[0][1]
            began = time.monotonic()
            await reconciler.tick()
            longest = max(longest, time.monotonic() - began)
            ticks += 1
            # Throttled: one tick drives a bounded number again, and the truth loses none.
            assert before - env.rows(STATES)[0][1] <= BATCH * BATCHES_PER_TICK
            assert env.rows(STATES)[0][0] == WAITING
        await _fill(env, dispatcher)
        assert env.rows(STATES) == [(WAITING, ROOM, 1)]
        assert ticks == ROOM // (BATCH * BATCHES_PER_TICK)
        assert longest < 30
    finally:
        await redis.close()


async def _fill(env: JobsEnv, dispatcher: Dispatcher) -> None:
    """Drive until the stream has no room."""
    while _length(env) < ROOM:
        await dispatcher.tick()
    await dispatcher.tick()
    assert _length(env) == ROOM


def _length(env: JobsEnv) -> int:
    with env.redis() as redis:
        return int(redis.xlen(STREAM)) if redis.exists(STREAM) else 0
