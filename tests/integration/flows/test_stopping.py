"""A cancel that gets lost stops nothing for ever: in Python 3.11 `wait_for` can answer and forget it."""

import asyncio

import pytest

from fencepost.flows import Flow
from fencepost.flows._reporter import Reporter
from fencepost.flows._shuffle_sender import ShuffleSender
from fencepost.flows.sinks.postgres import PostgresUpsert
from fencepost.flows.sources.redis_streams import RedisStreams
from tests.integration.flows.harness import FlowHarness


def totals() -> Flow:
    keyed = Flow("stopped").source(RedisStreams("in")).json().key_by(str, groups=1)
    return keyed.count().sink(PostgresUpsert("total", ["key"], ["value"]))


class Deaf:
    """Waits, and takes the first cancel for an answer."""

    def __init__(self) -> None:
        self.calls = 0

    async def wait(self) -> None:
        self.calls += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if self.calls > 1:
                raise


async def test_a_worker_stops_whatever_became_of_its_reports(
    harness: FlowHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf, stop = Deaf(), asyncio.Event()

    async def tick(_: Reporter) -> None:
        await deaf.wait()

    monkeypatch.setattr(Reporter, "tick", tick)
    running = asyncio.create_task(harness.worker(totals()).run(stop))
    await harness.until(lambda: deaf.calls == 1)
    stop.set()

    ended, _ = await asyncio.wait([running], timeout=60)
    running.cancel()
    assert ended, "it did not stop"
    assert deaf.calls == 1


async def test_a_unit_that_was_lost_is_let_go_and_taken_again(
    harness: FlowHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf = Deaf()

    async def run(_: ShuffleSender, stopping: asyncio.Event) -> None:
        await deaf.wait()
        await stopping.wait()

    monkeypatch.setattr(ShuffleSender, "run", run)
    async with harness.running(harness.worker(totals(), drain_seconds=0.1)):
        await harness.until(lambda: deaf.calls == 1)
        harness.lose_units()
        await harness.until(lambda: deaf.calls == 2)
