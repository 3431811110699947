"""Connections that keep a real server waiting: what becomes of them, and of those that come meanwhile."""

from __future__ import annotations

import resource
import socket
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from fencepost.embedded._deadline import Deadline
from fencepost.metrics import Metrics
from fencepost_server.web import _listener as listener
from fencepost_server.web._app import make_app
from fencepost_server.web._connections import ConnectionTable, Ending, Limits
from fencepost_server.web._listener import BoundedListener, connections_within
from fencepost_server.web._networks import Networks
from fencepost_server.web._server import WebServer
from fencepost_server.web.http_service import HttpService
from fencepost_server.web.settings import WebSettings

PATIENT = Limits(total_max=20, per_address_max=20)
HEAD = b"GET /word HTTP/1.1\r\nHost: localhost\r\n"
BODY = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\n\r\n"
LARGE = 32 << 20


class Served:
    def __init__(self, server: WebServer, registry: CollectorRegistry) -> None:
        self.url = server.url
        self._registry = registry

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        client = socket.create_connection(("127.0.0.1", urlsplit(self.url).port or 0), 30, (source, 0))
        client.settimeout(30)
        return client

    def open(self) -> int:
        return int(self._registry.get_sample_value("fencepost_http_connections") or 0)

    def closed(self, ending: Ending) -> int:
        name = "fencepost_http_connections_closed_total"
        return int(self._registry.get_sample_value(name, {"reason": ending.value}) or 0)


def words() -> HttpService:
    router = APIRouter()

    @router.get("/word")
    async def word() -> PlainTextResponse:
        return PlainTextResponse("word")

    @router.post("/echo")
    async def echo(request: Request) -> PlainTextResponse:
        return PlainTextResponse(str(len(await request.body())))

    @router.get("/large")
    async def large() -> PlainTextResponse:
        return PlainTextResponse("x" * LARGE)

    return HttpService("words", router)


@contextmanager
def served(limits: Limits) -> Generator[Served]:
    metrics = Metrics()
    server = WebServer(
        make_app([words()], WebSettings()), address="127.0.0.1", port=0, limits=limits, metrics=metrics
    )
    server.start()
    try:
        yield Served(server, metrics.registry)
    finally:
        server.stop()


def rest(client: socket.socket) -> bytes:
    """All that the server still says, until it closes the connection."""
    said = b""
    try:
        while piece := client.recv(65_536):
            said += piece
    except ConnectionResetError:
        pass
    return said


def trickle(client: socket.socket, piece: bytes) -> None:
    """A little more every 50 ms, until the server closes the connection."""
    client.settimeout(0.05)
    for _ in range(600):
        try:
            client.sendall(piece)
            if not client.recv(1000):
                return
        except TimeoutError:
            continue
        except OSError:
            return
    raise AssertionError("after 30 s the server still reads")


def read_until(client: socket.socket, end: bytes) -> None:
    said = b""
    while not said.endswith(end):
        piece = client.recv(1000)
        assert piece, said
        said += piece


def test_a_head_that_is_never_whole_is_not_waited_for() -> None:
    with served(Limits(header_seconds=0.2)) as server, server.connect() as client:
        client.sendall(HEAD)
        assert rest(client).startswith(b"HTTP/1.1 408 ")
        assert server.closed(Ending.SLOW_HEADER) == 1


def test_bytes_that_trickle_in_buy_no_time() -> None:
    with served(Limits(header_seconds=0.5)) as server, server.connect() as client:
        client.sendall(HEAD)
        trickle(client, b"X-A: a\r\n")
        Deadline(30, "it is closed").wait(lambda: server.open() == 0)
        assert server.closed(Ending.SLOW_HEADER) == 1


def test_a_client_that_says_nothing_is_not_waited_for() -> None:
    with served(Limits(header_seconds=0.2)) as server, server.connect() as client:
        assert rest(client) == b""


def test_the_second_request_of_a_connection_has_a_deadline_too() -> None:
    with served(Limits(header_seconds=0.2)) as server, server.connect() as client:
        client.sendall(HEAD + b"\r\n" + HEAD)
        said = rest(client)
        assert said.startswith(b"HTTP/1.1 200 ")
        assert b"HTTP/1.1 408 " in said


def test_a_body_that_is_never_whole_is_not_waited_for() -> None:
    with served(Limits(body_seconds=0.2)) as server, server.connect() as client:
        client.sendall(BODY + b"x")
        assert rest(client).startswith(b"HTTP/1.1 408 ")
        assert server.closed(Ending.SLOW_BODY) == 1


def test_an_unwanted_body_is_not_waited_for_either() -> None:
    """The answer came before the body was whole: more of it does not keep the connection."""
    with served(Limits(body_seconds=0.5)) as server, server.connect() as client:
        client.sendall(BODY.replace(b"/echo", b"/nothing").replace(b"20", b"2000"))
        read_until(client, b"}")
        trickle(client, b"x")
        Deadline(30, "it is closed").wait(lambda: server.open() == 0)


