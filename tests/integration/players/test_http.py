"""The players over HTTP: what changes something goes through the pipeline, and errors keep the contract."""

import inspect
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel

from fencepost import Fencepost
from fencepost.embedded import Database
from fencepost.plugin import load, plugins
from fencepost.testing import Signals
from fencepost_players import _rules as rules
from fencepost_players import requests
from fencepost_players._api import TWIRP, make_router
from fencepost_players._http_service import make_service
from fencepost_players.mutations.http_routes import MutationRoute, TwirpRoute
from fencepost_players.mutations.planning import Mutation, Rng, mutation, mutations_of
from fencepost_players.service import Players
from fencepost_server._callers import Callers
from fencepost_server.web._app import make_app
from fencepost_server.web.authorization import Right
from fencepost_server.web.http_service import HttpService, access_of
from fencepost_server.web.settings import WebSettings
from tests.integration.players import env
from tests.integration.players.conftest import Node, enrol
from tests.integration.web.tokens import program_token

SAFE = {"GET", "HEAD", "OPTIONS"}
BODIES: dict[str, dict[str, Any]] = {
    "CreatePlayer": {"player_id": "zoe"},
    "UseItem": {"player_id": "ann", "item": "box", "count": 3},
    "GrantItems": {"player_id": "ann", "resources": {"gold": 5}},
    "UnlockHeroStage": {"player_id": "ann", "hero": "knight", "stage": 1},
    "Draw": {"player_id": "ann", "pool": "spring", "count": 2},
    "ClearDungeon": {"player_id": "ann", "dungeon": "cave"},
    "Teach": {"player_id": "ann", "lesson": "fencing"},
    "Transfer": {"player_id": "ann", "to_player_id": "bob", "resources": {"gold": 1}},
}


@pytest.fixture
async def players(node: Node) -> Players:
    players = await node()
    await env.load(players.fp)
    await enrol(players, "ann", items={"box": 10, "stone": 5}, gold=1000, gem=100)
    await enrol(players, "bob")
    return players


@pytest.fixture
def app(players: Players) -> FastAPI:
    router = make_router(players)
    service = HttpService("players", router, access=access_of(router, Right.SUBMIT))
    return make_app([service], WebSettings(), authenticate=Callers(players.fp).authenticate)


