"""What is watched, and what the chain proves, on a real chain: also when everything else stands still."""

from fencepost.embedded import Database
from fencepost.testing import Clock
from fencepost_nonces.signer import Signer
from tests.acceptance.nonces.anvil import CHAIN_ID, ETHER, FUNDS, Anvil
from tests.acceptance.nonces.exchange import Exchange, new_account, opened, recipient
from tests.acceptance.nonces.lossy_rpc import LossyRpc


async def test_a_replacement_does_not_make_a_stuck_transaction_younger(
    database: Database, clock: Clock, anvil: Anvil
) -> None:
    async with opened(database, anvil, stuck_seconds=60.0) as exchange:
        paid = await exchange.pay("pay-1", recipient(1), 5)
        await exchange.turn()
        first = (await exchange.acceptance.show(paid))["tx_hash"]
        for _ in range(4):
            clock.advance(50)
            await exchange.turn()

        assert (await exchange.acceptance.show(paid))["tx_hash"] != first, "it was replaced"
        assert (await exchange.sample("stuck_seconds") or 0) >= 200
        await exchange.mine_and_turn(3)
        assert await exchange.sample("stuck_seconds") == 0


async def test_a_signer_that_cannot_pay_is_stuck(database: Database, clock: Clock, anvil: Anvil) -> None:
    async with opened(database, anvil) as exchange:
        paid = await exchange.pay("pay-1", recipient(1), 1000 * ETHER)
        await exchange.turn()
        clock.advance(14)
        await exchange.turn()

        assert await exchange.state(paid) == ("BOUND", "SIGNED")
        assert (await exchange.sample("stuck_seconds") or 0) >= 14


async def test_what_was_sent_is_stuck_and_what_waits_is_waiting_while_no_endpoint_answers(
    database: Database, clock: Clock, anvil: Anvil
) -> None:
    with LossyRpc(anvil.url) as rpc:
        async with opened(database, anvil, urls=rpc.url) as exchange:
            await exchange.pay("pay-1", recipient(1))
            await exchange.turn()
            rpc.is_dead = True
            await exchange.pay("pay-2", recipient(2))
            clock.advance(14)
            await exchange.turn()

            assert (await exchange.sample("stuck_seconds") or 0) >= 14
            assert (await exchange.sample("waiting_seconds") or 0) >= 14


async def test_the_node_of_another_signer_sees_it_too(database: Database, clock: Clock, anvil: Anvil) -> None:
    """No process holds the signer of what is stuck: any that is alive reports it."""
    async with opened(database, anvil) as exchange:
        await exchange.pay("pay-1", recipient(1))
        await exchange.turn()
    clock.advance(1000)
    async with opened(database, anvil, account=new_account(7)) as other:
        assert (await other.sample("stuck_seconds") or 0) >= 1000


async def used_outside(exchange: Exchange) -> int:
    """A nonce that its caller signs; it is mined, and the caller says nothing."""
    (held,) = await exchange.node.reserve(exchange.signer, ["outside"])
    exchange.anvil.rpc("anvil_setNonce", exchange.signer.name, hex(held.nonce + 1))
    exchange.anvil.mine()
    return held.nonce


async def status_of(exchange: Exchange, request_id: str) -> str:
    (row,) = await exchange.node.reserve(exchange.signer, [request_id])
    return row.status


async def test_the_chain_is_asked_about_a_caller_that_says_nothing(
    database: Database, clock: Clock, anvil: Anvil
) -> None:
    """There is no managed transaction, and no command is given. Before the caller's time is over the chain
    is not asked."""
    async with opened(database, anvil, idle_seconds=0.01, hold_seconds=10.0) as exchange:
        await used_outside(exchange)
        exchange.anvil.mine(3)
        await exchange.maintenance.ask_the_chains()
        assert await status_of(exchange, "outside") == "HELD", "the caller's time is not over"
        clock.advance(11)
        assert await exchange.sample("overdue") == 1

        await exchange.maintenance.tick()

        assert await status_of(exchange, "outside") == "CONSUMED"
        assert await exchange.sample("overdue") == 0
        await exchange.node.mark_used(exchange.signer, 0, 1, "0x" + "ab" * 32)


async def test_what_is_not_deep_enough_proves_nothing_and_takes_no_lease(
    database: Database, clock: Clock, anvil: Anvil
) -> None:
    async with opened(database, anvil, hold_seconds=10.0) as exchange:
        await used_outside(exchange)
        clock.advance(16)

        await exchange.maintenance.ask_the_chains()

        with database.connect_admin() as admin:
            rows = admin.execute("select status, fencing_token from fencepost.nonce_allocation").fetchall()
            tokens = admin.execute("select fencing_token from fencepost.nonce_signer").fetchall()
        assert (rows, tokens) == ([("HELD", 1)], [(1,)])


async def test_a_signer_of_another_node_is_left_to_it(database: Database, clock: Clock, anvil: Anvil) -> None:
    async with opened(database, anvil, hold_seconds=1.0) as exchange:
        await used_outside(exchange)
        anvil.mine(3)
        clock.advance(2)
        async with opened(database, anvil, account=new_account(7)) as other:
            await other.maintenance.ask_the_chains()
        (held,) = await exchange.node.reserve(exchange.signer, ["outside"])
        assert (held.status, held.fencing_token) == ("HELD", 1)

        await exchange.maintenance.ask_the_chains()

        assert await status_of(exchange, "outside") == "CONSUMED"


async def test_balances_are_read_and_one_that_cannot_be_read_keeps_its_value(
    database: Database, clock: Clock, anvil: Anvil
) -> None:
    async with opened(database, anvil, balance_min=f"{CHAIN_ID}=0.5") as exchange:
        labels = {"chain": str(CHAIN_ID), "signer": exchange.signer.name}
        sample = exchange.fp.metrics.registry.get_sample_value
        await exchange.node.reserve(exchange.signer, ["r1"])
        await exchange.node.reserve(Signer.of(CHAIN_ID, "a-name"), ["r1"])
        await exchange.node.reserve(Signer.of(99, exchange.signer.name), ["r1"])

        await exchange.maintenance.tick()

        assert sample("fencepost_nonces_balance", labels) == FUNDS / ETHER
        assert sample("fencepost_nonces_balance_min", {"chain": str(CHAIN_ID)}) == 0.5
        assert sample("fencepost_nonces_unwatched_balances") == 0
        anvil.fund(exchange.signer.name, ETHER // 4)
        await exchange.maintenance.read_balances()
        assert sample("fencepost_nonces_balance", labels) == 0.25

    async with opened(database, anvil, urls="http://127.0.0.1:9") as exchange:
        await exchange.maintenance.read_balances()
        failed = {"loop": "nonces_maintenance"}
        assert (
            exchange.fp.metrics.registry.get_sample_value("fencepost_nonces_loop_errors_total", failed) == 1
        )


async def test_only_a_hundred_balances_are_series(database: Database, clock: Clock, anvil: Anvil) -> None:
    async with opened(database, anvil) as exchange:
        with database.connect_admin() as admin:
            admin.execute(
                "select fencepost.nonce_acquire(%s, '0x' || lpad(to_hex(i), 40, '0'), 'other', '1 hour')"
                " from generate_series(1, 103) i",
                (CHAIN_ID,),
            )

        await exchange.maintenance.read_balances()

        shown = [
            one for one in exchange.fp.metrics.registry.collect() if one.name == "fencepost_nonces_balance"
        ]
        assert sum(len(one.samples) for one in shown) == 100
        assert exchange.fp.metrics.registry.get_sample_value("fencepost_nonces_unwatched_balances") == 3
