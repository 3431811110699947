"""One URL over backends of which one lags: answers that contradict each other prove nothing.

The proxy before the chain answers chosen methods as a backend does that is some blocks behind, so that the
interleaving is the same in every run. The same at random is in `test_uneven_storm`.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fencepost.cli._app import run
from fencepost.cli.exit_codes import ExitCode
from fencepost.embedded import Database
from fencepost.testing import Clock
from fencepost_nonces.testing import RpcProxy, Unevenness
from tests.acceptance.nonces.anvil import CHAIN_ID, Anvil
from tests.acceptance.nonces.exchange import Exchange, opened, recipient

RECEIPT = "eth_getTransactionReceipt"
COUNT = "eth_getTransactionCount"
HEAD = "eth_blockNumber"
BLOCK = "eth_getBlockByNumber"
BEHIND = Unevenness(blocks_behind=(18, 18))


@asynccontextmanager
async def uneven(
    database: Database, anvil: Anvil, **settings: Any
) -> AsyncGenerator[tuple[Exchange, RpcProxy]]:
    with RpcProxy(anvil.url, unevenness=BEHIND) as rpc:
        async with opened(database, anvil, urls=rpc.url, **settings) as exchange:
            yield exchange, rpc


@pytest.mark.parametrize("missing", ["stale", "null"])
async def test_a_missing_receipt_does_not_make_a_mined_payment_a_lost_one(
    database: Database, clock: Clock, anvil: Anvil, missing: str
) -> None:
    """The count is the fresh backend's, the receipt that of the one that lags, at every question."""
    async with uneven(database, anvil) as (exchange, rpc):
        paid = await exchange.pay("pay-1", recipient(1), 5)
        await exchange.turn()
        (rpc.always_stale if missing == "stale" else rpc.always_null).add(RECEIPT)
        await exchange.mine_and_turn(6)

        facts = await exchange.acceptance.show(paid)
        assert (facts["state"], facts["nonce"]) == ("BOUND", 0)
        assert facts["unproved_since"] is None, "its block shows that it is ours"
        rpc.always_stale.clear()
        rpc.always_null.clear()
        await exchange.mine_and_turn(4)
        assert await exchange.state(paid) == ("CONFIRMED", "CONSUMED")
    assert (anvil.balance(recipient(1)), anvil.count(exchange.signer.name)) == (5, 1)


async def test_a_stranger_is_not_believed_in_before_the_blocks_on_top_are_shown(
    database: Database, clock: Clock, anvil: Anvil
) -> None:
    """The backend that shows blocks lags: what used the nonce cannot be seen, so it is kept, and shown."""
    async with uneven(database, anvil) as (exchange, rpc):
        paid = await exchange.pay("pay-1", recipient(1), 5)
        await exchange.turn()
        exchange.sign_elsewhere(0, recipient(2), 7)
        rpc.always_stale = {BLOCK}
        await exchange.mine_and_turn(6)

        facts = await exchange.acceptance.show(paid)
        assert (facts["state"], facts["nonce"]) == ("BOUND", 0)
        assert facts["unproved_since"] is not None
        clock.advance(61)
        assert await exchange.sample("unproved") == 1
        rpc.always_stale.clear()
        await exchange.turn(2)
        assert await exchange.sample("unproved") == 0
        await exchange.mine_and_turn(4)
        assert await exchange.state(paid) == ("CONFIRMED", "CONSUMED")
        assert (await exchange.acceptance.show(paid))["nonce"] == 1
    assert [anvil.balance(recipient(one)) for one in (1, 2)] == [5, 7]


async def test_a_mined_payment_stays_mined_while_its_receipt_and_block_are_not_shown(
    database: Database, clock: Clock, anvil: Anvil
) -> None:
    """A null is no reorganisation: only another block in the place of its block is one."""
    async with uneven(database, anvil) as (exchange, rpc):
        paid = await exchange.pay("pay-1", recipient(1), 5)
        await exchange.turn()
        await exchange.mine_and_turn()
        assert (await exchange.state(paid))[0] == "MINED"
        rpc.always_null = {RECEIPT, BLOCK}
        sent = rpc.met["eth_sendRawTransaction"]
        await exchange.mine_and_turn(4)

        assert (await exchange.state(paid))[0] == "MINED"
        assert rpc.met["eth_sendRawTransaction"] == sent
        rpc.always_null.clear()
        await exchange.turn()
        assert (await exchange.state(paid))[0] == "CONFIRMED"


