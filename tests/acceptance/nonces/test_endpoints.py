"""Several endpoints of one chain: dead, of another chain, behind the others, or their replies are lost."""

import pytest

from fencepost.embedded import Database
from fencepost.testing import Clock
from tests.acceptance.nonces.anvil import Anvil, running_anvil
from tests.acceptance.nonces.exchange import opened, recipient
from tests.acceptance.nonces.lossy_rpc import LossyRpc


async def test_a_dead_endpoint_is_passed_over(database: Database, clock: Clock, anvil: Anvil) -> None:
    async with opened(database, anvil, urls=f"http://127.0.0.1:9|{anvil.url}") as exchange:
        paid = await exchange.pay("pay-1", recipient(1), 5)
        await exchange.turn()
        await exchange.mine_and_turn(3)
        assert (await exchange.state(paid))[0] == "CONFIRMED"


@pytest.mark.parametrize("says", [(429, 429), (200, -32005)], ids=["by HTTP", "by its code"])
async def test_an_endpoint_that_has_no_time_for_us_is_passed_over(
    database: Database, clock: Clock, anvil: Anvil, says: tuple[int, int]
) -> None:
    with LossyRpc(anvil.url) as busy:
        async with opened(database, anvil, urls=f"{busy.url}|{anvil.url}") as exchange:
            await exchange.turn()
            busy.says = says
            paid = await exchange.pay("pay-1", recipient(1), 5)
            await exchange.turn()
            await exchange.mine_and_turn(3)
            assert (await exchange.state(paid))[0] == "CONFIRMED"


async def test_an_endpoint_of_another_chain_is_not_used(
    database: Database, clock: Clock, anvil: Anvil
) -> None:
    with running_anvil("--chain-id", "5") as other:
        async with opened(database, anvil, urls=f"{other.url}|{anvil.url}") as exchange:
            await exchange.pay("pay-1", recipient(1), 5)
            await exchange.turn()
            await exchange.mine_and_turn(3)
        assert other.balance(recipient(1)) == 0
        assert anvil.balance(recipient(1)) == 5


async def test_a_reply_that_is_lost_is_no_second_payment(
    database: Database, clock: Clock, anvil: Anvil
) -> None:
    """The node has taken the bytes and its answer was lost: the same bytes again, and it knows them."""
    loses = {"eth_sendRawTransaction": 1}
    with LossyRpc(anvil.url, loses) as rpc:
        async with opened(database, anvil, urls=rpc.url) as exchange:
            paid = await exchange.pay("pay-1", recipient(1), 5)
            await exchange.turn()
            assert await exchange.state(paid) == ("BOUND", "SIGNED")
            loses.clear()
            await exchange.turn()
            await exchange.mine_and_turn(3)

            assert await exchange.state(paid) == ("CONFIRMED", "CONSUMED")
        assert rpc.lost["eth_sendRawTransaction"] > 0
    assert (anvil.balance(recipient(1)), anvil.count(exchange.signer.name)) == (5, 1)


async def test_an_endpoint_that_lags_behind_does_not_make_a_mined_payment_a_lost_one(
    database: Database, clock: Clock, anvil: Anvil
) -> None:
    """One has counted past the nonce; the other, asked for the receipt, knows nothing of it yet."""
    with running_anvil() as behind, LossyRpc(anvil.url, {"eth_getTransactionReceipt": 1}) as ahead:
        async with opened(database, anvil, urls=f"{ahead.url}|{behind.url}") as exchange:
            paid = await exchange.pay("pay-1", recipient(1), 5)
            await exchange.turn()
            anvil.mine(5)
            await exchange.turn()

            assert ahead.lost["eth_getTransactionReceipt"] > 0
            assert (await exchange.acceptance.show(paid))["nonce"] == 0
            assert (await exchange.state(paid))[0] == "BOUND"
    clock.advance(20)
    async with opened(database, anvil) as exchange:
        await exchange.mine_and_turn(2)
        assert (await exchange.state(paid))[0] == "CONFIRMED"
    assert (anvil.balance(recipient(1)), anvil.count(exchange.signer.name)) == (5, 1)
