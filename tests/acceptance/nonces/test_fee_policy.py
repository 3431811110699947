"""Speed, cap and deadline of one transaction: no version is above the cap, and a deadline keeps the nonce."""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest

from fencepost.embedded import Database
from fencepost.errors import InvalidInput, Mismatch
from fencepost.testing import Clock, PlannedCrash, crash_at
from fencepost_nonces.sending._fees import GWEI, Speed
from fencepost_nonces.sending._transaction_calls import FeePolicy
from tests.acceptance.nonces.anvil import Anvil
from tests.acceptance.nonces.exchange import Exchange, opened, recipient


@pytest.fixture
async def exchange(database: Database, clock: Clock, anvil: Anvil) -> AsyncGenerator[Exchange]:
    async with opened(database, anvil, stuck_seconds=60.0) as exchange:
        yield exchange


def in_minutes(minutes: float, fee_cap: int | None = None) -> FeePolicy:
    return FeePolicy(fee_cap=fee_cap, deadline=datetime.now(UTC) + timedelta(minutes=minutes))


def offered(exchange: Exchange, tx_hash: str) -> int:
    return int(exchange.anvil.rpc("eth_getTransactionByHash", tx_hash)["maxFeePerGas"], 16)


async def test_no_version_offers_more_than_the_cap(exchange: Exchange, clock: Clock) -> None:
    cap = 4 * GWEI
    paid = await exchange.pay("pay-1", recipient(1), 5, policy=FeePolicy(fee_cap=cap))
    seen: list[int] = []
    for _ in range(8):
        await exchange.turn()
        clock.advance(61)
        seen.append(offered(exchange, (await exchange.acceptance.show(paid))["tx_hash"]))

    shown = await exchange.acceptance.show(paid)
    assert max(seen) <= cap
    assert len(set(seen)) > 1, "nothing was replaced: the test has shown nothing"
    assert shown["error"].startswith("fee_cap: the chain asks for more than its own fee_cap")
    assert shown["fee_cap"] == str(cap)
    await exchange.mine_until_confirmed(paid)
    assert exchange.anvil.balance(recipient(1)) == 5


async def test_a_cap_below_the_market_waits_unsigned(exchange: Exchange) -> None:
    paid = await exchange.pay("pay-1", recipient(1), 5, policy=FeePolicy(fee_cap=10))

    await exchange.turn(2)

    assert await exchange.state(paid) == ("BOUND", "HELD")
    assert "its own fee_cap" in (await exchange.acceptance.show(paid))["error"]


async def test_one_that_waits_is_cancelled_at_its_deadline_and_takes_no_nonce(
    exchange: Exchange, clock: Clock
) -> None:
    paid = await exchange.pay("pay-1", recipient(1), 5, policy=in_minutes(5), webhook="webhook")
    clock.advance(301)

    await exchange.turn()

    shown = await exchange.acceptance.show(paid)
    assert (shown["state"], shown["nonce"]) == ("CANCELLED", None)
    assert shown["error"].startswith("deadline:")
    assert shown["expired_at"] > shown["deadline"]
    assert await exchange.sample("transactions_total") is None, "the counter has a label"
    assert (
        exchange.fp.metrics.registry.get_sample_value(
            "fencepost_nonces_transactions_total", {"state": "CANCELLED"}
        )
        == 1
    )


async def test_one_that_was_sent_gives_its_nonce_to_a_no_op_at_its_deadline(
    exchange: Exchange, clock: Clock
) -> None:
    cap = 20 * GWEI
    paid = await exchange.pay("pay-1", recipient(1), 5, policy=in_minutes(5, fee_cap=cap))
    later = await exchange.pay("pay-2", recipient(2), 6)
    await exchange.turn()
    clock.advance(301)

    await exchange.turn()
    shown = await exchange.acceptance.show(paid)
    assert (shown["state"], shown["nonce"], shown["expired_at"] is None) == ("BOUND", 0, False)
    assert offered(exchange, shown["tx_hash"]) <= cap
    await exchange.mine_until_confirmed(paid)

    shown = await exchange.acceptance.show(paid)
    assert (shown["state"], shown["nonce"], shown["nonce_status"]) == ("CANCELLED", 0, "CONSUMED")
    assert shown["error"].startswith("deadline:")
    assert exchange.anvil.balance(recipient(1)) == 0
    assert (await exchange.state(later))[0] == "CONFIRMED"
    assert exchange.anvil.balance(recipient(2)) == 6


