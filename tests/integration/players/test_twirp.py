"""Twirp: a `.proto` made from the declarations, bodies in protobuf, and errors of Twirp's shape."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from fencepost_players._answers import players_proto
from fencepost_players._api import TWIRP, make_router
from fencepost_players.mutations._proto import Codec
from fencepost_players.service import Players
from fencepost_server.web._app import make_app
from fencepost_server.web.http_service import HttpService
from fencepost_server.web.settings import WebSettings
from tests.integration.players.conftest import balances, enrol
from tests.integration.players.test_http import BODIES

PROTOBUF = {"Content-Type": "application/protobuf"}
RECORDED = Path(__file__).parents[3] / "docs" / "reference" / "players.proto"


class Client:
    """Speaks protobuf as a client does that was generated from the file: by the descriptors of its own."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self.service = players_proto()
        codec: Any = Codec(self.service)
        self.classes: dict[str, Any] = codec._classes

    async def send(self, method: str, body: bytes) -> httpx.Response:
        return await self.http.post(f"{TWIRP}/{method}", content=body, headers=PROTOBUF)

    async def call(self, method: str, **fields: Any) -> httpx.Response:
        request = self.classes[self.service.methods[method]](**fields)
        return await self.send(method, request.SerializeToString())

    def read(self, answer: httpx.Response) -> Any:
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "application/protobuf"
        read = self.classes[self.service.answer]()
        read.ParseFromString(answer.content)
        return read


@pytest.fixture
async def client(players: Players) -> AsyncIterator[Client]:
    await enrol(players, "ann", items={"box": 10, "stone": 5}, gold=1000, gem=100)
    await enrol(players, "bob")
    app: FastAPI = make_app([HttpService("players", make_router(players))], WebSettings())
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        yield Client(http)


@pytest.mark.parametrize("method", BODIES)
async def test_every_method_takes_and_gives_protobuf_and_says_what_json_says(
    client: Client, method: str
) -> None:
    first = await client.call(method, request_id=f"p-{method}", **BODIES[method])
    answer = client.read(first)

    again = await client.call(method, request_id=f"p-{method}", **BODIES[method])
    in_json = await client.http.post(
        f"{TWIRP}/{method}", json={**BODIES[method], "request_id": f"p-{method}"}
    )

    assert again.content == first.content, "a replay has the bytes of the first answer"
    assert again.headers["idempotency-replayed"] == in_json.headers["idempotency-replayed"] == "true"
    told = in_json.json()
    assert (answer.player_id, answer.version) == (told["player_id"], told["version"])
    assert [one.count for one in answer.granted] == [one["count"] for one in told.get("granted", [])]
    for name in ("hero", "stage", "pool", "season", "dungeon", "clears", "lesson", "to_player_id"):
        assert answer.HasField(name) == (name in told)
        assert not answer.HasField(name) or getattr(answer, name) == told[name]
    assert list(answer.rarities) == told.get("rarities", [])


async def test_nested_messages_maps_and_documents_arrive_whole(client: Client, players: Players) -> None:
    grant = {"item": "sword", "quality": 3, "metadata": '{"name": "Ævar", "list": [1, 2.5]}'}
    answer = client.read(
        await client.call(
            "GrantItems",
            request_id="g1",
            player_id="bob",
            items=[grant, {"item": "potion", "count": 2}],
            resources={"gold": 7, "dust": 2**53 + 1},
        )
    )
    assert [(one.item, one.resource, one.count) for one in answer.granted] == [
        ("sword", "", 1),
        ("potion", "", 2),
        ("", "dust", 2**53 + 1),
        ("", "gold", 7),
    ]
    assert await balances(players, "bob") == {"sword": 1, "potion": 2, "gold": 7, "dust": 2**53 + 1}
    held = await client.http.get("/players/bob/inventory")
    sword = next(one for one in held.json() if one["item"] == "sword")
    assert (sword["quality"], sword["metadata"]) == (3, {"name": "Ævar", "list": [1, 2.5]})


async def test_errors_are_json_whatever_the_request_was(client: Client) -> None:
    answers = {
        "garbage": await client.send("UseItem", b"\xff\xff\xff"),
        "missing": await client.call("UseItem", player_id="ann"),
        "metadata": await client.call(
            "GrantItems", player_id="ann", items=[{"item": "sword", "metadata": "{"}]
        ),
        "blank": await client.call("UseItem", player_id="ann", item="box", request_id=" "),
    }
    told = {name: (answer.status_code, answer.json()) for name, answer in answers.items()}
    assert {name: (status, body["code"]) for name, (status, body) in told.items()} == dict.fromkeys(
        answers, (400, "invalid_argument")
    )
    arguments = {name: body["meta"]["argument"] for name, (_, body) in told.items()}
    assert arguments == {"garbage": "body", "missing": "item", "metadata": "metadata", "blank": "request_id"}
    nobody = await client.call("UseItem", player_id="nobody", item="box", request_id="r1")
    assert (nobody.status_code, nobody.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("POST", f"{TWIRP}/Nope"),
        ("POST", "/twirp/fencepost_players.v2.Players/UseItem"),
        ("POST", "/twirp/"),
        ("POST", f"{TWIRP}/UseItem/more"),
        ("GET", f"{TWIRP}/UseItem"),
        ("PUT", f"{TWIRP}/UseItem"),
    ],
)
async def test_an_unknown_method_is_answered_as_twirp_says(client: Client, verb: str, path: str) -> None:
    answer = await client.http.request(verb, path)
    assert answer.status_code == 404
    body = answer.json()
    assert (body["code"], body["meta"]) == ("bad_route", {"twirp_invalid_route": f"{verb} {path}"})
    assert body["msg"]


async def test_without_the_library_protobuf_is_refused_and_json_goes_on(
    players: Players, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(service: Any) -> Codec:
        raise ImportError("No module named 'google'")

    monkeypatch.setattr("fencepost_players._api.Codec", absent)
    await enrol(players, "ann", items={"box": 1})
    app: FastAPI = make_app([HttpService("players", make_router(players))], WebSettings())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
        refused = await http.post(f"{TWIRP}/UseItem", content=b"", headers=PROTOBUF)
        assert (refused.status_code, refused.json()["code"]) == (501, "unimplemented")
        body = {"player_id": "ann", "item": "box", "request_id": "r1"}
        assert (await http.post(f"{TWIRP}/UseItem", json=body)).status_code == 200


async def test_the_file_is_served_and_is_the_one_that_is_documented(client: Client) -> None:
    """A number that changes breaks every client that was generated from the file."""
    served = await client.http.get(f"{TWIRP}.proto")
    assert served.headers["content-type"].startswith("text/plain")
    assert served.text == players_proto().text == RECORDED.read_text()
