"""What costs something is paid by who has it: not by what comes back, and not by trying until it does."""

import pytest

from fencepost_players import _queries as queries
from fencepost_players import catalog
from fencepost_players.catalog import Cost, Item, Reward, Stage, Weighted
from fencepost_players.mutations.errors import FailedPrecondition, InvalidArgument
from fencepost_players.requests import Draw, GrantItems, ItemGrant, PlayerRequest, UnlockHeroStage, UseItem
from fencepost_players.service import Players
from tests.integration.players.conftest import balances, enrol
from tests.integration.players.env import FAR_AHEAD, LONG_AGO

REFUND = (
    Weighted(weight=1, reward=Reward(resource="dust", count=1)),
    Weighted(weight=1, reward=Reward(resource="gem", count=50)),
)
WISHES: dict[str, PlayerRequest] = {
    "an item that brings itself": UseItem(player_id="ann", item="lamp"),
    "a stage that pays more than it costs": UnlockHeroStage(player_id="ann", hero="heir", stage=1),
    "a draw that may bring what it costs": Draw(player_id="ann", pool="refund"),
}


@pytest.fixture
async def generous(players: Players) -> Players:
    """A game whose rewards repeat what they cost."""
    lamp = Item(stackable=True, rewards=(Reward(item="lamp", count=1), Reward(resource="gold", count=100)))
    stage = Stage(cost=Cost(resources={"gold": 50}), rewards=(Reward(resource="gold", count=60),))
    for kind, name, thing in (
        ("item", "lamp", lamp),
        ("hero", "heir", catalog.Hero(stages=(stage,))),
        ("pool", "refund", catalog.Pool(cost=Cost(resources={"gem": 5}))),
    ):
        await players.fp.run(queries.define(kind, name, thing))
    entries = [entry.model_dump(mode="json") for entry in REFUND]
    await players.fp.run(queries.open_season("refund", "s1", LONG_AGO, FAR_AHEAD, entries))
    return players


@pytest.mark.parametrize("wish", WISHES)
async def test_a_caller_that_has_nothing_gets_nothing_however_often_it_asks(
    generous: Players, wish: str
) -> None:
    await enrol(generous, "ann")

    for number in range(12):
        with pytest.raises(FailedPrecondition) as refused:
            await generous.run(WISHES[wish], request_id=f"r{number % 3}")
        assert refused.value.meta["reason"] == "not_enough"

    assert await balances(generous, "ann") == {}


@pytest.mark.parametrize("wish", WISHES)
async def test_a_caller_that_has_it_pays_and_gets(generous: Players, wish: str) -> None:
    await enrol(generous, "ann", gold=50, gem=5, items={"lamp": 1})

    answer = await generous.run(WISHES[wish], request_id="r1")

    assert answer.response["granted"]
    assert not await generous.fp.run(queries.audit_check("ann"))


async def test_pieces_are_bounded_over_the_whole_request(players: Players) -> None:
    await enrol(players, "ann")
    grants = tuple(ItemGrant(item="sword", count=501) for _ in range(2))

    with pytest.raises(InvalidArgument, match="1000 pieces"):
        await players.run(GrantItems(player_id="ann", items=grants), request_id="r1")

    assert await balances(players, "ann") == {}