def test_an_answer_that_no_caller_reads_is_not_kept() -> None:
    with served(Limits(send_seconds=0.2)) as server, server.connect() as client:
        client.sendall(HEAD.replace(b"/word", b"/large") + b"\r\n")
        Deadline(30, "it is closed").wait(
            lambda: server.closed(Ending.SLOW_READER) == 1 and server.open() == 0
        )
        assert len(rest(client)) < LARGE


def test_whole_requests_are_answered_and_end_nothing() -> None:
    with served(Limits(header_seconds=30)) as server, server.connect() as client:
        client.sendall(HEAD + b"\r\n")
        read_until(client, b"word")
        client.sendall(BODY)
        client.sendall(b"x" * 20)
        read_until(client, b"\r\n\r\n20")
        assert server.open() == 1
    with served(Limits()) as server, httpx.Client() as http:
        assert http.get(f"{server.url}/large").text == "x" * LARGE


def test_when_all_places_wait_a_request_is_answered_all_the_same() -> None:
    with served(PATIENT) as server, ExitStack() as stack:
        slow = [stack.enter_context(server.connect(f"127.0.0.{n + 2}")) for n in range(20)]
        for client in slow:
            client.sendall(HEAD)
        Deadline(30, "all are there").wait(lambda: server.open() == 20)
        assert httpx.get(f"{server.url}/word").text == "word"
        assert server.closed(Ending.TOTAL_FULL) == 1
        # The first that came went.
        assert rest(slow[0]) == b""
        Deadline(30, "its place is free").wait(lambda: server.open() <= 20)


def test_one_address_has_no_more_than_its_places() -> None:
    limits = Limits(total_max=100, per_address_max=5)
    with served(limits) as server, ExitStack() as stack:
        many = [stack.enter_context(server.connect("127.0.0.9")) for _ in range(12)]
        Deadline(30, "seven have gone").wait(
            lambda: server.closed(Ending.ADDRESS_FULL) == 7 and server.open() == 5
        )
        assert len(many) == 12
        assert httpx.get(f"{server.url}/word").text == "word"


def test_a_named_proxy_has_as_many_as_there_are() -> None:
    limits = Limits(total_max=100, per_address_max=5, proxies=Networks.read("127.0.0.9"))
    with served(limits) as server, ExitStack() as stack:
        for _ in range(12):
            stack.enter_context(server.connect("127.0.0.9"))
        Deadline(30, "all are there").wait(lambda: server.open() == 12)


class Poor(BoundedListener):
    """A process without a descriptor, for so many times."""

    lacks = 0

    def _accept(self) -> tuple[int, Any]:
        if self.lacks:
            type(self).lacks -= 1
            raise OSError(24, "Too many open files")
        return super()._accept()  # type: ignore[misc,no-any-return]


def listening(count: Callable[[Ending], object]) -> BoundedListener:
    one = Poor(socket.AF_INET, ConnectionTable(PATIENT), count)
    one.bind(("127.0.0.1", 0))
    one.listen()
    one.setblocking(False)
    return one


def test_without_descriptors_a_connection_is_told_and_one_line_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    endings: list[Ending] = []
    with listening(endings.append) as server, ExitStack() as stack, capture_logs() as lines:
        clients = [stack.enter_context(socket.create_connection(server.getsockname())) for _ in range(4)]
        monkeypatch.setattr(listener, "REFUSED_AT_ONCE", 1)
        for _ in range(3):
            monkeypatch.setattr(Poor, "lacks", 1)
            with pytest.raises(BlockingIOError):
                server.accept()
        accepted, _ = server.accept()
        accepted.close()
        assert [rest(client)[:12] for client in clients[:3]] == [b"HTTP/1.1 503"] * 3
        assert endings == [Ending.NO_DESCRIPTOR] * 3
        assert len([line for line in lines if line["event"] == "http_connections_refused"]) == 1


def test_where_even_that_fails_asyncio_pauses_and_is_not_told_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(lambda _: None) as server, socket.create_connection(server.getsockname()):
        monkeypatch.setattr(Poor, "lacks", 10)
        with pytest.raises(OSError, match="Too many open files"):
            server.accept()
        with pytest.raises(BlockingIOError):
            server.accept()


def test_descriptors_are_left_for_the_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(1024, 1024)]

    def get_limit(_: int) -> tuple[int, int]:
        return limits[-1]

    def set_limit(_: int, pair: tuple[int, int]) -> None:
        limits.append(pair)

    monkeypatch.setattr(resource, "getrlimit", get_limit)
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    assert connections_within(4096, 300) == 724
    limits.append((1024, 1_000_000))
    assert connections_within(4096, 300) == 4096
    assert limits[-1] == (4396, 1_000_000)
    limits.append((100, 100))
    assert connections_within(4096, 300) == 50
    limits.append((1024, resource.RLIM_INFINITY))
    assert connections_within(4096, 300) == 4096


def test_no_descriptor_is_left_behind() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with served(PATIENT) as server:
            assert httpx.get(f"{server.url}/word").text == "word"
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 2
