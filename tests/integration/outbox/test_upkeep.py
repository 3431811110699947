"""Whatever stays, forgets: a house, a worker of jobs, a worker of flows. None needs another for it."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from fencepost import Fencepost
from fencepost.embedded import Database
from fencepost.flows.graph import Flow
from fencepost.flows.sinks.postgres import OutboxSink
from fencepost.flows.sources.outbox import OutboxChannel
from fencepost.jobs.job import Job
from fencepost.kernel import outbox
from fencepost.kernel.outbox import Message, Settlement
from fencepost.settings import Settings
from fencepost.testing import Signals
from fencepost.upkeep import BATCH, Upkeep
from fencepost.web import chores

AT_ONCE = Settings(message_keep_seconds=0.001, history_keep_seconds=0.001)


@pytest.fixture
async def fp(database: Database, redis_url: str) -> AsyncGenerator[Fencepost]:
    async with Fencepost(database.url, redis_url=redis_url, settings=AT_ONCE) as fp:
        yield fp


async def settle(fp: Fencepost, count: int) -> None:
    """Settled messages, and with each an event: the receiver did not want it."""
    await fp.run(outbox.put_many("letters", list(range(count))))
    taken: list[Message] = await fp.run(outbox.take("letters", "me", 60, count))
    await fp.run(outbox.settle_many([Settlement(m.id, m.take, "dead", "no") for m in taken], "me"))


async def left(fp: Fencepost) -> tuple[Any, ...]:
    async with fp.transaction() as tx:
        cursor = await tx.execute(
            "select (select count(*) from fencepost.outbox_messages where state = 'dead'),"
            " (select count(*) from fencepost.events where noun = 'outbox')"
        )
        row = await cursor.fetchone()
    assert row is not None
    return tuple(row)


@asynccontextmanager
async def in_a_house(fp: Fencepost) -> AsyncGenerator[None]:
    async with chores.make_part(fp).running():
        yield


@asynccontextmanager
async def in_a_worker(fp: Fencepost) -> AsyncGenerator[None]:
    @fp.job("letters")
    async def letter(job: Job) -> None: ...

    worker = fp.worker()
    running = asyncio.create_task(worker.run())
    yield
    worker.stop()
    await running


@asynccontextmanager
async def in_a_worker_of_flows(fp: Fencepost) -> AsyncGenerator[None]:
    flow = Flow("post").source(OutboxChannel("in")).sink(OutboxSink("out"))
    stop = asyncio.Event()
    running = asyncio.create_task(fp.flow_worker(flow).run(stop))
    yield
    stop.set()
    await running


@pytest.mark.parametrize("somewhere", [in_a_house, in_a_worker, in_a_worker_of_flows])
async def test_settled_messages_and_history_are_forgotten(
    fp: Fencepost, somewhere: Callable[[Fencepost], AbstractAsyncContextManager[None]]
) -> None:
    await settle(fp, 3)
    assert await left(fp) == (3, 3)

    with Signals() as signals:
        async with somewhere(fp):
            await signals.wait("upkeep.done")

    assert await left(fp) == (0, 0)


async def test_what_is_young_stays(fp: Fencepost) -> None:
    await settle(fp, 3)

    assert await Upkeep(fp, Settings()).tick() > 0

    assert await left(fp) == (3, 3)


async def test_it_goes_on_at_once_while_there_is_more(fp: Fencepost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.upkeep.BATCHES_PER_TICK", 1)
    await settle(fp, BATCH)

    assert await Upkeep(fp, AT_ONCE).tick() == 0
    assert await Upkeep(fp, AT_ONCE).tick() > 0

    assert await left(fp) == (0, 0)


async def test_a_database_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, asked_often = 0, asyncio.Event()

    class Away:
        async def run(self, call: object) -> Any:
            nonlocal asked
            asked += 1
            if asked == 3:
                asked_often.set()
            raise ConnectionError

    monkeypatch.setattr("fencepost.upkeep.TICK_SECONDS", 0.001)
    upkeep = asyncio.create_task(Upkeep(Away(), AT_ONCE).run())
    await asyncio.wait_for(asked_often.wait(), 60)
    upkeep.cancel()
    await asyncio.gather(upkeep, return_exceptions=True)
