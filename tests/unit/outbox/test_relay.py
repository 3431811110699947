"""When a relay takes, and that it loses nothing of what has ended. Without a database and without a net."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter

from fencepost.kernel.call import Call
from fencepost.outbox.relay import Relay, RelayLimits


@dataclass(frozen=True)
class Letter:
    id: int
    take: int = 1


class RelayHarness:
    """The box, the destination and the database of one relay: letters end when the test says so."""

    topic = "outbox:letters"

    def __init__(self, letters: int) -> None:
        self.waiting = [Letter(number) for number in range(letters)]
        self.limits: list[int] = []
        self.under_way: dict[int, asyncio.Future[None]] = {}
        self.settled: list[int] = []
        self.may_settle = asyncio.Event()
        self.may_settle.set()
        self.settling = 0
        self.reasons: list[str] = []
        self.renewals = 0
        self.is_deaf = False
        self.cancelled = 0
        self.expiries = 0
        self.is_away = False

    async def take(self, owner: str, lease_seconds: float, limit: int) -> Sequence[Letter]:
        if self.is_away:
            raise ConnectionError
        self.limits.append(limit)
        taken, self.waiting = self.waiting[:limit], self.waiting[limit:]
        return taken

    async def settle(self, owner: str, settlements: Sequence[int]) -> Sequence[str | None]:
        self.settling += 1
        await self.may_settle.wait()
        self.settled += settlements
        return [None] * len(settlements)

    async def renew(self, owner: str, lease_seconds: float, messages: Sequence[Letter]) -> None:
        if self.is_away:
            raise ConnectionError
        self.renewals += 1

    async def expire(self, limit: int) -> int:
        if self.is_away:
            raise ConnectionError
        self.expiries += 1
        return 0

    async def run(self, call: Call[Any]) -> Any:
        return None

    async def deliver(self, message: Letter) -> int:
        self.under_way[message.id] = asyncio.get_running_loop().create_future()
        while True:
            try:
                await asyncio.shield(self.under_way[message.id])
            except asyncio.CancelledError:
                self.cancelled += 1
                if not self.is_deaf:
                    raise
            else:
                return message.id

    def failed(self, message: Letter, error: BaseException) -> int:
        self.reasons.append(str(error))
        return -message.id

    def end(self, *letters: int) -> None:
        for letter in letters:
            self.under_way.pop(letter).set_result(None)


def relay_of(harness: RelayHarness, pace: RelayLimits) -> Relay[Letter, int]:
    errors = Counter("errors", "Errors.", ("loop",), registry=CollectorRegistry())
    return Relay("letters", harness, harness, harness, "me", errors, pace)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - It has no other way to say so.
            await asyncio.sleep(0)


async def rest() -> None:
    """Long enough for whatever is ready to be done."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_a_take_is_not_made_for_a_few_places() -> None:
    harness = RelayHarness(12)
    relay = relay_of(harness, RelayLimits(batch=4, in_flight_max=8, idle_seconds=60))
    relay.start()
    await until(lambda: len(harness.under_way) == 8)
    harness.end(0)
    await until(lambda: harness.settled == [0])
    await rest()
    assert harness.limits == [4, 4], "one place is free, and two are worth a take"
    harness.end(1)
    await until(lambda: len(harness.under_way) == 8)
    assert harness.limits[:3] == [4, 4, 2]
    harness.end(*tuple(harness.under_way))
    await until(lambda: len(harness.under_way) == 2)
    harness.end(*tuple(harness.under_way))
    await relay.stop()
    assert sorted(harness.settled) == list(range(12))


async def test_a_relay_for_one_message_at_a_time_takes_one_after_the_other() -> None:
    harness = RelayHarness(3)
    relay = relay_of(harness, RelayLimits(batch=1, in_flight_max=1, idle_seconds=60))
    relay.start()
    for letter in range(3):
        await until(lambda letter=letter: letter in harness.under_way)  # type: ignore[misc]
        harness.end(letter)
    await relay.stop()
    assert harness.settled == [0, 1, 2]


