"""A signer by URL: asked for what was stored, never believed, and asked again for the same after a crash."""

from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest

from fencepost.embedded import Database
from fencepost.testing import Clock, PlannedCrash, crash_at
from fencepost_nonces._errors import SigningFailed
from fencepost_nonces.sending._keys import RemoteSigner
from fencepost_server.web.errors import status_of
from tests.acceptance.nonces.anvil import Anvil, running_anvil
from tests.acceptance.nonces.exchange import Exchange, new_account, opened, recipient
from tests.acceptance.nonces.remote import RemoteKeys


@pytest.fixture
def anvil(request: pytest.FixtureRequest) -> Iterator[Anvil]:
    with running_anvil(*getattr(request, "param", ())) as anvil:
        yield anvil


@pytest.fixture
def keeper() -> RemoteKeys:
    return RemoteKeys(new_account(4))


@pytest.fixture
async def exchange(
    database: Database, clock: Clock, anvil: Anvil, keeper: RemoteKeys
) -> AsyncGenerator[Exchange]:
    async with keeper.listening() as url:
        keys = RemoteSigner(url)
        async with opened(database, anvil, account=keeper.account, keys=keys) as exchange:
            yield exchange
        await keys.close()


@pytest.mark.parametrize(
    "anvil", [(), ("--hardfork", "berlin")], indirect=True, ids=["EIP-1559", "gas price"]
)
async def test_it_signs_and_the_payment_is_mined(exchange: Exchange) -> None:
    paid = await exchange.pay("pay-1", recipient(1), 5)
    await exchange.turn()
    await exchange.mine_until_confirmed(paid)

    assert await exchange.state(paid) == ("CONFIRMED", "CONSUMED")
    assert exchange.anvil.balance(recipient(1)) == 5


@pytest.mark.parametrize("said", [{"error": {"message": "no"}}, {"result": {}}, "?"], ids=str)
async def test_whatever_it_says_instead_the_nonce_stays_signing_and_it_is_asked_again(
    exchange: Exchange, keeper: RemoteKeys, said: Any
) -> None:
    """It may have signed: the nonce is not given back, and the next question is the same one."""
    keeper.answer = lambda _: said
    paid = await exchange.pay("pay-1", recipient(1), 5)
    await exchange.turn()
    assert await exchange.state(paid) == ("BOUND", "SIGNING")
    keeper.answer = keeper.signed

    await exchange.turn()
    await exchange.mine_and_turn(3)

    assert await exchange.state(paid) == ("CONFIRMED", "CONSUMED")
    assert keeper.asked == [keeper.asked[0]] * 2


async def test_while_it_is_away_what_was_signed_is_followed_and_what_was_not_waits(
    exchange: Exchange, keeper: RemoteKeys
) -> None:
    sent = await exchange.pay("pay-1", recipient(1), 5)
    await exchange.turn()
    keeper.is_away = True
    taken = await exchange.pay("pay-2", recipient(2), 7)
    await exchange.mine_and_turn(3)
    assert await exchange.state(sent) == ("CONFIRMED", "CONSUMED")
    assert await exchange.state(taken) == ("BOUND", "SIGNING")
    keeper.is_away = False

    await exchange.turn()
    await exchange.mine_and_turn(3)

    assert await exchange.state(taken) == ("CONFIRMED", "CONSUMED")
    assert exchange.anvil.balance(recipient(2)) == 7


async def test_one_that_never_answered_is_unavailable_and_nothing_is_taken_in(
    exchange: Exchange, keeper: RemoteKeys
) -> None:
    keeper.is_away = True

    with pytest.raises(SigningFailed) as refused:
        await exchange.pay("pay-1", recipient(1), 5)

    assert status_of(refused.value) == (503, "unavailable")
    assert await exchange.acceptance.newest(10, None) == []


async def test_after_a_crash_the_next_owner_asks_for_the_same(
    database: Database, clock: Clock, exchange: Exchange, keeper: RemoteKeys
) -> None:
    await exchange.pay("pay-1", recipient(1), 5)
    with pytest.raises(PlannedCrash), crash_at("nonces.before_signed"):
        await exchange.turn()
    clock.advance(20)
    async with keeper.listening() as url:
        keys = RemoteSigner(url)
        async with opened(database, exchange.anvil, account=keeper.account, keys=keys) as second:
            await second.turn()
            await second.mine_and_turn(3)
        await keys.close()

    assert keeper.asked == [keeper.asked[0]] * 2
    assert exchange.anvil.balance(recipient(1)) == 5