@pytest.fixture
async def http(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


def changing_routes(holder: Any) -> list[APIRoute]:
    """Of an application or a router, and of the routers included in it."""
    found: list[APIRoute] = []
    for route in holder.routes:
        if hasattr(route, "original_router"):
            found += changing_routes(route.original_router)
        elif isinstance(route, APIRoute) and not (route.methods or set()) <= SAFE:
            found.append(route)
    return found


def outside_the_pipeline(app: FastAPI) -> list[str]:
    return [route.path for route in changing_routes(app) if not isinstance(route, MutationRoute)]


def test_every_route_that_changes_something_goes_through_the_pipeline(app: FastAPI) -> None:
    assert outside_the_pipeline(app) == []
    declared = mutations_of(rules)
    for kind in (MutationRoute, TwirpRoute):
        served = {r.mutation.method for r in changing_routes(app) if isinstance(r, kind)}
        assert served == set(declared)


def test_a_route_beside_the_pipeline_is_seen(app: FastAPI) -> None:
    @app.post("/players/{player_id}/cheat")
    async def cheat(player_id: str) -> None: ...  # pyright: ignore[reportUnusedFunction]

    assert outside_the_pipeline(app) == ["/players/{player_id}/cheat"]


def test_every_request_has_a_mutation_and_none_can_carry_a_seed() -> None:
    kinds = {
        kind
        for kind in vars(requests).values()
        if inspect.isclass(kind)
        and issubclass(kind, requests.PlayerRequest)
        and kind is not requests.PlayerRequest
    }
    declared = {mutation.request for mutation in mutations_of(rules).values()}
    assert kinds == declared
    assert all("seed" not in kind.model_fields for kind in kinds)


async def test_sent_twice_by_any_route_it_takes_effect_once(http: httpx.AsyncClient, app: FastAPI) -> None:
    """Each declared mutation through each of its routes; one without a body here fails the test."""
    for number, route in enumerate(changing_routes(app)):
        assert isinstance(route, MutationRoute)
        # A mutation that can be done once only is repeated under its first id.
        request_id = f"walk-{route.mutation.method}"
        body = {**BODIES[route.mutation.method], "request_id": request_id}
        path = route.path.replace("{player_id}", body["player_id"])
        first = await http.post(path, json=body)
        assert first.status_code == 200, (path, first.text)
        state = (await http.get(f"/players/{body['player_id']}")).json()
        again = await http.post(path, json=body)
        assert (again.json(), again.headers["Idempotency-Replayed"]) == (first.json(), "true")
        assert (await http.get(f"/players/{body['player_id']}")).json() == state, number
        taken = {"player_id": body["player_id"], "resources": {"gold": 77}, "request_id": f"taken-{number}"}
        assert (await http.post(f"{TWIRP}/GrantItems", json=taken)).status_code == 200
        wrong = await http.post(path, json={**body, "request_id": f"taken-{number}"})
        assert wrong.json()["meta"]["reason"] == "mismatch"
        assert wrong.status_code == (400 if isinstance(route, TwirpRoute) else 422)


WRONG: tuple[tuple[Any, str], ...] = (
    ({"item": "box", "count": -1}, "count"),
    ({"item": "box", "count": 0}, "count"),
    ({"item": "box", "count": 2**63}, "count"),
    ({"item": "box", "count": "many"}, "count"),
    ({"item": ""}, "item"),
    ({"item": "box", "seed": 7}, "seed"),
    ({}, "item"),
    ({"item": "box", "request_id": 7}, "request_id"),
    ({"item": "box", "request_id": "x" * 300}, "request_id"),
    ({"item": "box", "request_id": "a\0b"}, "request_id"),
    ([], "body"),
)


async def test_a_wrong_request_names_the_argument_and_writes_nothing(http: httpx.AsyncClient) -> None:
    before = (await http.get("/players/ann")).json()
    for body, argument in WRONG:
        sent: Any = {"request_id": "r1", **body} if body != [] else body
        answer = await http.post("/players/ann/use-item", json=sent)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_argument"), answer.text
        assert answer.json()["meta"]["argument"] == argument
    assert (await http.get("/players/ann")).json() == before


async def test_a_megabyte_of_metadata_is_refused_by_name(http: httpx.AsyncClient) -> None:
    grant = {"item": "sword", "metadata": {"story": "x" * 900_000}}
    answer = await http.post("/players/ann/grant-items", json={"request_id": "r1", "items": [grant]})
    assert answer.status_code == 400
    assert answer.json()["meta"]["argument"] == "items.0.metadata"
    assert "at most 4096" in answer.json()["msg"]
    assert len(answer.text) < 500


@pytest.mark.parametrize("value", ["NaN", "1e400", '"\\u0000"', '"\\ud800"'])
async def test_metadata_that_cannot_be_kept_is_refused_by_name(http: httpx.AsyncClient, value: str) -> None:
    grant = '{"item": "sword", "metadata": {"n": VALUE}}'.replace("VALUE", value)
    body = f'{{"request_id": "r1", "items": [{grant}]}}'
    answer = await http.post("/players/ann/grant-items", content=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_argument"), answer.text
    assert answer.json()["meta"]["argument"].startswith("items.0.metadata")


async def test_errors_have_twirps_shape_and_say_when_to_come_back(
    http: httpx.AsyncClient, players: Players
) -> None:
    missing = await http.post(
        f"{TWIRP}/UseItem", json={"player_id": "nobody", "item": "box", "request_id": "r"}
    )
    assert missing.status_code == 404
    assert missing.json() == {
        "code": "not_found",
        "msg": "There is no player nobody.",
        "meta": {"noun": "player", "name": "nobody"},
    }
    poor = await http.post("/players/bob/use-item", json={"item": "box", "request_id": "r"})
    assert (poor.status_code, poor.json()["code"]) == (412, "failed_precondition")
    async with players.fp.transaction() as tx:
        await players.join(tx, requests.ClearDungeon(player_id="bob", dungeon="cave"), request_id="busy")
        busy = await http.post("/players/bob/clear-dungeon", json={"dungeon": "cave", "request_id": "busy"})
    assert (busy.status_code, busy.json()["code"]) == (409, "aborted")
    assert int(busy.headers["Retry-After"]) >= 1
    garbage = await http.post("/players/bob/use-item", content=b"{")
    assert garbage.json()["meta"] == {"argument": "body"}


async def test_the_id_may_come_in_a_header(http: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "h1"}
    first = await http.post("/players/ann/clear-dungeon", json={"dungeon": "cave"}, headers=headers)
    again = await http.post("/players/ann/clear-dungeon", json={"dungeon": "cave", "request_id": "h1"})
    assert again.json() == first.json()
    both = {"dungeon": "cave", "request_id": "other"}
    assert (await http.post("/players/ann/clear-dungeon", json=both, headers=headers)).status_code == 400


async def test_a_player_its_inventory_and_its_history_can_be_read(http: httpx.AsyncClient) -> None:
    grant = {"items": [{"item": "sword", "quality": 2, "metadata": {"n": 1}}], "request_id": "g"}
    await http.post("/players/ann/grant-items", json=grant)
    page = (await http.get("/players/ann/inventory", params={"limit": 2})).json()
    assert [holding["item"] for holding in page] == ["box", "stone"]
    rest = (await http.get("/players/ann/inventory", params={"after_item": "stone", "limit": 2})).json()
    assert [(holding["item"], holding["metadata"]) for holding in rest] == [("sword", {"n": 1})]
    history = (await http.get("/players/ann/history", params={"limit": 1})).json()
    assert (history[0]["method"], history[0]["request_id"]) == ("GrantItems", "g")
    assert (await http.get("/players/ann/audit")).json() == []
    assert (await http.get("/players/nobody/inventory")).status_code == 404


async def test_the_audit_names_the_actor(http: httpx.AsyncClient, database: Database) -> None:
    async def actor_after(path: str, **headers: str) -> Any:
        body = {"player_id": "bob", "dungeon": "cave"} if path.startswith("/twirp") else {"dungeon": "cave"}
        answer = await http.post(path, json={**body, "request_id": f"{path}{headers}"}, headers=headers)
        assert answer.status_code == 200, answer.text
        return (await http.get("/players/bob/history", params={"limit": 1})).json()[0]["actor"]

    program = {"authorization": f"Bearer {program_token(database, 'players')}", "x-actor": "ann"}
    for path in ("/players/bob/clear-dungeon", f"{TWIRP}/ClearDungeon"):
        assert await actor_after(path, **program) == "checkout@players"
        assert await actor_after(path) == "http 127.0.0.1"


async def test_openapi_describes_every_mutation(http: httpx.AsyncClient) -> None:
    paths = (await http.get("/openapi.json")).json()["paths"]
    body = paths["/players/{player_id}/use-item"]["post"]["requestBody"]["content"]["application/json"][
        "schema"
    ]
    assert set(body["properties"]) == {"item", "count", "piece_id", "request_id"}
    assert f"{TWIRP}/Transfer" in paths


def test_the_plugin_names_the_service() -> None:
    assert load(str(plugins()["players"].http_service)) is make_service


async def test_the_part_opens_and_cleans(database: Database) -> None:
    async with Fencepost(database.url) as fp:
        with Signals() as signals:
            async with make_service(fp).running():
                await signals.wait("mutations.cleaned")


def test_a_declaration_that_could_take_a_seed_from_outside_is_refused() -> None:
    class Loose(BaseModel):
        player_id: str

    def plan(snapshot: str, request: Loose, rng: Rng) -> str:
        return snapshot

    with pytest.raises(TypeError, match="could be a seed"):
        mutation("Loose", needs=lambda request: None)(plan)
    assert isinstance(rules.draw, Mutation)