async def test_what_ends_while_a_settlement_is_written_is_settled_too() -> None:
    harness = RelayHarness(4)
    harness.may_settle.clear()
    relay = relay_of(harness, RelayLimits(batch=4, in_flight_max=4, idle_seconds=60))
    relay.start()
    await until(lambda: len(harness.under_way) == 4)
    harness.end(0)
    await until(lambda: harness.settling == 1)
    harness.end(1, 2, 3)
    await rest()
    harness.may_settle.set()
    await until(lambda: sorted(harness.settled) == [0, 1, 2, 3])
    assert relay.in_flight == 0
    await relay.stop()


async def test_a_relay_that_leaves_says_so_of_what_is_under_way_and_keeps_nothing() -> None:
    harness = RelayHarness(2)
    relay = relay_of(harness, RelayLimits(batch=2, in_flight_max=2, idle_seconds=60, drain_seconds=0.01))
    relay.start()
    await until(lambda: len(harness.under_way) == 2)
    await relay.stop()
    assert sorted(harness.settled) == [-1, 0]
    assert relay.in_flight == 0


async def test_a_delivery_that_hangs_is_given_up_and_said_to_have_failed() -> None:
    harness = RelayHarness(2)
    relay = relay_of(
        harness,
        RelayLimits(batch=1, in_flight_max=1, idle_seconds=60, delivery_seconds=0.05, keep_seconds=0.01),
    )
    relay.start()
    await until(lambda: -0 in harness.settled and 1 in harness.under_way)
    assert "0.05 s" in harness.reasons[0]
    await relay.stop()


async def test_one_that_does_not_even_end_then_is_not_renewed() -> None:
    harness = RelayHarness(1)
    harness.is_deaf = True
    relay = relay_of(
        harness,
        RelayLimits(batch=1, in_flight_max=1, idle_seconds=60, delivery_seconds=0.05, keep_seconds=0.01),
    )
    relay.start()
    try:
        await until(lambda: harness.cancelled > 2)
        renewals = harness.renewals
        seen = harness.cancelled
        await until(lambda: harness.cancelled > seen + 2)
        assert harness.renewals == renewals
    finally:
        # A task that ignores its cancellation would keep the event loop, and the report of the failure,
        # for ever.
        harness.is_deaf = False
        await relay.stop()


class TickedRelay(Relay[Letter, int]):
    """Its loops tick when the test says so."""

    async def tick(self) -> None:
        for loop in (self._take, self._keep):
            with suppress(ConnectionError):
                await loop()

    def deliver_for_ever(self, letter: Letter) -> None:
        self._under_way[asyncio.create_task(rest())] = letter, time.monotonic()


@pytest.mark.parametrize("has_letters", [True, False])
async def test_after_an_outage_of_the_database_a_relay_gives_the_others_a_lease_to_renew(
    monkeypatch: pytest.MonkeyPatch, has_letters: bool
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    harness = RelayHarness(0)
    errors = Counter("errors", "Errors.", ("loop",), registry=CollectorRegistry())
    pace = RelayLimits(batch=1, in_flight_max=1, idle_seconds=60, lease_seconds=10)
    relay = TickedRelay("letters", harness, harness, harness, "me", errors, pace)
    if has_letters:
        relay.deliver_for_ever(Letter(0))

    async def keep(seconds_later: float) -> int:
        """How often it expires takes when its loops tick then."""
        clock[0] += seconds_later
        before = harness.expiries
        await relay.tick()
        return harness.expiries - before

    assert await keep(3) == 1
    harness.is_away = True
    assert [await keep(3) for _ in range(5)] == [0, 0, 0, 0, 0]
    harness.is_away = False
    assert [await keep(3) for _ in range(4)] == [0, 0, 0, 0]
    assert await keep(3) == 1
