"""A system on a database of the test's own, workers on it, and the clock in the test's hand."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from typing import Any

import pytest

from fencepost import Fencepost
from fencepost.embedded import Database
from fencepost.embedded._database import SERVICE
from fencepost.jobs.settings import JobSettings
from fencepost.settings import Settings
from tests.integration.job_features.probes import Probes
from tests.waiting_for import Waiter

Working = Callable[..., AbstractAsyncContextManager[None]]


def quick(**changes: Any) -> JobSettings:
    """Settings under which every loop comes round in a fraction of a second."""
    values: dict[str, Any] = {
        "lease_seconds": 10,
        "heartbeat_seconds": 0.2,
        "poll_seconds": 0.05,
        "sweep_interval_seconds": 0.1,
        "reclaim_interval_seconds": 0.1,
        "reclaim_grace_seconds": 0,
        "prune_interval_seconds": 0.1,
        "drain_seconds": 5,
        "concurrency": 20,
    }
    return JobSettings(**(values | changes))


def listening(database: Database) -> Settings:
    """LISTEN needs a session: where a pooler stands before the server, it goes around it."""
    return Settings(listen_database_url=database.server.url(database.name, SERVICE))


@pytest.fixture
async def fp(database: Database, redis_url: str) -> AsyncIterator[Fencepost]:
    async with Fencepost(
        database.url, redis_url=redis_url, job_settings=quick(), settings=listening(database)
    ) as fp:
        yield fp


@pytest.fixture(params=["with Redis", "without Redis"])
async def anywhere(
    request: pytest.FixtureRequest, database: Database, redis_url: str
) -> AsyncIterator[Fencepost]:
    """The same test with Redis driving, and with PostgreSQL alone."""
    url = redis_url if request.param == "with Redis" else None
    async with Fencepost(
        database.url, redis_url=url, job_settings=quick(), settings=listening(database)
    ) as fp:
        yield fp


@pytest.fixture
def probes(database: Database) -> Iterator[Probes]:
    with closing(Waiter(database)) as looker:
        yield Probes(database, looker)


@pytest.fixture
def working() -> Working:
    """`async with working(fp): ...` has a worker inside the block, and drains it at its end."""

    @asynccontextmanager
    async def work(fp: Fencepost, **changes: Any) -> AsyncGenerator[None]:
        worker = fp.jobs.worker(quick(**changes))
        running = asyncio.create_task(worker.run())
        try:
            yield
        finally:
            worker.stop()
            await running

    return work
