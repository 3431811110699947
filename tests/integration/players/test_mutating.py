"""What each mutation does, and what it refuses without writing anything."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from fencepost_players import _queries as queries
from fencepost_players.catalog import INT64_MAX
from fencepost_players.mutations.errors import FailedPrecondition, InvalidArgument, MutationError, NoSuchThing
from fencepost_players.requests import (
    ClearDungeon,
    CreatePlayer,
    Draw,
    GrantItems,
    ItemGrant,
    PlayerRequest,
    Teach,
    Transfer,
    UnlockHeroStage,
    UseItem,
)
from fencepost_players.service import Players
from tests.integration.players.conftest import balances, enrol


async def do(players: Players, request: PlayerRequest) -> Any:
    return (await players.run(request, request_id=str(uuid4()))).response


async def test_a_new_player_has_a_version_and_nothing_else(players: Players) -> None:
    answer = await do(players, CreatePlayer(player_id="ann"))
    assert answer == {"player_id": "ann", "version": 1}
    assert await balances(players, "ann") == {}
    with pytest.raises(FailedPrecondition, match="exists already"):
        await do(players, CreatePlayer(player_id="ann"))


async def test_using_an_item_takes_it_and_gives_what_it_brings(players: Players) -> None:
    await enrol(players, "ann", items={"potion": 3})
    answer = await do(players, UseItem(player_id="ann", item="potion", count=2))
    assert answer["granted"] == [{"resource": "gold", "count": 10}] * 2
    assert await balances(players, "ann") == {"potion": 1, "gold": 20}


async def test_a_box_gives_one_of_what_it_holds(players: Players) -> None:
    await enrol(players, "ann", items={"box": 50})
    answer = await do(players, UseItem(player_id="ann", item="box", count=50))
    assert len(answer["granted"]) == 50
    held = await balances(players, "ann")
    given: dict[str, int] = {}
    for reward in answer["granted"]:
        name = reward.get("resource") or reward["item"]
        given[name] = given.get(name, 0) + reward["count"]
    assert held == given


async def test_a_piece_is_used_by_its_id(players: Players) -> None:
    await enrol(players, "ann", items={"sword": 2})
    first, second = await players.fp.run(queries.inventory("ann"))
    await do(players, UseItem(player_id="ann", item="sword", piece_id=first.piece_id))
    assert await balances(players, "ann") == {"sword": 1, "dust": 7}
    with pytest.raises(NoSuchThing):
        await do(players, UseItem(player_id="ann", item="sword", piece_id=first.piece_id))
    with pytest.raises(InvalidArgument):
        await do(players, UseItem(player_id="ann", item="sword"))
    assert [holding.piece_id for holding in await players.fp.run(queries.inventory("ann"))] == [
        second.piece_id
    ]


async def test_the_answer_of_a_grant_is_in_the_order_of_the_request_and_metadata_is_kept(
    players: Players,
) -> None:
    await enrol(players, "ann")
    wanted = (
        ItemGrant(item="sword", enhance_level=7, quality=4, metadata={"engraved": "für Ann"}),
        ItemGrant(item="potion", count=3),
        ItemGrant(item="sword", quality=1),
        ItemGrant(item="box"),
    )
    answer = await do(players, GrantItems(player_id="ann", items=wanted, source="mail"))
    assert [granted["item"] for granted in answer["granted"]] == ["sword", "potion", "sword", "box"]
    (piece_id,) = answer["granted"][0]["piece_ids"]
    pieces = {holding.piece_id: holding for holding in await players.fp.run(queries.inventory("ann"))}
    given = pieces[UUID(piece_id)]
    assert (given.enhance_level, given.quality, given.metadata) == (7, 4, {"engraved": "für Ann"})
    (event,) = await players.fp.run(queries.history("ann", limit=1))
    assert (event.source, event.version, event.method) == ("mail", 2, "GrantItems")


async def test_hero_stages_are_unlocked_one_after_the_other_for_their_price(players: Players) -> None:
    await enrol(players, "ann", items={"stone": 2}, gold=150)
    with pytest.raises(FailedPrecondition, match="the next one is 1"):
        await do(players, UnlockHeroStage(player_id="ann", hero="knight", stage=2))
    await do(players, UnlockHeroStage(player_id="ann", hero="knight", stage=1))
    await do(players, UnlockHeroStage(player_id="ann", hero="knight", stage=2))
    assert (await players.player("ann")).state["heroes"] == {"knight": 2}
    assert await balances(players, "ann") == {"potion": 1}
    with pytest.raises(NoSuchThing):
        await do(players, UnlockHeroStage(player_id="ann", hero="knight", stage=3))


async def test_the_guaranteed_rarity_comes_after_so_many_dry_draws(players: Players) -> None:
    await enrol(players, "ann", gem=500)
    rarities: list[int] = []
    for _ in range(5):
        rarities += (await do(players, Draw(player_id="ann", pool="spring", count=20)))["rarities"]
    gaps = "".join("r" if rarity == 5 else "." for rarity in rarities).split("r")
    assert max(len(gap) for gap in gaps) < 10
    assert "gem" not in await balances(players, "ann")


async def test_draws_one_by_one_count_towards_the_guarantee(players: Players) -> None:
    await enrol(players, "ann", gem=100)
    rarities: list[int] = []
    for _ in range(20):
        rarities += (await do(players, Draw(player_id="ann", pool="spring")))["rarities"]
    assert 5 in rarities[:10]
    assert (await players.player("ann")).state["draws"] == [{"pool": "spring", "season": "s1", "draws": 20}]
    await balances(players, "ann")


async def test_a_pool_without_an_open_season_takes_nothing(players: Players) -> None:
    await enrol(players, "ann", gem=5)
    before = await players.player("ann")
    with pytest.raises(FailedPrecondition) as refused:
        await do(players, Draw(player_id="ann", pool="closed"))
    assert refused.value.meta["reason"] == "no_season"
    assert await players.player("ann") == before


async def test_the_first_clear_of_a_dungeon_brings_more(players: Players) -> None:
    await enrol(players, "ann")
    assert {"resource": "gem", "count": 3} in (
        await do(players, ClearDungeon(player_id="ann", dungeon="cave"))
    )["granted"]
    second = await do(players, ClearDungeon(player_id="ann", dungeon="cave"))
    assert second["clears"] == 2
    assert {"resource": "gem", "count": 3} not in second["granted"]


async def test_a_lesson_is_rewarded_once(players: Players) -> None:
    await enrol(players, "ann")
    await do(players, Teach(player_id="ann", lesson="fencing"))
    with pytest.raises(FailedPrecondition, match="taught already"):
        await do(players, Teach(player_id="ann", lesson="fencing"))
    assert await balances(players, "ann") == {"gem": 1, "sword": 1}


async def test_a_transfer_changes_both_players_or_neither(players: Players) -> None:
    await enrol(players, "ann", items={"potion": 2, "sword": 1}, gold=10)
    await enrol(players, "bob")
    piece = next(h for h in await players.fp.run(queries.inventory("ann")) if h.piece_id)
    assert piece.piece_id is not None
    gift = Transfer(
        player_id="ann",
        to_player_id="bob",
        resources={"gold": 4},
        items={"potion": 2},
        pieces=(piece.piece_id,),
    )
    await do(players, gift)
    assert await balances(players, "ann") == {"gold": 6}
    assert await balances(players, "bob") == {"gold": 4, "potion": 2, "sword": 1}
    assert piece in await players.fp.run(queries.inventory("bob"))
    with pytest.raises(FailedPrecondition):
        await do(players, Transfer(player_id="ann", to_player_id="bob", resources={"gold": 7}))
    with pytest.raises(NoSuchThing):
        await do(players, Transfer(player_id="ann", to_player_id="nobody", resources={"gold": 1}))
    assert await balances(players, "ann") == {"gold": 6}


REFUSED: tuple[tuple[PlayerRequest, type[MutationError], dict[str, str]], ...] = (
    (UseItem(player_id="ann", item="potion", count=4), FailedPrecondition, {"reason": "not_enough"}),
    (UseItem(player_id="ann", item="nothing"), NoSuchThing, {"noun": "item", "name": "nothing"}),
    (UseItem(player_id="ann", item="stone"), FailedPrecondition, {"reason": "no_effect"}),
    (UseItem(player_id="nobody", item="potion"), NoSuchThing, {"noun": "player"}),
    (
        GrantItems(player_id="ann", resources={"gold": INT64_MAX}),
        FailedPrecondition,
        {"reason": "overflow", "resource": "gold", "held": "1"},
    ),
    (
        GrantItems(player_id="ann", items=(ItemGrant(item="potion", count=INT64_MAX),)),
        FailedPrecondition,
        {"reason": "overflow", "item": "potion"},
    ),
    (
        GrantItems(player_id="ann", items=(ItemGrant(item="potion", count=INT64_MAX),) * 2),
        FailedPrecondition,
        {"reason": "overflow"},
    ),
    (
        GrantItems(player_id="ann", resources={"gold": 1, "glod": 1}),
        FailedPrecondition,
        {"reason": "unknown_resource", "resource": "glod"},
    ),
    (
        GrantItems(player_id="ann", items=(ItemGrant(item="potion", quality=1),)),
        InvalidArgument,
        {"argument": "items.metadata"},
    ),
    (Transfer(player_id="ann", to_player_id="bob", items={"sword": 1}), FailedPrecondition, {}),
    (Draw(player_id="ann", pool="spring"), FailedPrecondition, {"reason": "not_enough", "needed": "5"}),
    (Draw(player_id="ann", pool="autumn"), NoSuchThing, {"noun": "pool"}),
)


async def test_what_cannot_be_done_says_why_and_writes_nothing(players: Players) -> None:
    await enrol(players, "ann", items={"potion": 3}, gold=1)
    await enrol(players, "bob")
    before = await players.player("ann"), await balances(players, "ann")
    for request, kind, meta in REFUSED:
        with pytest.raises(kind) as refused:
            await players.run(request, request_id="r")
        assert refused.value.meta.items() >= meta.items(), request
        assert (await players.player("ann"), await balances(players, "ann")) == before
    # Each time the key went with it: another request may use the id.
    await players.run(UseItem(player_id="ann", item="potion"), request_id="r")
