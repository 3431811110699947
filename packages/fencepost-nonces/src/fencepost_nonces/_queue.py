"""The queue of one signer inside its node: serves waiting requests in batches, one statement for each batch.

No request waits in it for longer than NONCES_WAIT_SEC, even while the running batch makes no progress.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fencepost.coalescer import Coalescer, Waiting
from fencepost.errors import Backpressure
from fencepost_nonces._metrics import NonceMetrics
from fencepost_nonces._nonce_calls import Reservation

Reserve = Callable[[Sequence[str]], Awaitable[list[Reservation]]]


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """One caller: all of its requests are in one batch."""

    request_ids: Sequence[str]
    since: float


_Waiting: TypeAlias = Waiting[WaitingRequest, list[Reservation]]


class SignerQueue:
    """Serves in the order of arrival. While one batch runs, the next one fills."""

    def __init__(
        self,
        reserve: Reserve,
        metrics: NonceMetrics,
        *,
        queue_max: int,
        batch_max: int,
        wait_seconds: float,
    ) -> None:
        self._reserve = reserve
        self._metrics = metrics
        self._queue_max = queue_max
        self._batch_max = batch_max
        self._wait_seconds = wait_seconds
        self._waiting: deque[_Waiting] = deque()
        self._depth = 0
        self._coalescer = Coalescer(self._serve, self, name="fencepost-nonces-queue")
        self._patience: asyncio.TimerHandle | None = None

    async def put(self, request_ids: Sequence[str]) -> list[Reservation]:
        """Wait for the nonces. A cancelled request may still get its nonce: the same id returns it again."""
        if self._depth + len(request_ids) > self._queue_max:
            raise Backpressure(
                f"{self._depth} requests wait for this signer; NONCES_QUEUE_MAX is {self._queue_max}. "
                "Nothing was reserved: ask again shortly."
            )
        return await self._coalescer.ask(WaitingRequest(request_ids, time.monotonic()))

    async def close(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        await self._coalescer.drain()

    def add(self, waiting: _Waiting) -> None:
        self._waiting.append(waiting)
        self._count(len(waiting.asked.request_ids))
        self._watch()

    def next_batch(self) -> list[_Waiting]:
        """The requests that wait longest, up to the limit; a single caller's block may be larger. Callers
        that gave up are left out."""
        self._turn_away()
        batch: list[_Waiting] = []
        size = 0
        while self._waiting and (
            not batch or size + len(self._waiting[0].asked.request_ids) <= self._batch_max
        ):
            one = self._take_first()
            if not one.answer.done():
                batch.append(one)
                size += len(one.asked.request_ids)
        return batch

    def ended(self, batch: Sequence[_Waiting]) -> None:
        now = time.monotonic()
        for one in batch:
            self._metrics.queue_seconds.observe(now - one.asked.since)

    async def _serve(self, batch: Sequence[WaitingRequest]) -> list[list[Reservation]]:
        rows = iter(await self._reserve([request_id for one in batch for request_id in one.request_ids]))
        return [[next(rows) for _ in one.request_ids] for one in batch]

    def _watch(self) -> None:
        """One timer for all: requests are queued in the order of their deadlines."""
        if self._patience is None and self._waiting:
            left = self._waiting[0].asked.since + self._wait_seconds - time.monotonic()
            self._patience = asyncio.get_running_loop().call_later(max(0.0, left), self._time_is_over)

    def _time_is_over(self) -> None:
        self._patience = None
        self._turn_away()
        self._watch()

    def _turn_away(self) -> None:
        """Refuse requests that have waited too long, before anything is reserved for them."""
        now = time.monotonic()
        while self._waiting and now - self._waiting[0].asked.since >= self._wait_seconds:
            one = self._take_first()
            self._metrics.queue_seconds.observe(now - one.asked.since)
            one.fail(
                Backpressure(
                    f"It waited more than {self._wait_seconds:g} s in the queue (NONCES_WAIT_SEC). "
                    "Nothing was reserved: ask again shortly."
                )
            )

    def _take_first(self) -> _Waiting:
        one = self._waiting.popleft()
        self._count(-len(one.asked.request_ids))
        return one

    def _count(self, more: int) -> None:
        self._depth += more
        self._metrics.queue_depth.inc(more)