async def test_at_its_highest_fee_there_is_still_room_for_the_no_op_below_the_cap(
    exchange: Exchange, clock: Clock
) -> None:
    cap = 4 * GWEI
    paid = await exchange.pay("pay-1", recipient(1), 5, policy=in_minutes(20, fee_cap=cap))
    for _ in range(8):
        await exchange.turn()
        clock.advance(61)
    highest = offered(exchange, (await exchange.acceptance.show(paid))["tx_hash"])
    clock.advance(1200)

    await exchange.turn()

    no_op = offered(exchange, (await exchange.acceptance.show(paid))["tx_hash"])
    assert highest * 11 <= no_op * 10 <= cap * 10
    await exchange.mine_until_confirmed(paid)
    assert (await exchange.state(paid))[0] == "CANCELLED"
    assert exchange.anvil.balance(recipient(1)) == 0


async def test_one_that_was_mined_in_time_is_confirmed_behind_its_deadline(
    exchange: Exchange, clock: Clock
) -> None:
    paid = await exchange.pay("pay-1", recipient(1), 5, policy=in_minutes(5))
    await exchange.turn()
    await exchange.mine_and_turn()
    assert (await exchange.state(paid))[0] == "MINED"
    clock.advance(301)

    await exchange.mine_until_confirmed(paid)

    shown = await exchange.acceptance.show(paid)
    assert (shown["state"], shown["expired_at"], shown["error"]) == ("CONFIRMED", None, None)
    assert exchange.anvil.balance(recipient(1)) == 5


async def test_one_whose_block_was_taken_back_is_cancelled_when_its_deadline_has_passed(
    exchange: Exchange, clock: Clock
) -> None:
    paid = await exchange.pay("pay-1", recipient(1), 5, policy=in_minutes(5))
    await exchange.turn()
    await exchange.mine_and_turn()
    exchange.anvil.rpc("anvil_reorg", 1, [])
    clock.advance(301)

    await exchange.turn(2)
    await exchange.mine_until_confirmed(paid)

    assert (await exchange.state(paid))[0] == "CANCELLED"
    assert exchange.anvil.balance(recipient(1)) == 0


@pytest.mark.parametrize("point", ["nonces.after_signing", "nonces.before_signed", "nonces.after_signed"])
async def test_a_crash_before_it_was_sent_and_a_deadline_send_only_the_no_op(
    database: Database, clock: Clock, anvil: Anvil, point: str
) -> None:
    async with opened(database, anvil) as exchange:
        paid = await exchange.pay("pay-1", recipient(1), 5, policy=in_minutes(5))
        with crash_at(point), pytest.raises(PlannedCrash):
            await exchange.turn()
    clock.advance(301)

    async with opened(database, anvil) as exchange:
        await exchange.turn(2)
        await exchange.mine_until_confirmed(paid)

        assert await exchange.state(paid) == ("CANCELLED", "CONSUMED")
        assert [int(tx["value"], 16) for tx in anvil.transactions()] == [0]


async def test_a_deadline_in_the_past_is_refused_and_a_repeat_of_one_is_answered(
    exchange: Exchange, clock: Clock
) -> None:
    with pytest.raises(InvalidInput, match="passed"):
        await exchange.pay("pay-1", recipient(1), 5, policy=in_minutes(-1))

    policy = in_minutes(5)
    paid = await exchange.pay("pay-1", recipient(1), 5, policy=policy)
    assert await exchange.pay("pay-1", recipient(1), 5, policy=policy) == paid
    with pytest.raises(Mismatch):
        await exchange.pay("pay-1", recipient(1), 5, policy=in_minutes(9))


async def test_a_fast_one_offers_what_the_fastest_tenth_paid(exchange: Exchange) -> None:
    senders = [recipient(100 + number) for number in range(10)]
    for sender in senders:
        exchange.anvil.fund(sender)
        exchange.anvil.rpc("anvil_impersonateAccount", sender)
    for _ in range(3):
        for tip, sender in enumerate(senders, start=1):
            fees = {"maxFeePerGas": hex(50 * GWEI), "maxPriorityFeePerGas": hex(tip * GWEI)}
            exchange.anvil.rpc(
                "eth_sendTransaction", {"from": sender, "to": recipient(1), "value": "0x1", **fees}
            )
        exchange.anvil.mine()
    ids = {
        speed: await exchange.pay(speed, recipient(2), 1, policy=FeePolicy(speed=speed))
        for speed in get_args(Speed)
    }

    await exchange.turn()

    tips = {
        speed: int((await exchange.acceptance.show(one))["max_priority"]) / GWEI for speed, one in ids.items()
    }
    assert tips["slow"] <= tips["standard"] < tips["fast"], tips
    assert 9 <= tips["fast"] <= 10, tips
