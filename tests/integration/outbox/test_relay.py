"""A relay delivers what was put, in order for a key, again when an answer is lost, and settles it fenced."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from fencepost import Fencepost
from fencepost.backoff import Backoff
from fencepost.crashpoints import PlannedCrash
from fencepost.embedded import Database
from fencepost.http_client import HttpClient, MaybeSent, NotSent, Request
from fencepost.kernel import outbox
from fencepost.listener import Listener
from fencepost.outbox._delivery import Channel
from fencepost.outbox._webhook import Webhook
from fencepost.outbox.relay import Relay, RelayLimits
from fencepost.testing import Signals, at_crash_point
from tests.integration.outbox.receiver import Receiver, receiving
from tests.waiting_for import found

QUICK = RelayLimits(batch=10, in_flight_max=20, lease_seconds=0.9, idle_seconds=0.05, keep_seconds=0.2)


@asynccontextmanager
async def relaying(
    fp: Fencepost, receiver: Receiver, *, pace: RelayLimits = QUICK, listener: Listener | None = None
) -> AsyncGenerator[Relay[outbox.Message, outbox.Settlement]]:
    errors = fp.metrics.counter("relay_errors", "Errors.", labels=("loop",))
    async with HttpClient(connect_seconds=2, reply_seconds=2) as client:
        hook = Webhook(client, receiver.url, backoff=Backoff(0.02), tries_max=3)
        relay = Relay("hooks", Channel(fp, "hooks"), hook, fp, fp.owner, errors, pace)
        relay.start(listener)
        try:
            yield relay
        finally:
            await relay.stop()


async def settled(fp: Fencepost, count: int) -> list[tuple[Any, ...]]:
    """Wait until so many messages have ended."""

    async def ended() -> list[tuple[Any, ...]]:
        async with fp.transaction() as tx:
            cursor = await tx.execute(
                "select id, state, attempts from fencepost.outbox_messages"
                " where settled_at is not null order by id"
            )
            return await cursor.fetchall()

    return await found(f"{count} messages have ended", ended, lambda rows: len(rows) >= count)


@pytest.fixture
async def fp(database: Database) -> AsyncGenerator[Fencepost]:
    async with Fencepost(database.url) as fp:
        yield fp


async def test_messages_arrive_in_order_for_a_key_and_end_as_sent(fp: Fencepost) -> None:
    async with receiving() as receiver:
        for number in range(6):
            await fp.run(outbox.put("hooks", {"n": number}, key=f"k{number % 2}"))
        async with relaying(fp, receiver):
            rows = await settled(fp, 6)
    assert {state for _, state, _ in rows} == {"sent"}
    for parity in (0, 1):
        got = [body["n"] for _, body in receiver.got if body["n"] % 2 == parity]
        assert got == [parity, parity + 2, parity + 4]


async def test_a_lost_answer_is_followed_by_a_repeat_under_the_same_key(fp: Fencepost) -> None:
    async with receiving(0, 503) as receiver:
        await fp.run(outbox.put("hooks", {"n": 1}))
        async with relaying(fp, receiver):
            [(_, state, attempts)] = await settled(fp, 1)
    assert (state, attempts) == ("sent", 3)
    assert len({key for key, _ in receiver.got}) == 1


async def test_a_definite_no_is_dead_and_frees_its_key(fp: Fencepost) -> None:
    async with receiving(400) as receiver:
        for number in range(2):
            await fp.run(outbox.put("hooks", {"n": number}, key="k"))
        async with relaying(fp, receiver):
            rows = await settled(fp, 2)
    assert [state for _, state, _ in rows] == ["dead", "sent"]


async def test_a_taker_that_dies_is_replaced(fp: Fencepost) -> None:
    def crash() -> None:
        raise PlannedCrash

    async with receiving() as receiver:
        await fp.run(outbox.put("hooks", {"n": 1}))
        async with relaying(fp, receiver):
            with at_crash_point("outbox.after_delivery", crash):
                [(_, state, attempts)] = await settled(fp, 1)
    assert (state, attempts) == ("sent", 2)
    assert [key for key, _ in receiver.got] == [receiver.got[0][0]] * 2


async def test_a_sleeping_relay_is_woken_by_a_put(fp: Fencepost, database: Database) -> None:
    """It polls once in a minute: only the notification can be this quick."""
    patient = RelayLimits(lease_seconds=60, idle_seconds=60, keep_seconds=60)
    listener = Listener(database.admin_url)
    listening = asyncio.create_task(listener.run())
    async with receiving() as receiver:
        with Signals() as signals:
            async with relaying(fp, receiver, pace=patient, listener=listener):
                await signals.wait("listener.listening")
                await signals.wait("outbox.idle")
                await signals.wait("hooks.fetch.ticked")
                await fp.run(outbox.put("hooks", {"n": 1}))
                rows = await settled(fp, 1)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    assert rows[0][1] == "sent"


async def test_a_slow_delivery_keeps_its_take(fp: Fencepost) -> None:
    """The receiver takes longer than the lease: the take is renewed, and it is not delivered a second
    time."""
    async with receiving() as receiver:
        receiver.seconds = 1.5
        await fp.run(outbox.put("hooks", {"n": 1}))
        async with relaying(fp, receiver):
            [(_, state, attempts)] = await settled(fp, 1)
    assert (state, attempts, len(receiver.got)) == ("sent", 1, 1)


async def test_a_settlement_that_cannot_be_stored_holds_up_no_caller(fp: Fencepost) -> None:
    """A destination that answers with what PostgreSQL cannot store: its message alone is tried again."""

    class Odd(Webhook):
        async def deliver(self, message: outbox.Message) -> outbox.Settlement:
            right = await super().deliver(message)
            is_odd = message.payload["n"] == 1 and message.attempts == 1
            return replace(right, error="\0") if is_odd else right

    async with receiving() as receiver, HttpClient() as client:
        for number in range(4):
            await fp.run(outbox.put("hooks", {"n": number}))
        errors = fp.metrics.counter("relay_errors", "Errors.", labels=("loop",))
        hook = Odd(client, receiver.url)
        relay = Relay("hooks", Channel(fp, "hooks"), hook, fp, fp.owner, errors, QUICK)
        relay.start()
        rows = await settled(fp, 4)
        await relay.stop()
    assert [attempts for _, _, attempts in rows] == [1, 2, 1, 1]


async def test_whether_a_request_can_have_left_is_known() -> None:
    async with receiving(0) as receiver, HttpClient(connect_seconds=1, reply_seconds=1) as client:
        with pytest.raises(NotSent):
            await client.exchange(Request("POST", "http://127.0.0.1:1/hook"))
        with pytest.raises(NotSent):
            await client.exchange(Request("POST", "http://no-such-host.invalid/hook"))
        request = Request("POST", receiver.url, {"Idempotency-Key": "k"}, b"{}")
        with pytest.raises(MaybeSent):
            await client.exchange(request)
        assert (await client.exchange(request)).status == 200
