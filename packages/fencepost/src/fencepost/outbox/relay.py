"""The relay: takes messages of a channel in batches, delivers them in parallel, settles them in batches.

Three loops run concurrently. The *fetcher* keeps as many deliveries in progress as allowed. The *settlement*
writes the outcomes that have arrived since its last commit, so a slow delivery delays no other and a busy
relay commits rarely. The *keeper* renews the takes of deliveries in progress and frees those of takers that
went silent.

A take lasts for a lease, which the keeper renews: a relay that dies is noticed within a lease and a beat of
another keeper, however long a delivery may take.

Crash windows: after a take and before its delivery, the take expires and the message source decides what that
means for its channel. After the delivery and before its settlement, the same: the message was delivered and
that is not recorded, so a destination must carry an id that the other side, or we, can look up. After the
settlement nothing can be lost. A late settlement finds another take and is refused by the database.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from fencepost.crashpoints import crash_point
from fencepost.errors import InvalidInput
from fencepost.kernel import _notify as notify
from fencepost.kernel.call import CallRunner
from fencepost.listener import Listener
from fencepost.logs import get_logger, log_context
from fencepost.loop import Loop
from fencepost.metrics import Counter
from fencepost.outbox._delivery import Destination, MessageSource, TakenMessage
from fencepost.signals import announce
from fencepost.tracing import is_traced, span

_log = get_logger(__name__)
M = TypeVar("M", bound=TakenMessage)
S = TypeVar("S")
EXPIRE_BATCH = 500
SETTLE_BATCH = 500
START_TOGETHER = 16


@dataclass(frozen=True, slots=True)
class RelayLimits:
    """How many deliveries at once, and how long each may take."""

    batch: int = 32
    in_flight_max: int = 128
    lease_seconds: float = 60.0
    delivery_seconds: float = 600.0
    """A delivery that takes longer is considered stuck."""
    idle_seconds: float = 0.2
    keep_seconds: float = 5.0
    drain_seconds: float = 35.0

    @property
    def room_min(self) -> int:
        """A take costs a commit, and the next take waits for it: it is not made for only a few messages."""
        return min(self.batch, max(1, self.in_flight_max // 4))


class Relay(Generic[M, S]):
    """Runs between `start` and `stop`. Any number of relays may share a channel, in any number of processes.
    `carried` returns the trace headers of a message; without it, a delivery has no span."""

    def __init__(
        self,
        name: str,
        box: MessageSource[M, S],
        destination: Destination[M, S],
        database: CallRunner,
        owner: str,
        errors: Counter,
        pace: RelayLimits,
        *,
        on_taken: Counter | None = None,
        carried: Callable[[M], Mapping[str, Any]] | None = None,
    ) -> None:
        self.name = name
        self._box = box
        self._destination = destination
        self._database = database
        self._owner = owner
        self._pace = pace
        self._on_taken = on_taken
        self._carried = carried
        self._task_name = f"fencepost-{name}-delivery"
        self._under_way: dict[asyncio.Task[None], tuple[M, float]] = {}
        self._ended: list[S] = []
        self._fetching = Loop(f"{name}.fetch", self._take, errors)
        self._settlement = Loop(f"{name}.settlement", self._settle, errors)
        self._keeper = Loop(f"{name}.keeper", self._keep, errors)
        self._stopping = False
        self._unlisten: Callable[[], None] = lambda: None
        self._reached_at = self._expires_from = time.monotonic()

    @property
    def in_flight(self) -> int:
        """How many messages are being delivered."""
        return len(self._under_way)

    def start(self, listener: Listener | None = None) -> None:
        """Start taking and delivering. With a listener, a put wakes the relay at once."""
        if listener is not None:
            wake = self._fetching.wake
            listener.on(self._box.topic, wake)
            self._unlisten = lambda: listener.off(self._box.topic, wake)
        for loop in (self._settlement, self._keeper, self._fetching):
            loop.start()

    async def stop(self) -> None:
        """Take nothing more, let deliveries in progress end, and settle their outcomes."""
        self._stopping = True
        self._unlisten()
        await self._fetching.stop()
        if self._under_way:
            await asyncio.wait(tuple(self._under_way), timeout=self._pace.drain_seconds)
        for task in tuple(self._under_way):
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        # A task cancelled before its first step has not removed itself.
        self._under_way.clear()
        await self._keeper.stop()
        await self._settlement.stop()
        if self._ended:
            await self._settle()

    async def _take(self) -> float:
        room = self._pace.in_flight_max - len(self._under_way) - len(self._ended)
        if room < self._pace.room_min or self._stopping:
            # The end of a delivery wakes this loop.
            return self._pace.idle_seconds
        messages = await self._box.take(self._owner, self._pace.lease_seconds, min(room, self._pace.batch))
        self._reached_database()
        crash_point("outbox.after_take")
        if self._on_taken is not None:
            self._on_taken.labels(result="taken" if messages else "empty").inc()
        traced, began = self._carried is not None and is_traced(), time.monotonic()
        for number, message in enumerate(messages, 1):
            task = asyncio.create_task(self._deliver(message, traced=traced), name=self._task_name)
            self._under_way[task] = message, began
            if number % START_TOGETHER == 0:
                # A hundred tasks that start in one iteration of the event loop delay the database's replies.
                await asyncio.sleep(0)
        if messages:
            return 0.0
        announce("outbox.idle")
        if not self._under_way:
            await self._database.run(notify.sleep_on(self._box.topic))
        return self._pace.idle_seconds

    async def _deliver(self, message: M, *, traced: bool) -> None:
        try:
            settlement = await self._delivered(message, traced=traced)
            self._ended.append(settlement)
            self._settlement.wake()
        except asyncio.CancelledError as error:
            # Shutdown, or a stuck delivery; the other side may have it: settle now, before the take expires.
            self._ended.append(self._destination.failed(message, error))
            self._settlement.wake()
            raise
        finally:
            self._under_way.pop(cast("asyncio.Task[None]", asyncio.current_task()), None)
            self._fetching.wake()

    async def _delivered(self, message: M, *, traced: bool) -> S:
        try:
            settlement = await self._within_trace(message, traced=traced)
        except Exception as error:
            # A destination handles expected failures of the other side; this is a bug in it, and must not
            # lose the message.
            _log.error("delivery_failed", relay=self.name, message=message.id, exc_info=error)
            settlement = self._destination.failed(message, error)
        crash_point("outbox.after_delivery")
        return settlement

    async def _within_trace(self, message: M, *, traced: bool) -> S:
        """The delivery as a part of the trace in which the message was written."""
        carried: Mapping[str, Any] = {} if self._carried is None else self._carried(message)
        if not traced and carried.get("trace_id") is None:
            return await self._destination.deliver(message)
        about = {"message": message.id, "take": message.take}
        with (
            log_context(trace_id=carried.get("trace_id")),
            span(f"deliver {self.name}", "client", carried, **about) as note,
        ):
            settlement = await self._destination.deliver(message)
            note(outcome=getattr(settlement, "outcome", "settled"))
            return settlement

    async def _settle(self) -> float:
        if not self._ended:
            return self._pace.keep_seconds
        batch, self._ended = self._ended[:SETTLE_BATCH], self._ended[SETTLE_BATCH:]
        try:
            crash_point("outbox.before_settle")
            refusals = await self._settle_all(batch)
        except BaseException:
            # A known outcome must be written: it waits for the database, ahead of later ones.
            self._ended = batch + self._ended
            raise
        crash_point("outbox.after_settle")
        self._note(refusals)
        self._fetching.wake()
        announce("outbox.settled")
        return 0.0 if self._ended else self._pace.keep_seconds

    async def _settle_all(self, batch: Sequence[S]) -> Sequence[str | None]:
        """One that cannot be stored must not delay the others: its take is left to expire."""
        try:
            return await self._box.settle(self._owner, batch)
        except InvalidInput as error:
            if len(batch) == 1:
                _log.error("settlement_invalid", relay=self.name, error=str(error))
                return ["invalid"]
        return [refusal for one in batch for refusal in await self._settle_all([one])]

    def _note(self, refusals: Sequence[str | None]) -> None:
        refused = [refusal for refusal in refusals if refusal is not None]
        if refused:
            _log.warning(
                "settlements_refused", relay=self.name, count=len(refused), reasons=sorted(set(refused))
            )

    async def _keep(self) -> float:
        began = time.monotonic()
        in_time = began - self._pace.delivery_seconds
        self._give_up_on_what_hangs(in_time)
        messages = [message for message, since in self._under_way.values() if since > in_time]
        if messages:
            await self._box.renew(self._owner, self._pace.lease_seconds, messages)
            self._reached_database()
        expired = await self._box.expire(EXPIRE_BATCH) if self._may_expire(time.monotonic()) else 0
        if expired:
            _log.warning("takers_silent", relay=self.name, count=expired)
            announce("outbox.expired")
            self._fetching.wake()
        beat = min(self._pace.keep_seconds, self._pace.lease_seconds / 3)
        return max(0.01, beat - (time.monotonic() - began))

    def _reached_database(self) -> None:
        """A relay that could not reach the database for a lease waits for one more before it expires
        takes: no other relay could renew in that time either, and may still know how its deliveries ended."""
        now = time.monotonic()
        if now - self._reached_at >= self._pace.lease_seconds:
            self._expires_from = now + self._pace.lease_seconds
        self._reached_at = now

    def _may_expire(self, now: float) -> bool:
        return now >= self._expires_from and now - self._reached_at < self._pace.lease_seconds

    def _give_up_on_what_hangs(self, before: float) -> None:
        """A delivery that does not end after its cancellation is not renewed: its take expires, and the next
        taker reconciles first, where that matters."""
        for task, (message, since) in tuple(self._under_way.items()):
            if since <= before:
                _log.warning("delivery_hangs", relay=self.name, message=message.id)
                task.cancel(f"no answer within {self._pace.delivery_seconds:g} s")
