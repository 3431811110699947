"""The queue of one signer inside its node: serves waiting requests in batches, one statement for each batch.

No request waits in it for longer than NONCES_WAIT_SEC, even while the running batch makes no progress.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from fencepost.errors import Backpressure
from fencepost_nonces.metrics import NonceMetrics
from fencepost_nonces.nonce_calls import Reservation

Reserve = Callable[[Sequence[str]], Awaitable[list[Reservation]]]


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """One caller: all of its requests are in one batch."""

    request_ids: Sequence[str]
    answer: asyncio.Future[list[Reservation]]
    since: float


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
        self._waiting: deque[WaitingRequest] = deque()
        self._depth = 0
        self._drain: asyncio.Task[None] | None = None
        self._patience: asyncio.TimerHandle | None = None

    async def put(self, request_ids: Sequence[str]) -> list[Reservation]:
        """Wait for the nonces. A cancelled request may still get its nonce: the same id returns it again."""
        if self._depth + len(request_ids) > self._queue_max:
            raise Backpressure(
                f"{self._depth} requests wait for this signer; NONCES_QUEUE_MAX is {self._queue_max}. "
                "Nothing was reserved: ask again shortly."
            )
        answer: asyncio.Future[list[Reservation]] = asyncio.get_running_loop().create_future()
        self._waiting.append(WaitingRequest(request_ids, answer, time.monotonic()))
        self._count(len(request_ids))
        if self._drain is None or self._drain.done():
            self._drain = asyncio.create_task(self._serve(), name="fencepost-nonces-queue")
        self._watch()
        return await answer

    async def _serve(self) -> None:
        while self._waiting:
            self._turn_away()
            batch = self._next_batch()
            wanted = [one for one in batch if not one.answer.done()]
            if wanted:
                await self._answer(wanted)

    def _watch(self) -> None:
        """One timer for all: requests are queued in the order of their deadlines."""
        if self._patience is None and self._waiting:
            left = self._waiting[0].since + self._wait_seconds - time.monotonic()
            self._patience = asyncio.get_running_loop().call_later(max(0.0, left), self._time_is_over)

    def _time_is_over(self) -> None:
        self._patience = None
        self._turn_away()
        self._watch()

    def _turn_away(self) -> None:
        """Refuse requests that have waited too long, before anything is reserved for them."""
        now = time.monotonic()
        while self._waiting and now - self._waiting[0].since >= self._wait_seconds:
            one = self._waiting.popleft()
            self._count(-len(one.request_ids))
            self._metrics.queue_seconds.observe(now - one.since)
            if not one.answer.done():
                one.answer.set_exception(
                    Backpressure(
                        f"It waited more than {self._wait_seconds:g} s in the queue (NONCES_WAIT_SEC). "
                        "Nothing was reserved: ask again shortly."
                    )
                )

    def _next_batch(self) -> list[WaitingRequest]:
        """The requests that wait longest, up to the limit; a single caller's block may be larger."""
        batch: list[WaitingRequest] = []
        size = 0
        while self._waiting and (not batch or size + len(self._waiting[0].request_ids) <= self._batch_max):
            batch.append(self._waiting.popleft())
            size += len(batch[-1].request_ids)
        self._count(-size)
        return batch

    async def _answer(self, batch: list[WaitingRequest]) -> None:
        try:
            rows = await self._reserve([request_id for one in batch for request_id in one.request_ids])
        except BaseException as error:
            for one in batch:
                self._metrics.queue_seconds.observe(time.monotonic() - one.since)
                if not one.answer.done():
                    one.answer.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        place, now = 0, time.monotonic()
        for one in batch:
            self._metrics.queue_seconds.observe(now - one.since)
            if not one.answer.done():
                one.answer.set_result(rows[place : place + len(one.request_ids)])
            place += len(one.request_ids)

    def _count(self, more: int) -> None:
        self._depth += more
        self._metrics.queue_depth.inc(more)

    async def close(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        if self._drain is not None:
            await asyncio.gather(self._drain, return_exceptions=True)
