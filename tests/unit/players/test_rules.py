"""Plans without a database: what changes, in which order, by which chance."""

from typing import Any

import pytest
from pydantic import ValidationError

from fencepost_players import _rules as rules
from fencepost_players._snapshot import PlayerSnapshot, Season
from fencepost_players.catalog import Item, Pool, Reward, Weighted
from fencepost_players.mutations.errors import FailedPrecondition, NoSuchThing
from fencepost_players.mutations.planning import Rng
from fencepost_players.requests import Draw, GrantItems, ItemGrant, Transfer, UseItem

BOX = Item(
    stackable=True,
    box=(
        Weighted(weight=1, reward=Reward(resource="gold", count=3)),
        Weighted(weight=1, reward=Reward(piece="sword")),
    ),
)
ENTRIES = (
    Weighted(weight=99, rarity=3, reward=Reward(resource="dust")),
    Weighted(weight=1, rarity=5, reward=Reward(piece="sword")),
)


def snapshot(**things: Item | Pool) -> PlayerSnapshot:
    kinds = {Item: "item", Pool: "pool"}
    catalog = {(kinds[type(thing)], name): thing.model_dump(mode="json") for name, thing in things.items()}
    return PlayerSnapshot("ann", 1, catalog)


def test_a_plan_is_a_function_of_snapshot_request_and_seed() -> None:
    request = UseItem(player_id="ann", item="box", count=50)
    plans = [rules.use_item.plan(snapshot(box=BOX), request, Rng(seed)).as_json(seed) for seed in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2]


def test_what_is_taken_and_given_of_one_thing_is_one_change() -> None:
    lucky = Item(stackable=True, rewards=(Reward(item="coin", count=3),))
    plan = rules.use_item.plan(snapshot(coin=lucky), UseItem(player_id="ann", item="coin"), Rng(1))
    assert plan.parties[0].change.as_json() == {"stacks": {"coin": 2}, "paid": {"stacks": {"coin": 1}}}


def test_pieces_are_granted_in_the_order_of_the_request_with_their_metadata() -> None:
    items = {"sword": Item(stackable=False), "potion": Item(stackable=True)}
    grants = (
        ItemGrant(item="sword", quality=3, metadata={"a": 1}),
        ItemGrant(item="potion", count=2),
        ItemGrant(item="sword", count=2),
    )
    request = GrantItems(player_id="ann", items=grants)
    plan = rules.grant_items.plan(snapshot(**items), request, Rng(1))
    assert [granted["item"] for granted in plan.answer["granted"]] == ["sword", "potion", "sword"]
    pieces = plan.parties[0].change.pieces_added
    assert [piece["quality"] for piece in pieces] == [3, 0, 0]
    assert len({piece["piece_id"] for piece in pieces}) == 3


@pytest.mark.parametrize("dry", [0, 5, 9])
def test_a_guarantee_counts_draws_of_earlier_requests(dry: int) -> None:
    pool = Pool(guarantee_after=10, guarantee_rarity=5)
    seen = PlayerSnapshot(
        "ann", 1, snapshot(spring=pool).catalog, pools={"spring": Season("s1", ENTRIES, 100, dry)}
    )
    for seed in range(50):
        plan = rules.draw.plan(seen, Draw(player_id="ann", pool="spring", count=10 - dry), Rng(seed))
        assert 5 in plan.answer["rarities"]


def test_without_a_season_there_is_no_plan() -> None:
    with pytest.raises(FailedPrecondition, match="no open season"):
        rules.draw.plan(snapshot(spring=Pool()), Draw(player_id="ann", pool="spring"), Rng(1))


def test_without_a_player_there_is_no_plan() -> None:
    with pytest.raises(NoSuchThing, match="no player ann"):
        rules.use_item.plan(PlayerSnapshot("ann", None), UseItem(player_id="ann", item="box"), Rng(1))


@pytest.mark.parametrize(
    "fields",
    [
        {"player_id": "ann", "to_player_id": "ann", "resources": {"gold": 1}},
        {"player_id": "ann", "to_player_id": "bob"},
        {"player_id": "ann", "to_player_id": "bob", "resources": {"gold": -1}},
        {"player_id": "ann", "to_player_id": "bob", "resources": {"gold": 2**63}},
        {"player_id": "a b", "to_player_id": "bob", "resources": {"gold": 1}},
    ],
)
def test_a_transfer_has_a_content_and_another_player(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Transfer.model_validate(fields)
