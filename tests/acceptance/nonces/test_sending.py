"""Managed transactions on a real chain: mined once, whatever the pool, the blocks and the fees do."""

from collections.abc import AsyncGenerator

import pytest
import structlog
from psycopg.sql import SQL, Identifier

from fencepost.cli._app import run
from fencepost.cli.exit_codes import ExitCode
from fencepost.embedded import Database
from fencepost.errors import AlreadyFinished, InvalidInput, Mismatch
from fencepost.kernel import outbox
from fencepost.testing import Clock, PlannedCrash, crash_at
from fencepost_nonces.sending._fees import GWEI
from fencepost_nonces.signer import Signer
from fencepost_torture.systems._transactions import Transactions
from tests.acceptance.nonces.anvil import CHAIN_ID, ETHER, Anvil
from tests.acceptance.nonces.exchange import Exchange, new_account, opened, recipient


@pytest.fixture
async def exchange(database: Database, clock: Clock, anvil: Anvil) -> AsyncGenerator[Exchange]:
    async with opened(database, anvil) as exchange:
        yield exchange


async def test_transactions_are_mined_once_and_confirmed_in_depth(exchange: Exchange) -> None:
    ids = [await exchange.pay(f"pay-{i}", recipient(i), 100 + i) for i in range(5)]
    await exchange.turn()
    assert {await exchange.state(i) for i in ids} == {("BOUND", "BROADCAST")}
    await exchange.mine_and_turn()
    assert {await exchange.state(i) for i in ids} == {("MINED", "BROADCAST")}

    await exchange.mine_and_turn(2)

    assert {await exchange.state(i) for i in ids} == {("CONFIRMED", "CONSUMED")}
    assert [exchange.anvil.balance(recipient(i)) for i in range(5)] == [100 + i for i in range(5)]
    assert exchange.anvil.count(exchange.signer.name) == 5
    facts = await exchange.acceptance.show(ids[0])
    assert (facts["nonce"], facts["receipt"]["status"]) == (0, 1)


async def test_the_same_key_sends_once_and_another_content_is_refused(exchange: Exchange) -> None:
    first = await exchange.pay("pay-1", recipient(1), 7)
    assert await exchange.pay("pay-1", recipient(1), 7) == first

    with pytest.raises(Mismatch):
        await exchange.pay("pay-1", recipient(1), 8)

    await exchange.turn()
    await exchange.mine_and_turn(3)
    assert await exchange.pay("pay-1", recipient(1), 7) == first
    assert exchange.anvil.balance(recipient(1)) == 7


async def test_a_new_signer_begins_where_its_chain_is(exchange: Exchange) -> None:
    exchange.anvil.rpc("anvil_setNonce", exchange.signer.name, hex(41))

    paid = await exchange.pay("pay-1", recipient(1))
    await exchange.turn()
    await exchange.mine_and_turn(3)

    assert (await exchange.acceptance.show(paid))["nonce"] == 41
    assert exchange.anvil.balance(recipient(1)) == 1


