"""A chain from before EIP-1559: its blocks have no base fee, and a transaction offers one gas price."""

from collections.abc import Iterator

import pytest

from fencepost.embedded import Database
from fencepost.testing import Clock, PlannedCrash, crash_at
from fencepost_nonces.sending._fees import GWEI
from tests.acceptance.nonces.anvil import Anvil, running_anvil
from tests.acceptance.nonces.exchange import new_account, opened, recipient


@pytest.fixture
def anvil() -> Iterator[Anvil]:
    with running_anvil("--hardfork", "berlin", "--gas-price", str(2 * GWEI)) as anvil:
        assert "baseFeePerGas" not in anvil.rpc("eth_getBlockByNumber", "latest", False)
        yield anvil


async def test_a_transaction_is_mined_at_one_gas_price(database: Database, anvil: Anvil) -> None:
    async with opened(database, anvil) as exchange:
        paid = await exchange.pay("pay-1", recipient(1), 5)
        await exchange.turn()
        await exchange.mine_and_turn(3)

        facts = await exchange.acceptance.show(paid)
        assert (facts["state"], facts["max_fee"], facts["max_priority"]) == (
            "CONFIRMED",
            str(2 * GWEI),
            None,
        )
        assert anvil.rpc("eth_getTransactionByHash", facts["tx_hash"])["type"] == "0x0"
        assert anvil.balance(recipient(1)) == 5


async def test_a_stuck_one_is_replaced_at_a_tenth_more(
    database: Database, clock: Clock, anvil: Anvil
) -> None:
    async with opened(database, anvil, stuck_seconds=60.0) as exchange:
        paid = await exchange.pay("pay-1", recipient(1), 5)
        await exchange.turn()
        clock.advance(61)
        await exchange.turn()

        newest = (await exchange.acceptance.show(paid))["tx_hash"]
        offered = anvil.rpc("eth_getTransactionByHash", newest)
        assert int(offered["gasPrice"], 16) * 10 >= 2 * GWEI * 11
        await exchange.mine_and_turn(3)
        assert (await exchange.state(paid))[0] == "CONFIRMED"
        assert anvil.balance(recipient(1)) == 5


async def test_a_caller_that_takes_over_signs_at_the_price_that_was_chosen(
    database: Database, clock: Clock, anvil: Anvil
) -> None:
    account = new_account(1)
    async with opened(database, anvil, account=account) as first:
        paid = await first.pay("pay-1", recipient(1), 5)
        with pytest.raises(PlannedCrash), crash_at("nonces.after_signing"):
            await first.turn()
        clock.advance(20)
        anvil.rpc("anvil_setMinGasPrice", hex(3 * GWEI))
        async with opened(database, anvil, account=account) as second:
            await second.turn()
            facts = await second.acceptance.show(paid)
    # The chain asks for more by now; but what may have been signed already must not be another content.
    assert (facts["nonce_status"], facts["max_fee"]) == ("BROADCAST", str(2 * GWEI))
