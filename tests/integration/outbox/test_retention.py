"""Whatever stays, forgets: a system, a worker of jobs, a worker of flows. None needs another for it."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from fencepost import Fencepost
from fencepost.embedded import Database
from fencepost.flows._graph import Flow
from fencepost.flows.sinks.postgres import OutboxSink
from fencepost.flows.sources.outbox import OutboxChannel
from fencepost.jobs.job import Job
from fencepost.kernel import idempotency, outbox
from fencepost.kernel.outbox import Message, Settlement
from fencepost.metrics import Metrics
from fencepost.retention import BATCH, Retention, RetentionMetrics
from fencepost.settings import Settings
from fencepost.testing import Clock, Signals
from fencepost_players.service import Players
from fencepost_server.web import _background as background

AT_ONCE = Settings(message_keep_seconds=0.001, history_keep_seconds=0.001, key_keep_seconds=1)


@pytest.fixture
async def fp(database: Database, redis_url: str) -> AsyncGenerator[Fencepost]:
    async with Fencepost(database.url, redis_url=redis_url, settings=AT_ONCE) as fp:
        yield fp


def retention(fp: Fencepost, settings: Settings = AT_ONCE) -> Retention:
    return Retention(fp, settings, RetentionMetrics.on(Metrics()))


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
async def in_a_web_server(fp: Fencepost) -> AsyncGenerator[None]:
    async with background.make_service(fp).running():
        yield


@asynccontextmanager
async def in_a_worker(fp: Fencepost) -> AsyncGenerator[None]:
    @fp.job("letters")
    async def letter(job: Job) -> None: ...

    worker = fp.jobs.worker()
    running = asyncio.create_task(worker.run())
    yield
    worker.stop()
    await running


@asynccontextmanager
async def in_a_worker_of_flows(fp: Fencepost) -> AsyncGenerator[None]:
    flow = Flow("post").source(OutboxChannel("in")).sink(OutboxSink("out"))
    stop = asyncio.Event()
    running = asyncio.create_task(fp.flows.worker(flow).run(stop))
    yield
    stop.set()
    await running


@asynccontextmanager
async def in_a_players_service(fp: Fencepost) -> AsyncGenerator[None]:
    async with Players(fp).running():
        yield


Somewhere = Callable[[Fencepost], AbstractAsyncContextManager[None]]
EVERYWHERE = [in_a_web_server, in_a_worker, in_a_worker_of_flows, in_a_players_service]


@pytest.mark.parametrize("somewhere", EVERYWHERE)
async def test_settled_messages_and_history_are_forgotten(fp: Fencepost, somewhere: Somewhere) -> None:
    await settle(fp, 3)
    assert await left(fp) == (3, 3)

    with Signals() as signals:
        async with somewhere(fp):
            await signals.wait("retention.done")

    assert await left(fp) == (0, 0)


async def test_what_is_young_stays(fp: Fencepost) -> None:
    await settle(fp, 3)

    assert await retention(fp, Settings()).delete_history() > 0

    assert await left(fp) == (3, 3)


async def test_it_goes_on_at_once_while_there_is_more(fp: Fencepost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.retention.BATCHES_PER_TICK", 1)
    await settle(fp, BATCH)

    assert await retention(fp).delete_history() == 0
    assert await retention(fp).delete_history() > 0

    assert await left(fp) == (0, 0)


async def test_a_database_that_is_away_is_waited_for(fp: Fencepost, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, asked_often = 0, asyncio.Event()

    async def away(self: object, call: object) -> Any:
        nonlocal asked
        asked += 1
        if asked == 6:
            asked_often.set()
        raise ConnectionError

    monkeypatch.setattr(Fencepost, "run", away)
    async with fp.retention():
        await asyncio.wait_for(asked_often.wait(), 60)


@pytest.mark.parametrize("somewhere", EVERYWHERE)
async def test_keys_are_forgotten(fp: Fencepost, clock: Clock, somewhere: Somewhere) -> None:
    await fp.run(idempotency.claim_many("letters", ["a", "b"]))
    clock.advance(2)

    with Signals() as signals:
        async with somewhere(fp):
            await signals.wait("idempotency_keys.deleted")

    assert (await fp.run(idempotency.claim("letters", "a"))).claimed


async def test_one_process_does_it_once_however_many_parts_it_has(fp: Fencepost) -> None:
    with Signals() as signals:
        async with in_a_web_server(fp), in_a_players_service(fp), in_a_worker(fp):
            await signals.wait("idempotency_keys.deleted")
            names = [task.get_name() for task in asyncio.all_tasks()]
            assert names.count("fencepost-idempotency_keys") == names.count("fencepost-history") == 1
    names = [task.get_name() for task in asyncio.all_tasks()]
    assert "fencepost-idempotency_keys" not in names
