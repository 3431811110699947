"""Players on a database of their own, with and without Redis."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from fencepost import Fencepost
from fencepost.embedded import Database
from fencepost_players import _queries as queries
from fencepost_players.mutations.settings import MutationSettings
from fencepost_players.requests import CreatePlayer, GrantItems, ItemGrant
from fencepost_players.service import Players
from tests.integration.players import env

Node = Callable[..., Awaitable[Players]]
PATIENT = MutationSettings(cache_wait_seconds=5)


@pytest.fixture
async def node(database: Database) -> AsyncIterator[Node]:
    """Makes nodes of the service: each has its own pool, its own Redis client and its own metrics."""
    async with AsyncExitStack() as stack:

        async def make(redis_url: str | None = None, settings: MutationSettings = PATIENT) -> Players:
            fp = await stack.enter_async_context(Fencepost(database.url, redis_url=redis_url))
            players = Players(fp, settings)
            stack.push_async_callback(players.close)
            return players

        yield make


@pytest.fixture
async def players(node: Node) -> Players:
    """One node without Redis: the key alone."""
    players = await node()
    await env.load(players.fp)
    return players


@pytest.fixture
async def cached(node: Node, redis_url: str) -> Players:
    """One node with Redis."""
    players = await node(redis_url)
    await env.load(players.fp)
    return players


async def enrol(
    players: Players, player_id: str, *, items: dict[str, int] | None = None, **resources: int
) -> None:
    """A player who has something."""
    await players.run(CreatePlayer(player_id=player_id), request_id="enrol")
    if items or resources:
        grants = tuple(ItemGrant(item=item, count=count) for item, count in (items or {}).items())
        request = GrantItems(player_id=player_id, items=grants, resources=resources)
        await players.run(request, request_id="enrol-with")


async def balances(players: Players, player_id: str) -> dict[str, int]:
    """Resources and stacks by name, and pieces by their item."""
    player = await players.player(player_id)
    held: dict[str, int] = dict(player.state["resources"])
    for holding in await players.fp.run(queries.inventory(player_id, limit=1000)):
        held[holding.item] = held.get(holding.item, 0) + holding.count
    assert await players.fp.run(queries.audit_check(player_id)) == []
    return held
