"""The queue of a signer: how much may wait in it, and how long."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from fencepost.errors import Backpressure
from fencepost.metrics import Metrics
from fencepost_nonces import _queue as queue_module
from fencepost_nonces._metrics import NonceMetrics
from fencepost_nonces._nonce_calls import Reservation
from fencepost_nonces._queue import SignerQueue


class Counter:
    """Reserves when it is let: the first batch waits for `open`."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.batches: list[Sequence[str]] = []

    async def reserve(self, request_ids: Sequence[str]) -> list[Reservation]:
        self.batches.append(request_ids)
        await self.open.wait()
        return [
            Reservation(one, place, 1, "HELD", 1, datetime.now(UTC), None)
            for place, one in enumerate(request_ids)
        ]


async def test_a_caller_that_waits_too_long_is_turned_away_and_nothing_is_reserved_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(queue_module, "time", SimpleNamespace(monotonic=lambda: now))
    counter = Counter()
    queue = SignerQueue(
        counter.reserve, NonceMetrics.on(Metrics()), queue_max=10, batch_max=1, wait_seconds=5.0
    )
    served = asyncio.create_task(queue.put(["first"]))
    await asyncio.sleep(0)
    late = asyncio.create_task(queue.put(["late"]))
    await asyncio.sleep(0)
    now = 105.5
    fresh = asyncio.create_task(queue.put(["fresh"]))
    await asyncio.sleep(0)

    counter.open.set()

    assert [row.request_id for row in await served] == ["first"], "what was begun is answered, however late"
    with pytest.raises(Backpressure, match="NONCES_WAIT_SEC"):
        await late
    assert [row.request_id for row in await fresh] == ["fresh"]
    assert counter.batches == [["first"], ["fresh"]]
    await queue.close()


async def test_no_caller_waits_longer_than_allowed_while_a_batch_stands_still() -> None:
    """The batch before is never answered: the timer turns away, and what was full has room again."""
    counter, metrics = Counter(), Metrics()
    queue = SignerQueue(
        counter.reserve, NonceMetrics.on(metrics), queue_max=2, batch_max=1, wait_seconds=0.05
    )
    served = asyncio.create_task(queue.put(["first"]))
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(queue.put([name])) for name in ("second", "third")]
    await asyncio.sleep(0)
    assert metrics.registry.get_sample_value("fencepost_nonces_queue_depth") == 2
    with pytest.raises(Backpressure, match="NONCES_QUEUE_MAX"):
        await queue.put(["fourth"])

    ended, _ = await asyncio.wait(waiting, timeout=60)

    assert [type(task.exception()) for task in ended] == [Backpressure, Backpressure]
    assert metrics.registry.get_sample_value("fencepost_nonces_queue_depth") == 0
    assert metrics.registry.get_sample_value("fencepost_nonces_queue_seconds_count") == 2, "they waited too"
    counter.open.set()
    assert [row.request_id for row in await served] == ["first"]
    assert counter.batches == [["first"]]
    assert metrics.registry.get_sample_value("fencepost_nonces_queue_seconds_count") == 3
    await queue.close()
