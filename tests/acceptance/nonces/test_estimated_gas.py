"""The gas of a transaction is what the chain's simulation needs; one that fails uses no nonce."""

from collections.abc import AsyncGenerator

import pytest

from fencepost.embedded import Database
from fencepost.errors import InvalidInput
from fencepost.testing import Clock
from fencepost_nonces._errors import ChainUnavailable
from fencepost_nonces.testing import RpcProxy, Unevenness
from tests.acceptance.nonces.anvil import ETHER, Anvil
from tests.acceptance.nonces.exchange import Exchange, opened, recipient

CONTRACT = "0x" + "c0" * 20
# Error("out of stock"), as Solidity encodes it; the code copies it into memory and reverts with it.
REASON = bytes.fromhex("08c379a0") + b"".join(
    (
        (0x20).to_bytes(32, "big"),
        len(b"out of stock").to_bytes(32, "big"),
        b"out of stock".ljust(32, b"\0"),
    )
)
REVERTS = bytes.fromhex("6064600c60003960646000fd") + REASON
STORES = bytes.fromhex("346000 5500".replace(" ", ""))  # Payable: it stores what it was paid in slot 0.
# With data it sets slot 0; without, it reverts while slot 0 is not set.
NEEDS_AN_EARLIER_ONE = bytes.fromhex("36600f5760005460165760006000fd5b6001600055005b00")


@pytest.fixture
async def exchange(database: Database, clock: Clock, anvil: Anvil) -> AsyncGenerator[Exchange]:
    async with opened(database, anvil) as exchange:
        yield exchange


def install(anvil: Anvil, code: bytes, at: str = CONTRACT) -> None:
    anvil.rpc("anvil_setCode", at, "0x" + code.hex())


async def gas_of(exchange: Exchange, transaction_id: int) -> int:
    return int((await exchange.acceptance.show(transaction_id))["gas"])


async def test_a_transfer_to_an_account_without_code_gets_21000(exchange: Exchange) -> None:
    paid = await exchange.pay("pay-1", recipient(1), 5, gas=None)

    assert await gas_of(exchange, paid) == 21_000
    await exchange.turn()
    await exchange.mine_until_confirmed(paid)
    assert exchange.anvil.balance(recipient(1)) == 5


