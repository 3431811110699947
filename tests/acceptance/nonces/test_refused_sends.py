"""What a chain's node answers to the bytes, what the line does then, and what the sender is told.

What anvil cannot be made to say, a full pool for one, is said by a mock in its place, in the words of the
node that says it; everything else of the chain is real.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fencepost.embedded import Database
from fencepost.kernel import outbox
from fencepost.testing import Clock
from tests.acceptance.nonces.anvil import ETHER, Anvil
from tests.acceptance.nonces.exchange import Exchange, opened, recipient
from tests.acceptance.nonces.lossy_rpc import LossyRpc

SEND = "eth_sendRawTransaction"


@asynccontextmanager
async def refusing(
    database: Database, anvil: Anvil, text: str, **settings: Any
) -> AsyncGenerator[tuple[Exchange, LossyRpc]]:
    with LossyRpc(anvil.url) as rpc:
        async with opened(database, anvil, urls=rpc.url, **settings) as exchange:
            rpc.refuse[SEND] = text
            yield exchange, rpc


async def errors(exchange: Exchange, *ids: int) -> list[str | None]:
    return [(await exchange.acceptance.show(one))["error"] for one in ids]


async def is_paid(exchange: Exchange, *ids: int) -> None:
    """Each was mined once, and nothing is told of what stood in the way."""
    await exchange.mine_and_turn(3)
    assert {await exchange.state(one) for one in ids} == {("CONFIRMED", "CONSUMED")}
    assert await errors(exchange, *ids) == [None] * len(ids)
    assert exchange.anvil.count(exchange.signer.name) == len(ids)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("txpool is full", "pool_full: "),
        ("nonce too high: next nonce 0, tx nonce 1", "nonce_too_high: "),
        ("the moon is in the wrong house", "passing: "),
    ],
)
async def test_what_would_fail_alike_for_the_next_one_stops_the_line(
    database: Database, clock: Clock, anvil: Anvil, text: str, told: str
) -> None:
    async with refusing(database, anvil, text) as (exchange, rpc):
        ids = [await exchange.pay(f"pay-{i}", recipient(i)) for i in range(2)]
        await exchange.turn(2)

        assert rpc.refused[SEND] == 2, "the first one each turn, and the second never"
        assert [await exchange.state(one) for one in ids] == [("BOUND", "SIGNED"), ("BOUND", "HELD")]
        first, second = await errors(exchange, *ids)
        assert (first or "").startswith(told)
        assert second is None
        rpc.refuse.clear()
        await exchange.turn()
        await is_paid(exchange, *ids)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("replacement transaction underpriced", "underpriced: "),
        ("max fee per gas less than block base fee", "fee_too_low: "),
    ],
)
async def test_a_fee_that_is_too_low_is_raised_when_it_is_stuck_and_holds_up_no_caller(
    database: Database, clock: Clock, anvil: Anvil, text: str, told: str
) -> None:
    async with refusing(database, anvil, text, stuck_seconds=60.0) as (exchange, rpc):
        ids = [await exchange.pay(f"pay-{i}", recipient(i)) for i in range(2)]
        await exchange.turn()
        assert {await exchange.state(one) for one in ids} == {("BOUND", "BROADCAST")}
        assert all((error or "").startswith(told) for error in await errors(exchange, *ids))
        first = await exchange.acceptance.show(ids[0])
        rpc.refuse.clear()
        clock.advance(61)

        await exchange.turn()

        raised = anvil.rpc("eth_getTransactionByHash", (await exchange.acceptance.show(ids[0]))["tx_hash"])
        assert int(raised["maxFeePerGas"], 16) * 10 >= int(first["max_fee"]) * 11
        await is_paid(exchange, *ids)


@pytest.mark.parametrize(("text", "told"), [("already known", None), ("nonce too low", "nonce_too_low: ")])
async def test_what_is_known_or_used_is_as_good_as_sent_and_the_chain_tells_the_rest(
    database: Database, clock: Clock, anvil: Anvil, text: str, told: str | None
) -> None:
    """The node has it by another way. It is mined, and so deep at once that its end is seen next."""
    async with refusing(database, anvil, text) as (exchange, _):
        paid = await exchange.pay("pay-1", recipient(1))
        await exchange.turn()
        assert await exchange.state(paid) == ("BOUND", "BROADCAST")
        (error,) = await errors(exchange, paid)
        assert error is None if told is None else (error or "").startswith(told)
        with database.connect_admin() as admin:
            ((raw,),) = admin.execute("select raw from fencepost.nonce_signature").fetchall()
        anvil.rpc(SEND, "0x" + bytes(raw).hex())
        anvil.mine(4)

        await exchange.turn()

        assert await exchange.state(paid) == ("CONFIRMED", "CONSUMED")
        assert await errors(exchange, paid) == [None]


async def test_what_no_block_takes_is_rejected_and_a_no_op_takes_its_nonce(
    database: Database, clock: Clock, anvil: Anvil
) -> None:
    """More gas than a block has: anvil itself says so. What comes after it is mined."""
    async with opened(database, anvil, gas_max=50_000_000) as exchange:
        wrong = await exchange.pay("pay-1", recipient(1), 5, gas=40_000_000, webhook="webhook")
        right = await exchange.pay("pay-2", recipient(2), 7)
        await exchange.turn(2)
        facts = await exchange.acceptance.show(wrong)
        assert facts["error"].startswith("invalid: ")
        assert (facts["state"], facts["cancel_requested_at"] is not None) == ("BOUND", True)

        await exchange.mine_and_turn(3)

        assert await exchange.state(wrong) == ("REJECTED", "CONSUMED")
        assert (await exchange.state(right))[0] == "CONFIRMED"
        assert [anvil.balance(recipient(one)) for one in (1, 2)] == [0, 7]
        (message,) = await exchange.fp.run(outbox.take("webhook", "relay", 60, 10))
        assert (message.payload["event"], message.payload["state"]) == ("transaction.rejected", "REJECTED")
        assert message.payload["error"].startswith("invalid: ")
        ends = exchange.fp.metrics.registry.get_sample_value
        counted = [
            ends("fencepost_nonces_transactions_total", {"state": state})
            for state in ("REJECTED", "CONFIRMED")
        ]
        assert counted == [1, 1]


async def test_what_was_rejected_stays_rejected_when_a_stranger_takes_its_nonce(
    database: Database, clock: Clock, anvil: Anvil
) -> None:
    """No no-op is needed any more: the next nonce that it gets is given back unsigned."""
    async with opened(database, anvil, gas_max=50_000_000) as exchange:
        wrong = await exchange.pay("pay-1", recipient(1), 5, gas=40_000_000)
        await exchange.turn()
        exchange.sign_elsewhere(0, recipient(2), 7)
        await exchange.mine_and_turn(5)

        facts = await exchange.acceptance.show(wrong)
        assert (facts["state"], facts["error"].startswith("invalid: ")) == ("REJECTED", True)
        assert anvil.balance(recipient(1)) == 0
        assert await exchange.sample("gaps") == 1
        ends = exchange.fp.metrics.registry.get_sample_value
        assert ends("fencepost_nonces_transactions_total", {"state": "REJECTED"}) == 1


async def test_a_signer_that_cannot_pay_is_reported_until_it_can(
    database: Database, clock: Clock, anvil: Anvil
) -> None:
    async with opened(database, anvil) as exchange:
        paid = await exchange.pay("pay-1", recipient(1), 1000 * ETHER)
        await exchange.turn()
        (error,) = await errors(exchange, paid)
        assert (error or "").startswith("insufficient_funds: ")
        anvil.fund(exchange.signer.name, 2000 * ETHER)
        await exchange.turn()
        await is_paid(exchange, paid)


async def test_a_market_above_the_cap_is_told(database: Database, clock: Clock, anvil: Anvil) -> None:
    async with opened(database, anvil, max_fee_gwei=0.1) as exchange:
        paid = await exchange.pay("pay-1", recipient(1))
        await exchange.turn()
        (error,) = await errors(exchange, paid)
        assert (error or "").startswith("fee_cap: ")
        assert await exchange.state(paid) == ("BOUND", "HELD")


async def test_what_is_cancelled_at_once_is_counted_once(
    database: Database, clock: Clock, anvil: Anvil
) -> None:
    async with opened(database, anvil) as exchange:
        waiting = await exchange.pay("pay-1", recipient(1))
        for _ in range(2):
            assert (await exchange.acceptance.cancel(waiting))["state"] == "CANCELLED"
        ends = exchange.fp.metrics.registry.get_sample_value
        assert ends("fencepost_nonces_transactions_total", {"state": "CANCELLED"}) == 1
