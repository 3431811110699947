"""The queue of a signer: how much may wait in it, and how long."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from fencepost.errors import Backpressure
from fencepost.metrics import Metrics
from fencepost.nonces import queue as queue_module
from fencepost.nonces.allocation import Reservation
from fencepost.nonces.metrics import NonceMetrics
from fencepost.nonces.queue import SignerQueue


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


async def test_who_waits_too_long_is_turned_away_and_nothing_is_reserved_for_him(
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