async def test_a_payable_contract_gets_what_it_needs_and_a_margin(exchange: Exchange) -> None:
    install(exchange.anvil, STORES)

    paid = await exchange.pay("pay-1", CONTRACT, 5, gas=None)

    estimate = int(
        exchange.anvil.rpc("eth_estimateGas", {"from": exchange.signer.name, "to": CONTRACT, "value": "0x5"}),
        16,
    )
    assert await gas_of(exchange, paid) == -(-estimate * 120 // 100) > 43_000
    await exchange.turn()
    await exchange.mine_until_confirmed(paid)
    assert (await exchange.acceptance.show(paid))["receipt"]["status"] == 1
    assert exchange.anvil.balance(CONTRACT) == 5


async def test_a_simulation_that_reverts_is_refused_with_its_reason_and_uses_no_nonce(
    exchange: Exchange,
) -> None:
    install(exchange.anvil, REVERTS)

    with pytest.raises(InvalidInput, match=r'reverts with "out of stock".*no nonce was used') as refused:
        await exchange.pay("pay-1", CONTRACT, 5, gas=None)

    assert refused.value.field == "data"
    await exchange.turn()
    assert await exchange.acceptance.newest(10, None) == []
    paid = await exchange.pay("pay-1", recipient(1), 5, gas=None)
    await exchange.turn()
    assert (await exchange.acceptance.show(paid))["nonce"] == 0


async def test_one_that_depends_on_an_earlier_one_is_accepted_with_its_own_gas(exchange: Exchange) -> None:
    install(exchange.anvil, NEEDS_AN_EARLIER_ONE)
    first = await exchange.pay("set", CONTRACT, 0, gas=None, data=b"\x01")
    with pytest.raises(InvalidInput, match="give `gas`"):
        await exchange.pay("use", CONTRACT, 0, gas=None)

    second = await exchange.pay("use", CONTRACT, 0, gas=60_000)
    await exchange.turn()
    await exchange.mine_until_confirmed(second)

    for transaction_id in (first, second):
        assert (await exchange.acceptance.show(transaction_id))["receipt"]["status"] == 1


async def test_a_repeat_keeps_its_first_gas_whatever_the_chain_says_by_then(
    database: Database, clock: Clock, anvil: Anvil
) -> None:
    async with opened(database, anvil) as exchange:
        paid = await exchange.pay("pay-1", recipient(1), 5, gas=None)
    install(anvil, REVERTS, at=recipient(1))
    async with opened(database, anvil) as exchange:
        assert await exchange.pay("pay-1", recipient(1), 5, gas=None) == paid
    async with opened(database, anvil, urls="http://127.0.0.1:9") as exchange:
        assert await exchange.pay("pay-1", recipient(1), 5, gas=None) == paid
        assert await gas_of(exchange, paid) == 21_000


async def test_while_no_endpoint_answers_nothing_is_accepted_without_gas(
    database: Database, clock: Clock, anvil: Anvil
) -> None:
    async with opened(database, anvil, urls="http://127.0.0.1:9") as exchange:
        with pytest.raises(ChainUnavailable):
            await exchange.pay("pay-1", recipient(1), 5, gas=None)
        assert await exchange.acceptance.newest(10, None) == []

        assert await exchange.pay("pay-1", recipient(1), 5, gas=21_000)


async def test_without_funds_a_transfer_waits_and_a_call_is_refused(exchange: Exchange) -> None:
    install(exchange.anvil, STORES)
    exchange.anvil.fund(exchange.signer.name, ETHER // 1000)

    paid = await exchange.pay("pay-1", recipient(1), ETHER, gas=None)
    with pytest.raises(InvalidInput, match="less than `value`") as refused:
        await exchange.pay("pay-2", CONTRACT, ETHER, gas=None)

    assert refused.value.field == "value"
    await exchange.turn()
    assert (await exchange.state(paid))[0] == "BOUND"
    exchange.anvil.fund(exchange.signer.name)
    await exchange.turn()
    await exchange.mine_until_confirmed(paid)
    assert exchange.anvil.balance(recipient(1)) == ETHER


async def test_more_than_the_greatest_gas_is_refused(database: Database, clock: Clock, anvil: Anvil) -> None:
    install(anvil, STORES)
    async with opened(database, anvil, gas_max=40_000) as exchange:
        with pytest.raises(InvalidInput, match="NONCES_GAS_MAX"):
            await exchange.pay("pay-1", CONTRACT, 5, gas=None)


async def test_the_no_op_of_an_account_with_code_has_the_gas_that_it_needs(exchange: Exchange) -> None:
    """An account that delegates to a contract (EIP-7702) runs code when it pays itself."""
    install(exchange.anvil, STORES)
    paid = await exchange.pay("pay-1", recipient(1), 5)
    await exchange.turn()
    install(exchange.anvil, bytes.fromhex("ef0100" + CONTRACT[2:]), at=exchange.signer.name)

    await exchange.acceptance.cancel(paid)
    await exchange.turn()
    await exchange.mine_until_confirmed(paid)

    shown = await exchange.acceptance.show(paid)
    assert (shown["state"], shown["receipt"]["status"]) == ("CANCELLED", 1)
    assert int(exchange.anvil.rpc("eth_getTransactionByHash", shown["tx_hash"])["gas"], 16) > 21_000
    assert exchange.anvil.balance(recipient(1)) == 0


async def test_a_no_op_whose_simulation_fails_uses_its_nonce_all_the_same(exchange: Exchange) -> None:
    install(exchange.anvil, REVERTS)
    paid = await exchange.pay("pay-1", recipient(1), 5)
    await exchange.turn()
    install(exchange.anvil, bytes.fromhex("ef0100" + CONTRACT[2:]), at=exchange.signer.name)

    await exchange.acceptance.cancel(paid)
    await exchange.turn()
    await exchange.mine_until_confirmed(paid)

    shown = await exchange.acceptance.show(paid)
    assert (shown["state"], shown["receipt"]["status"]) == ("CANCELLED", 0)


async def test_a_backend_that_lags_does_not_take_a_new_contract_for_an_account_without_code(
    database: Database, clock: Clock, anvil: Anvil
) -> None:
    """Every read of the simulation names the newest block: an old backend does not know it."""
    with RpcProxy(anvil.url, seed=3, unevenness=Unevenness(stale=0.4)) as proxy:
        async with opened(database, anvil, urls=proxy.url) as exchange:
            anvil.mine(30)
            await exchange.pay("pay-0", recipient(1), 5, gas=None)
            install(anvil, STORES)
            anvil.mine()
            limits = {
                await gas_of(exchange, await exchange.pay(f"pay-{n}", CONTRACT, n, gas=None))
                for n in range(1, 9)
            }
        assert proxy.met["stale"] > 0
    assert min(limits) > 43_000, limits
