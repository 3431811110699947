"""Managed transactions in queue mode on a real chain: the signer's home sends, and another if it cannot."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fencepost.embedded import Database
from fencepost.testing import Clock
from fencepost_nonces import _queries as queries
from fencepost_nonces._routing import home_of
from fencepost_nonces.sending._keys import Keystore
from fencepost_nonces.signer import Signer
from tests.acceptance.nonces.anvil import CHAIN_ID, Anvil
from tests.acceptance.nonces.exchange import Exchange, new_account, opened, recipient

ADDRESSES = ("http://n0", "http://n1")
LEASE_SECONDS = 15.0


@asynccontextmanager
async def pair(
    database: Database, anvil: Anvil, *, home_has_keys: bool = True
) -> AsyncGenerator[tuple[Exchange, Exchange]]:
    """Two nodes that know of each other, the home of the signer first."""
    name = Signer.of(CHAIN_ID, new_account(0).address).resource
    home, away = sorted(ADDRESSES, key=lambda address: address != home_of(name, ADDRESSES))
    keys = None if home_has_keys else Keystore({})
    async with (
        opened(database, anvil, mode="queue", node_address=away, lease_seconds=LEASE_SECONDS) as stranger,
        opened(
            database, anvil, keys=keys, mode="queue", node_address=home, lease_seconds=LEASE_SECONDS
        ) as owner,
    ):
        await look(stranger)
        yield owner, stranger


async def look(exchange: Exchange) -> None:
    """It sees who the others are, as a turn of its loop does."""
    await exchange.node._keep()  # pyright: ignore[reportPrivateUsage]


async def token_of(exchange: Exchange) -> int:
    (facts,) = await exchange.fp.run(queries.signer(exchange.signer))
    return int(facts["fencing_token"])


async def test_the_home_sends_what_any_node_takes_in_and_the_other_when_it_is_gone(
    database: Database, clock: Clock, anvil: Anvil
) -> None:
    async with pair(database, anvil) as (home, away):
        first = await away.pay("pay-1", recipient(1), 5)
        await away.turn()
        assert await away.state(first) == ("QUEUED", None), "a free signer is left to its home"
        await home.turn()
        assert await home.state(first) == ("BOUND", "BROADCAST")
        anvil.mine()
        await away.turn()
        await home.turn()
        assert (await home.state(first), await token_of(home)) == (("MINED", "BROADCAST"), 1)

        await home.node.stop()
        await look(away)
        second = await away.pay("pay-2", recipient(2), 7)
        await away.turn()
        await away.mine_and_turn(3)

        assert {(await away.state(one))[0] for one in (first, second)} == {"CONFIRMED"}
        assert [anvil.balance(recipient(one)) for one in (1, 2)] == [5, 7]
        assert (anvil.count(away.signer.name), await token_of(away)) == (2, 2)


async def test_a_home_without_the_key_does_not_keep_a_transaction_waiting_for_ever(
    database: Database, clock: Clock, anvil: Anvil
) -> None:
    async with pair(database, anvil, home_has_keys=False) as (home, away):
        paid = await away.pay("pay-1", recipient(1), 5)
        await home.turn()
        await away.turn()
        assert await away.state(paid) == ("QUEUED", None)

        for _ in range(4):
            clock.advance(2 * LEASE_SECONDS)
            await look(home)
            await look(away)
            await away.turn()
            anvil.mine(2)

        assert (await away.state(paid))[0] == "CONFIRMED"
        assert (anvil.balance(recipient(1)), anvil.count(away.signer.name)) == (5, 1)
