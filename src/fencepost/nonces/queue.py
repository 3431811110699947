"""The queue of one signer inside its node: who waits is served in batches, one statement for all of them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from fencepost.errors import Backpressure
from fencepost.nonces.allocation import Reservation
from fencepost.nonces.metrics import NonceMetrics

Reserve = Callable[[Sequence[str]], Awaitable[list[Reservation]]]


@dataclass(frozen=True, slots=True)
class Waiting:
    request_id: str
    answer: asyncio.Future[Reservation]
    since: float


class SignerQueue:
    """Serves in the order of arrival. While one batch is under way the next one gathers."""

    def __init__(self, reserve: Reserve, metrics: NonceMetrics, *, queue_max: int, batch_max: int) -> None:
        self._reserve = reserve
        self._metrics = metrics
        self._queue_max = queue_max
        self._batch_max = batch_max
        self._waiting: deque[Waiting] = deque()
        self._drain: asyncio.Task[None] | None = None

    async def put(self, request_ids: Sequence[str]) -> list[Reservation]:
        """Wait for the nonces. A request that gives up may have its nonce: the same id gets it again."""
        if len(self._waiting) + len(request_ids) > self._queue_max:
            raise Backpressure(
                f"{len(self._waiting)} requests wait for this signer; NONCES_QUEUE_MAX is {self._queue_max}. "
                "Nothing was reserved: ask again shortly."
            )
        loop, now = asyncio.get_running_loop(), time.monotonic()
        waiting = [Waiting(request_id, loop.create_future(), now) for request_id in request_ids]
        self._waiting.extend(waiting)
        self._metrics.queue_depth.inc(len(waiting))
        if self._drain is None or self._drain.done():
            self._drain = asyncio.create_task(self._serve(), name="fencepost-nonces-queue")
        return list(await asyncio.gather(*(one.answer for one in waiting)))

    async def _serve(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(self._batch_max, len(self._waiting)))]
            self._metrics.queue_depth.dec(len(batch))
            wanted = [one for one in batch if not one.answer.done()]
            if wanted:
                await self._answer(wanted)

    async def _answer(self, batch: list[Waiting]) -> None:
        try:
            rows = await self._reserve([one.request_id for one in batch])
        except BaseException as error:
            for one in batch:
                if not one.answer.done():
                    one.answer.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for one, row in zip(batch, rows, strict=True):
            self._metrics.queue_seconds.observe(time.monotonic() - one.since)
            if not one.answer.done():
                one.answer.set_result(row)

    async def close(self) -> None:
        if self._drain is not None:
            await asyncio.gather(self._drain, return_exceptions=True)
