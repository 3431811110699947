"""The application behind a real socket: errors in one shape, parts opened and closed in order."""

import socket
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import APIRouter
from pydantic import BaseModel, Field

from fencepost.errors import FencepostError, InFlight, InvalidInput, NotFound, ServerUnavailable
from fencepost_server.web._app import make_app
from fencepost_server.web._server import WebServer
from fencepost_server.web.http_service import HttpService
from fencepost_server.web.settings import WebSettings

ERRORS: dict[str, Exception] = {
    "input": InvalidInput("The name is empty.", field="name"),
    "flight": InFlight("Another request does it."),
    "missing": NotFound("There is no such thing."),
    "server": ServerUnavailable("It is away."),
    "ours": FencepostError("Something else."),
    "bug": RuntimeError("the password is hunter2"),
}


class Thing(BaseModel):
    count: int = Field(ge=1)


class Diary:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def part(self, name: str, *, fails: bool = False) -> HttpService:
        router = APIRouter()

        @router.post(f"/{name}")
        async def make(thing: Thing) -> int:
            return thing.count

        @router.get(f"/{name}/{{which}}")
        async def fail(which: str) -> None:
            raise ERRORS[which]

        @asynccontextmanager
        async def running() -> AsyncGenerator[None]:
            if fails:
                raise ServerUnavailable(f"{name} cannot start.")
            self.lines.append(f"{name} opened")
            try:
                yield
            finally:
                self.lines.append(f"{name} closed")

        return HttpService(name, router, running)


@pytest.fixture
def diary() -> Diary:
    return Diary()


@pytest.fixture
def http(diary: Diary) -> Iterator[httpx.Client]:
    app = make_app([diary.part("first"), diary.part("second")], WebSettings(body_max_bytes=2048))
    server = WebServer(app, address="127.0.0.1", port=0)
    server.start()
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client
    server.stop()


def test_parts_open_in_order_and_close_in_reverse(diary: Diary) -> None:
    server = WebServer(
        make_app([diary.part("first"), diary.part("second")], WebSettings()), address="127.0.0.1", port=0
    )
    server.start()
    assert diary.lines == ["first opened", "second opened"]
    server.stop()
    assert diary.lines[2:] == ["second closed", "first closed"]


def test_a_part_that_cannot_start_stops_everything_and_says_why(diary: Diary) -> None:
    server = WebServer(
        make_app([diary.part("first"), diary.part("second", fails=True)], WebSettings()),
        address="127.0.0.1",
        port=0,
    )
    with pytest.raises(ServerUnavailable, match="second cannot start"):
        server.start()
    server.stop()
    assert diary.lines == ["first opened", "first closed"]


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = WebServer(make_app([], WebSettings()), address="127.0.0.1", port=port)
        with pytest.raises(ServerUnavailable, match=f"HTTP_PORT {port}: Address already in use"):
            server.start()


@pytest.mark.parametrize(
    ("which", "status", "body"),
    [
        ("input", 400, {"code": "invalid_input", "message": "The name is empty.", "field": "name"}),
        ("flight", 409, {"code": "in_flight", "message": "Another request does it."}),
        ("missing", 404, {"code": "not_found", "message": "There is no such thing."}),
        ("server", 503, {"code": "unavailable", "message": "It is away."}),
        ("ours", 500, {"code": "failed", "message": "Something else."}),
        ("bug", 500, {"code": "failed", "message": "Failed; the reason is in the log."}),
    ],
)
def test_every_error_has_one_shape(http: httpx.Client, which: str, status: int, body: object) -> None:
    answer = http.get(f"/first/{which}")
    assert (answer.status_code, answer.json()) == (status, body)
    assert ("retry-after" in answer.headers) == (which in {"flight", "server"})


def test_a_wrong_body_names_its_field(http: httpx.Client) -> None:
    answer = http.post("/first", json={"count": 0})
    assert (answer.status_code, answer.json()["field"]) == (400, "count")
    assert http.post("/first", content="{", headers={"content-type": "application/json"}).json() == {
        "code": "invalid_input",
        "message": "The body is not JSON.",
        "field": "body",
    }
    assert http.post("/first", json={"count": 3}).json() == 3


def test_a_body_in_pieces_is_bounded_too(http: httpx.Client) -> None:
    def pieces() -> Iterator[bytes]:
        yield b'{"count": 3}'
        for _ in range(10):
            yield b" " * 1000

    answer = http.post("/first", content=pieces(), headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


def test_what_is_not_there_is_told_in_the_same_shape(http: httpx.Client) -> None:
    assert http.get("/nothing").json()["code"] == "not_found"
    assert http.put("/first").json()["code"] == "method_not_allowed"
    assert "/second" in http.get("/openapi.json").json()["paths"]


def test_every_answer_says_that_it_is_not_kept_and_not_guessed_at(http: httpx.Client) -> None:
    """Also those of the guard, the router, the one for bugs, and the server before there is a request."""
    answers = [
        http.get("/openapi.json"),
        http.post("/first", json={"count": 3}),
        http.post("/first", json={"count": 0}),
        http.get("/first/bug"),
        http.get("/nothing"),
        http.put("/first"),
        http.get("/first/input", headers={"host": "evil.example"}),
        http.get("/openapi.json", headers={"x-forwarded-for": "203.0.113.9"}),
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 400, 500, 404, 405, 403, 403]
    with socket.create_connection((http.base_url.host, http.base_url.port or 0)) as client:
        client.sendall(b"this is no HTTP\r\n\r\n")
        said = b""
        while piece := client.recv(4096):
            said += piece
    head, _, body = said.decode().partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 400 ")
    assert body == '{"code":"invalid_input","message":"This is no HTTP request."}'
    told = dict(line.split(": ", 1) for line in head.splitlines()[1:])
    for headers in [*(answer.headers for answer in answers), told]:
        assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")