def test_the_command_begins_where_the_chain_is_and_lifts_a_sequence_to_it(
    database: Database, anvil: Anvil, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", database.url)
    monkeypatch.setenv("NONCES_CHAINS", f"{CHAIN_ID}={anvil.url}")
    name = new_account(9).address
    anvil.rpc("anvil_setNonce", name, hex(4))
    assert run(["nonces", "reserve", str(CHAIN_ID), name, "r1"]) == ExitCode.OK
    assert "r1: nonce 4, hold 1" in capsys.readouterr().out
    anvil.rpc("anvil_setNonce", name, hex(7))

    assert run(["nonces", "sync", str(CHAIN_ID), name]) == ExitCode.OK

    assert "next nonce 7" in capsys.readouterr().out


async def test_a_pool_that_was_dropped_gets_the_same_bytes_again(exchange: Exchange) -> None:
    paid = await exchange.pay("pay-1", recipient(1))
    await exchange.turn()
    before = (await exchange.acceptance.show(paid))["tx_hash"]
    exchange.anvil.rpc("anvil_dropAllTransactions")

    await exchange.turn()
    await exchange.mine_and_turn(3)

    assert (await exchange.state(paid))[0] == "CONFIRMED"
    assert (await exchange.acceptance.show(paid))["tx_hash"] == before


async def test_a_reorganisation_takes_the_block_back_and_it_is_mined_again(exchange: Exchange) -> None:
    paid = await exchange.pay("pay-1", recipient(1), 9)
    await exchange.turn()
    await exchange.mine_and_turn()
    assert (await exchange.state(paid))[0] == "MINED"
    exchange.anvil.rpc("anvil_reorg", 1, [])
    assert exchange.anvil.balance(recipient(1)) == 0

    await exchange.turn()
    assert (await exchange.state(paid))[0] == "BOUND"
    await exchange.mine_and_turn(3)

    assert (await exchange.state(paid))[0] == "CONFIRMED"
    assert exchange.anvil.balance(recipient(1)) == 9


async def test_a_stuck_transaction_is_replaced_at_a_tenth_more(
    database: Database, clock: Clock, anvil: Anvil
) -> None:
    async with opened(database, anvil, stuck_seconds=60.0) as exchange:
        paid = await exchange.pay("pay-1", recipient(1), 5)
        await exchange.turn()
        first = await exchange.acceptance.show(paid)
        clock.advance(61)
        await exchange.turn()

        second = await exchange.acceptance.show(paid)
        assert second["tx_hash"] != first["tx_hash"]
        replaced = anvil.rpc("eth_getTransactionByHash", second["tx_hash"])
        assert int(replaced["maxFeePerGas"], 16) * 10 >= int(first["max_fee"]) * 11
        await exchange.mine_and_turn(3)
        assert (await exchange.state(paid))[0] == "CONFIRMED"
        assert anvil.balance(recipient(1)) == 5


async def test_the_cap_ends_the_raising(database: Database, clock: Clock, anvil: Anvil) -> None:
    async with opened(database, anvil, stuck_seconds=60.0, max_fee_gwei=3.2) as exchange:
        paid = await exchange.pay("pay-1", recipient(1))
        await exchange.turn()
        for _ in range(12):
            clock.advance(61)
            await exchange.turn()

        newest = (await exchange.acceptance.show(paid))["tx_hash"]
        offered = anvil.rpc("eth_getTransactionByHash", newest)
        assert int(offered["maxFeePerGas"], 16) <= 3.2 * GWEI
        await exchange.mine_and_turn(3)
        assert (await exchange.state(paid))[0] == "CONFIRMED"


async def test_a_cancelled_transaction_gives_its_nonce_to_a_no_op(exchange: Exchange) -> None:
    paid = await exchange.pay("pay-1", recipient(1), 5, webhook="webhook")
    await exchange.turn()
    await exchange.acceptance.cancel(paid)
    await exchange.turn()

    await exchange.mine_and_turn(3)

    assert await exchange.state(paid) == ("CANCELLED", "CONSUMED")
    assert exchange.anvil.balance(recipient(1)) == 0
    assert exchange.anvil.count(exchange.signer.name) == 1
    (told,) = [message.payload for message in await exchange.fp.run(outbox.take("webhook", "relay", 60, 10))]
    assert (told["event"], told["receipt"]["status"]) == ("transaction.cancelled", 1)


async def test_what_waits_is_cancelled_at_once_and_what_has_ended_is_not(exchange: Exchange) -> None:
    waiting = await exchange.pay("pay-1", recipient(1))
    assert (await exchange.acceptance.cancel(waiting))["state"] == "CANCELLED"
    done = await exchange.pay("pay-2", recipient(2), 3)
    await exchange.turn()
    await exchange.mine_and_turn(3)

    with pytest.raises(AlreadyFinished):
        await exchange.acceptance.cancel(done)
    assert exchange.anvil.balance(recipient(2)) == 3


async def test_a_nonce_that_a_stranger_used_is_lost_and_the_payment_takes_another(exchange: Exchange) -> None:
    """The same key in another wallet: ours can never be mined with this nonce, and must not be given up."""
    paid = await exchange.pay("pay-1", recipient(1), 5)
    exchange.anvil.rpc("anvil_setBlockTimestampInterval", 1)
    await exchange.turn()
    used_by = exchange.sign_elsewhere(0, recipient(2), 7)

    await exchange.mine_and_turn(2)
    assert await exchange.state(paid) == ("BOUND", "BROADCAST"), "its block is not deep enough"
    await exchange.mine_and_turn()
    lost = await exchange.acceptance.show(paid)
    assert used_by in lost["error"]
    await exchange.turn()
    await exchange.mine_and_turn(4)

    assert await exchange.state(paid) == ("CONFIRMED", "CONSUMED")
    assert (await exchange.acceptance.show(paid))["nonce"] == 1
    assert [exchange.anvil.balance(recipient(one)) for one in (1, 2)] == [5, 7]


async def test_a_nonce_that_no_transaction_used_is_kept_and_shown_to_a_person(
    exchange: Exchange, clock: Clock
) -> None:
    """Counted without a transaction, as an authorisation of EIP-7702 is: nothing proves anything."""
    paid = await exchange.pay("pay-1", recipient(1), 5)
    await exchange.turn()
    exchange.anvil.rpc("anvil_dropAllTransactions")
    exchange.anvil.rpc("anvil_setNonce", exchange.signer.name, hex(1))
    await exchange.mine_and_turn(5)

    facts = await exchange.acceptance.show(paid)
    assert (facts["state"], facts["nonce"], facts["error"].split(":")[0]) == ("BOUND", 0, "unproved")
    clock.advance(61)
    assert await exchange.sample("unproved") == 1
    assert exchange.anvil.balance(recipient(1)) == 0


async def test_a_payment_that_was_sped_up_from_a_wallet_is_not_made_again(exchange: Exchange) -> None:
    """Another hash, and the same recipient and value: a person tells, and no payment is made twice."""
    paid = await exchange.pay("pay-1", recipient(1), 5)
    await exchange.turn()
    sped_up = exchange.sign_elsewhere(0, recipient(1), 5)
    await exchange.mine_and_turn(5)

    facts = await exchange.acceptance.show(paid)
    assert (facts["state"], facts["nonce"]) == ("BOUND", 0)
    assert sped_up in facts["error"]
    assert facts["unproved_since"] is not None
    assert exchange.anvil.balance(recipient(1)) == 5


async def test_a_gap_below_what_was_sent_is_filled_with_a_no_op(exchange: Exchange) -> None:
    (held,) = await exchange.node.reserve(exchange.signer, ["outside"])
    paid = await exchange.pay("pay-1", recipient(1), 5)
    await exchange.turn()
    await exchange.mine_and_turn(2)
    assert exchange.anvil.balance(recipient(1)) == 0, "nonce 0 is missing"

    await exchange.node.mark_recyclable(exchange.signer, held.nonce, held.hold)
    await exchange.turn(2)
    await exchange.mine_and_turn(4)

    assert (await exchange.state(paid))[0] == "CONFIRMED"
    assert exchange.anvil.balance(recipient(1)) == 5
    assert exchange.anvil.count(exchange.signer.name) == 2


async def test_without_funds_it_waits_and_goes_on_when_they_come(exchange: Exchange) -> None:
    paid = await exchange.pay("pay-1", recipient(1), 1000 * ETHER)
    await exchange.turn(2)
    assert await exchange.state(paid) == ("BOUND", "SIGNED")

    exchange.anvil.fund(exchange.signer.name, 2000 * ETHER)
    await exchange.turn()
    await exchange.mine_and_turn(3)

    assert exchange.anvil.balance(recipient(1)) == 1000 * ETHER


async def test_the_key_is_in_no_log_and_in_no_row(database: Database, exchange: Exchange) -> None:
    secret = new_account(0).key.hex().removeprefix("0x")
    with structlog.testing.capture_logs() as said:
        await exchange.pay("pay-1", recipient(1), 5, webhook="webhook")
        exchange.anvil.fund(exchange.signer.name, 0)
        await exchange.turn()
        exchange.anvil.fund(exchange.signer.name)
        await exchange.turn()
        await exchange.mine_and_turn(3)

    assert said, "nothing was logged: the test has shown nothing"
    with database.connect_admin() as admin:
        tables = admin.execute("select tablename from pg_tables where schemaname = 'fencepost'").fetchall()
        rows = [
            str(row)
            for (table,) in tables
            for row in admin.execute(SQL("select t::text from {} t").format(Identifier("fencepost", table)))
        ]
    assert any(exchange.signer.name in row for row in rows)
    assert not [text for text in (*map(str, said), *rows) if secret in text.lower()]


async def turn_and_mine(exchange: Exchange) -> None:
    for _ in range(6):
        await exchange.turn()
        exchange.anvil.mine()


@pytest.mark.parametrize("point", Transactions.points)
async def test_a_crash_anywhere_leaves_a_state_from_which_the_next_owner_goes_on(
    database: Database, clock: Clock, anvil: Anvil, point: str
) -> None:
    account = new_account(1)
    async with opened(database, anvil, account=account) as first:
        ids = [await first.pay(f"pay-{i}", recipient(i), 10 + i) for i in range(3)]
        with pytest.raises(PlannedCrash), crash_at(point, nth=2):
            await turn_and_mine(first)
        clock.advance(20)
        async with opened(database, anvil, account=account) as second:
            await turn_and_mine(second)
            assert {(await second.state(i))[0] for i in ids} == {"CONFIRMED"}
    assert [anvil.balance(recipient(i)) for i in range(3)] == [10, 11, 12]
    assert anvil.count(account.address) == 3


async def test_what_is_wrong_is_said_before_anything_is_reserved(exchange: Exchange) -> None:
    good = exchange.signer
    for signer, value, gas, field in [
        (Signer.of(CHAIN_ID, recipient(5)), 1, 21_000, "signer"),
        (Signer.of(99, good.name), 1, 21_000, "chain_id"),
        (good, 2**256, 21_000, "value"),
        (good, -1, 21_000, "value"),
        (good, 1, 20_999, "gas"),
        (good, 1, 15_000_001, "gas"),
    ]:
        exchange.signer = signer
        with pytest.raises(InvalidInput) as caught:
            await exchange.pay("pay-1", recipient(1), value, gas=gas)
        assert caught.value.field == field
    assert await exchange.acceptance.newest(10, None) == []
