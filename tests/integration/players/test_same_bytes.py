"""A repeat is answered with the bytes of the first answer, whichever cache has them, whatever its route."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import FastAPI
from pydantic import JsonValue

from fencepost.embedded import Database
from fencepost_players._api import make_router
from fencepost_players.requests import GrantItems, ItemGrant
from fencepost_players.service import Players
from tests.integration.players.conftest import Node, enrol

REST = "/players/ann/grant-items"
TWIRP = "/twirp/fencepost_players.v1.Players/GrantItems"
# Keys that jsonb would sort, numbers that it would rewrite, and letters beyond ASCII.
METADATA: dict[str, JsonValue] = {
    "zeta": 1.0,
    "a": 1e2,
    "name": "Ævar",
    "list": [3, 2, 1],
    "b": {"y": 1, "x": 2.50},
}
BODY = {"items": [{"item": "sword", "metadata": METADATA}, {"item": "potion", "count": 2}]}


@asynccontextmanager
async def over_http(players: Players) -> AsyncGenerator[httpx.AsyncClient]:
    app = FastAPI()
    app.include_router(make_router(players))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        yield client


async def by_rest(players: Players) -> httpx.Response:
    async with over_http(players) as client:
        return await client.post(REST, json=BODY, headers={"Idempotency-Key": "r1"})


async def by_twirp(players: Players) -> httpx.Response:
    async with over_http(players) as client:
        return await client.post(TWIRP, json={"player_id": "ann", "request_id": "r1", **BODY})


OWN_AUTH_PATHS = {"rest": by_rest, "twirp": by_twirp}


@pytest.mark.parametrize("first", OWN_AUTH_PATHS)
@pytest.mark.parametrize("second", OWN_AUTH_PATHS)
@pytest.mark.parametrize("layer", ["redis", "repeat"])
async def test_a_repeat_has_the_bytes_of_the_first_answer(
    node: Node, cached: Players, layer: str, first: str, second: str
) -> None:
    await enrol(cached, "ann")
    told = await OWN_AUTH_PATHS[first](cached)

    again = await OWN_AUTH_PATHS[second](cached if layer == "redis" else await node())

    assert (told.status_code, again.status_code) == (200, 200), told.text
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in told.headers
    assert again.content == told.content
    assert again.headers["content-type"] == told.headers["content-type"] == "application/json"


async def test_the_layers_that_were_asked_are_the_ones_that_were_meant(node: Node, cached: Players) -> None:
    await enrol(cached, "ann")
    request = GrantItems(player_id="ann", items=(ItemGrant(item="sword", metadata=METADATA),))
    first = await cached.run(request, request_id="r1")
    answers = [await one.run(request, request_id="r1") for one in (cached, await node())]
    assert [(one.layer, one.body) for one in answers] == [("cache", first.body), ("repeat", first.body)]


async def test_what_the_database_keeps_is_the_text_that_was_sent(
    players: Players, database: Database
) -> None:
    await enrol(players, "ann")
    answer = await by_rest(players)
    with database.connect_admin() as admin:
        kept = admin.execute(
            "select response::text from fencepost.idempotency_key where key = 'r1'"
        ).fetchone()
    assert kept == (answer.content.decode(),)
