"""Players that earn, give and use things; requests that are sent twice; and some that cannot be granted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fencepost.cli.demo import DemoContext, DemoPart
from fencepost_players import _queries as queries
from fencepost_players.catalog import Cost, Dungeon, Item, Resource, Reward
from fencepost_players.mutations.errors import MutationError
from fencepost_players.mutations.settings import MutationSettings
from fencepost_players.requests import (
    ClearDungeon,
    CreatePlayer,
    GrantItems,
    ItemGrant,
    PlayerRequest,
    Transfer,
    UseItem,
)
from fencepost_players.service import Players

PLAYERS = tuple(f"demo-{name}" for name in ("ada", "bob", "cyd", "dan", "eve", "fay"))
GOLD, POTION, CAVE = "demo-gold", "demo-potion", "demo-cave"
REPEATS = 0.3
CATALOG = (
    ("resource", GOLD, Resource(title="Gold")),
    ("item", POTION, Item(stackable=True, title="Potion", rewards=(Reward(resource=GOLD, count=5),))),
    (
        "dungeon",
        CAVE,
        Dungeon(title="Cave", cost=Cost(resources={GOLD: 3}), rewards=(Reward(item=POTION, count=2),)),
    ),
)


async def _run(context: DemoContext) -> None:
    for kind, name, definition in CATALOG:
        await context.fp.run(queries.define(kind, name, definition))
    players = Players(context.fp, MutationSettings.load())
    try:
        await _play(context, players)
    finally:
        await players.close()


async def _play(context: DemoContext, players: Players) -> None:
    refused, number = 0, 0
    known: list[str] = await context.fp.run(queries.ids(after="demo-", limit=1000))
    waiting: list[PlayerRequest] = [CreatePlayer(player_id=one) for one in PLAYERS if one not in known]
    while True:
        number += 1
        request = waiting.pop() if waiting else _request(context)
        # A client that lost its answer sends the same request again, and gets the same answer.
        for _ in range(2 if context.chance.random() < REPEATS else 1):
            try:
                await players.run(request, request_id=f"demo-{context.run}-{number}", actor="demo")
            except MutationError as error:
                refused += 1
                if refused == 1:
                    context.say(
                        f"A request is refused: {error}", path=f"/console/players/{request.player_id}"
                    )
        if not waiting:
            await context.pause(0.1, 0.6)


def _request(context: DemoContext) -> PlayerRequest:
    chance = context.chance
    player, other = chance.sample(PLAYERS, 2)
    gold = chance.randrange(1, 60)
    choices: Sequence[PlayerRequest] = (
        GrantItems(player_id=player, resources={GOLD: gold}, source="demo"),
        GrantItems(player_id=player, items=(ItemGrant(item=POTION, count=2),), source="demo"),
        Transfer(player_id=player, to_player_id=other, resources={GOLD: gold}),
        UseItem(player_id=player, item=POTION),
        ClearDungeon(player_id=player, dungeon=CAVE),
    )
    return chance.choice(choices)


PART = DemoPart(
    name="players",
    about="players that earn, give and use things; every third request is sent twice and granted once",
    path="/console/players",
    run=_run,
    counts="""
        select 'players' as name, count(*) from fencepost.players where user_id like 'demo-%%'
        union all select 'changes', count(*) from fencepost.player_audits where player_id like 'demo-%%'""",
    others="select exists (select 1 from fencepost.players where user_id not like 'demo-%%')",
    clean=Path(__file__).parent / "demo.sql",
    redis_keys=("*player:demo-*",),
)
