"""One URL over backends of which one lags: answers that contradict each other prove nothing.

The proxy before the chain answers chosen methods as a backend does that is some blocks behind, so that the
interleaving is the same in every run. What was proved by the storms at random is in `test_uneven_storm`.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from fencepost.embedded import Database
from fencepost.testing import Clock, RpcProxy, Unevenness
from tests.acceptance.nonces.anvil import CHAIN_ID, Anvil
from tests.acceptance.nonces.exchange import Exchange, new_account, opened, recipient

RECEIPT = "eth_getTransactionReceipt"
BLOCK = "eth_getBlockByNumber"
BEHIND = Unevenness(blocks_behind=(18, 18))


@asynccontextmanager
async def uneven(
    database: Database, anvil: Anvil, **settings: Any
) -> AsyncGenerator[tuple[Exchange, RpcProxy]]:
    with RpcProxy(anvil.url, unevenness=BEHIND) as rpc:
        async with opened(database, anvil, urls=rpc.url, **settings) as exchange:
            yield exchange, rpc


def sign_elsewhere(exchange: Exchange, nonce: int, to: str, value: int) -> str:
    """A wallet with the same key sends a transaction of its own."""
    signed = new_account(0).sign_transaction(
        {
            "type": 2,
            "chainId": CHAIN_ID,
            "nonce": nonce,
            "gas": 21_000,
            "maxFeePerGas": 10**11,
            "maxPriorityFeePerGas": 10**10,
            "to": to,
            "value": value,
            "data": "0x",
        }
    )
    exchange.anvil.rpc("anvil_dropAllTransactions")
    sent: str = exchange.anvil.rpc("eth_sendRawTransaction", "0x" + bytes(signed.raw_transaction).hex())
    return sent


async def test_a_receipt_of_a_backend_that_lags_does_not_make_a_mined_payment_a_lost_one(
    database: Database, clock: Clock, anvil: Anvil
) -> None:
    """The count is the fresh backend's, the receipt that of the one that lags, at every question."""
    async with uneven(database, anvil) as (exchange, rpc):
        paid = await exchange.pay("pay-1", recipient(1), 5)
        await exchange.turn()
        rpc.always_stale = {RECEIPT}
        await exchange.mine_and_turn(6)

        facts = await exchange.intake.show(paid)
        assert (facts["state"], facts["nonce"]) == ("BOUND", 0)
        rpc.always_stale.clear()
        await exchange.mine_and_turn(4)
        assert await exchange.state(paid) == ("CONFIRMED", "CONSUMED")
    assert (anvil.balance(recipient(1)), anvil.count(exchange.signer.name)) == (5, 1)
