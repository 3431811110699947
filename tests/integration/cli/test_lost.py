"""`fencepost lost` lists what clients and Redis still know of work that a database has lost."""

import asyncio
import json
from typing import Any

import pytest

from fencepost import Fencepost, Job, Refusal
from fencepost.cli._app import run
from fencepost.embedded import Database
from fencepost.kernel._recover import recover
from fencepost.redis_streams.connection import connect
from fencepost.redis_streams.response_cache import Announced, CacheKey, ResponseCache
from fencepost.redis_streams.stream import Streams

LOST_JOB = 10**6


@pytest.fixture
def answered(
    database: Database, redis_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    monkeypatch.setenv("DATABASE_URL", database.url)
    monkeypatch.setenv("REDIS_URL", redis_url)

    async def answered() -> dict[str, Any]:
        assert await asyncio.to_thread(run, ["lost", "--json"]) == 0
        return dict(json.loads(capsys.readouterr().out))

    return answered


async def test_nothing_is_listed_where_nothing_was_lost(answered: Any) -> None:
    assert await answered() == {"raised": None, "lost": []}


async def test_each_list_names_what_the_database_does_not_have(
    database: Database, redis_url: str, answered: Any
) -> None:
    redis: Any = connect(redis_url, reply_seconds=5)
    cache = ResponseCache(redis, wait_seconds=5, pending_seconds=5, keep_seconds=60)
    async with Fencepost(database.url) as fp:

        @fp.job("mail")
        async def mail(_job: Job) -> None: ...

        async with fp.transaction() as tx:
            job = await mail.submit(tx)
            await tx.claim("orders", "kept", response=1)
        held = await fp.leases.acquire("printer", ttl=60)
        await Streams(redis, "workers").dispatch(fp.job_settings.stream_key, 1, [job.job_id, LOST_JOB], 100)
        for key in ("kept", "gone"):
            assert isinstance(await cache.begin(CacheKey("orders", key, "d")), Announced)
            await cache.complete(CacheKey("orders", key, "d"), '"done"')
        recover(database.admin_url, "anna")
        with pytest.raises(Refusal):
            await fp.leases.renew(held, ttl=60)
    await redis.aclose()

    told = await answered()
    assert told["raised"]["epoch"] == 2
    assert sorted((one["known_by"].split()[0], one["what"]) for one in told["lost"]) == [
        ("Redis", f"job {LOST_JOB}"),
        ("Redis", "request orders/gone"),
        ("client", "lease printer"),
    ]
