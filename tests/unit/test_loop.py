"""A loop goes on."""

import asyncio

import pytest

from fencepost.loop import Loop
from fencepost.metrics import Metrics
from fencepost.testing import Signals


def counted(metrics: Metrics) -> float:
    return metrics.registry.get_sample_value("loop_errors_total", {"loop": "test"}) or 0


@pytest.mark.parametrize("error", [ValueError("broken"), asyncio.CancelledError()])
async def test_what_a_tick_raises_is_counted_and_the_loop_goes_on(error: BaseException) -> None:
    metrics, ticks = Metrics(), 0

    async def tick() -> float:
        nonlocal ticks
        ticks += 1
        if ticks == 1:
            raise error
        return 3600

    loop = Loop("test", tick, metrics.counter("loop_errors", "x", labels=("loop",)))
    with Signals() as signals:
        loop.start()
        await signals.wait("test.ticked", count=2)
        await loop.stop()
    assert counted(metrics) == 1


async def test_a_wake_during_the_tick_is_not_lost() -> None:
    metrics, ticks = Metrics(), 0

    async def tick() -> float:
        nonlocal ticks
        ticks += 1
        if ticks == 1:
            loop.wake()
        return 3600

    loop = Loop("test", tick, metrics.counter("loop_errors", "x", labels=("loop",)))
    with Signals() as signals:
        loop.start()
        await signals.wait("test.ticked", count=2)
        await loop.stop()


async def test_stopping_lets_the_tick_end() -> None:
    began, ended = asyncio.Event(), asyncio.Event()
    go_on = asyncio.Event()

    async def tick() -> float:
        began.set()
        await go_on.wait()
        ended.set()
        return 0

    loop = Loop("test", tick, Metrics().counter("loop_errors", "x", labels=("loop",)))
    loop.start()
    await began.wait()
    stopping = asyncio.create_task(loop.stop())
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait_for(stopping, 60)
    assert ended.is_set()
