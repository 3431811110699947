"""A small game: what the tests of players are played with."""

from datetime import UTC, datetime
from typing import Any

from fencepost import Fencepost
from fencepost.kernel.call import Call
from fencepost_players import _queries as queries
from fencepost_players import catalog
from fencepost_players.catalog import Cost, Reward, Stage, Weighted

GOLD = Reward(resource="gold", count=10)
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
FAR_AHEAD = datetime(2120, 1, 1, tzinfo=UTC)

BOX = (
    Weighted(weight=70, reward=Reward(resource="gold", count=1)),
    Weighted(weight=25, reward=Reward(item="potion", count=2)),
    Weighted(weight=5, reward=Reward(piece="sword", quality=3)),
)
ENTRIES = (
    Weighted(weight=94, rarity=3, reward=Reward(resource="dust", count=5)),
    Weighted(weight=6, rarity=5, reward=Reward(piece="sword", quality=5)),
)
THINGS: tuple[tuple[str, str, catalog.Strict], ...] = (
    ("resource", "gold", catalog.Resource(title="Gold")),
    ("resource", "gem", catalog.Resource()),
    ("resource", "dust", catalog.Resource()),
    ("item", "potion", catalog.Item(stackable=True, rewards=(GOLD,))),
    ("item", "box", catalog.Item(stackable=True, box=BOX)),
    ("item", "stone", catalog.Item(stackable=True)),
    ("item", "sword", catalog.Item(stackable=False, rewards=(Reward(resource="dust", count=7),))),
    (
        "hero",
        "knight",
        catalog.Hero(
            stages=(
                Stage(cost=Cost(resources={"gold": 50}), rewards=(Reward(item="potion", count=1),)),
                Stage(cost=Cost(resources={"gold": 100}, items={"stone": 2})),
            )
        ),
    ),
    (
        "pool",
        "spring",
        catalog.Pool(cost=Cost(resources={"gem": 5}), guarantee_after=10, guarantee_rarity=5),
    ),
    ("pool", "closed", catalog.Pool(cost=Cost(resources={"gem": 5}))),
    (
        "dungeon",
        "cave",
        catalog.Dungeon(rewards=(GOLD,), first_rewards=(Reward(resource="gem", count=3),), box=BOX),
    ),
    ("lesson", "fencing", catalog.Lesson(rewards=(Reward(resource="gem", count=1), Reward(piece="sword")))),
)


def calls() -> list[Call[Any]]:
    """Everything that there is in this game, as calls."""
    entries = [entry.model_dump(mode="json") for entry in ENTRIES]
    return [
        *(queries.define(*thing) for thing in THINGS),
        queries.open_season("spring", "s1", LONG_AGO, FAR_AHEAD, entries),
    ]


async def load(fp: Fencepost) -> None:
    for call in calls():
        await fp.run(call)