async def test_a_receipt_for_a_block_that_is_not_shown_confirms_nothing(
    database: Database, clock: Clock, anvil: Anvil
) -> None:
    async with uneven(database, anvil) as (exchange, rpc):
        paid = await exchange.pay("pay-1", recipient(1), 5)
        await exchange.turn()
        rpc.always_stale = {BLOCK}
        await exchange.mine_and_turn(4)
        assert (await exchange.state(paid))[0] == "BOUND"

        rpc.always_stale.clear()
        await exchange.turn()
        assert (await exchange.state(paid))[0] == "CONFIRMED"


async def test_a_head_that_goes_back_is_counted_and_moves_nothing(
    database: Database, clock: Clock, anvil: Anvil
) -> None:
    async with uneven(database, anvil) as (exchange, rpc):
        anvil.mine(30)
        await exchange.pay("pay-1", recipient(1))
        await exchange.turn()
        rpc.always_stale = {HEAD, COUNT}
        waiting = await exchange.pay("pay-2", recipient(2))
        await exchange.turn()

        assert (await exchange.state(waiting))[0] == "QUEUED"
        assert await exchange.sample("contradictions_total") == 1
        failed = exchange.fp.metrics.registry.get_sample_value(
            "fencepost_nonces_loop_errors_total", {"loop": "transactions"}
        )
        assert not failed, "an endpoint that lags is no error of the loop"
        rpc.always_stale.clear()
        await exchange.turn()
        assert (await exchange.state(waiting))[0] == "BOUND"


async def test_a_count_of_a_backend_that_lags_consumes_no_reservation(
    database: Database, clock: Clock, anvil: Anvil
) -> None:
    """A caller that signs by itself, and says nothing: the chain is asked about it at blocks that are
    named."""
    async with uneven(database, anvil, hold_seconds=10.0, idle_seconds=0.01) as (exchange, rpc):
        (held,) = await exchange.node.reserve(exchange.signer, ["outside"])
        exchange.sign_elsewhere(held.nonce, recipient(2), 7)
        anvil.mine(6)
        clock.advance(11)
        rpc.always_stale = {COUNT}
        await exchange.maintenance.ask_the_chains()
        (row,) = await exchange.node.reserve(exchange.signer, ["outside"])
        assert row.status == "HELD"

        rpc.always_stale.clear()
        await exchange.maintenance.ask_the_chains()
        (row,) = await exchange.node.reserve(exchange.signer, ["outside"])
        assert row.status == "CONSUMED"


async def test_a_person_closes_a_payment_that_was_sped_up_from_a_wallet(
    database: Database,
    clock: Clock,
    anvil: Anvil,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with opened(database, anvil) as exchange:
        paid = await exchange.pay("pay-1", recipient(1), 5)
        await exchange.turn()
        sped_up = exchange.sign_elsewhere(0, recipient(1), 5)
        await exchange.mine_and_turn(5)
    clock.advance(20)
    monkeypatch.setenv("DATABASE_URL", database.url)
    monkeypatch.setenv("NONCES_CHAINS", f"{CHAIN_ID}={anvil.url}")

    closing = await asyncio.to_thread(run, ["tx", "close", str(paid), "--tx-hash", sped_up])

    assert (closing, capsys.readouterr().out.strip()) == (ExitCode.OK, f"transaction {paid}: CONFIRMED")
    with database.connect_admin() as admin:
        rows = admin.execute("select state, unproved_since from fencepost.managed_transaction").fetchall()
    assert rows == [("CONFIRMED", None)]
    assert anvil.balance(recipient(1)) == 5
