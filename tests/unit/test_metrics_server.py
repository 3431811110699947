from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs

from fencepost.errors import ServerUnavailable
from fencepost.metrics_server import CLIENTS_MAX, MetricsPage, MetricsServer, Route

Serve = Callable[[Mapping[str, Route]], MetricsServer]


def broken() -> MetricsPage:
    raise RuntimeError("s3cret detail")


@pytest.fixture
def serve() -> Iterator[Serve]:
    started: list[MetricsServer] = []

    def start(routes: Mapping[str, Route]) -> MetricsServer:
        endpoint = MetricsServer(routes)
        endpoint.start()
        started.append(endpoint)
        return endpoint

    yield start
    for endpoint in started:
        endpoint.stop()


def ask(
    endpoint: MetricsServer, path: str, method: str = "GET"
) -> tuple[int, bytes, http.client.HTTPResponse]:
    place = urlsplit(endpoint.url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read(), response
    finally:
        connection.close()


def test_it_listens_on_loopback_and_on_a_free_port(serve: Serve) -> None:
    endpoint = serve({"/": lambda: MetricsPage(b"hello")})
    assert endpoint.url.startswith("http://127.0.0.1:")
    assert ask(endpoint, "/?a=b")[:2] == (200, b"hello")


def test_head_answers_without_a_body(serve: Serve) -> None:
    status, body, response = ask(serve({"/": lambda: MetricsPage(b"hello")}), "/", "HEAD")
    assert (status, body, response.getheader("Content-Length")) == (200, b"", "5")


def test_an_unknown_path_says_what_there_is(serve: Serve) -> None:
    status, body, _ = ask(serve({"/healthz": lambda: MetricsPage(b"ok")}), "/nope")
    assert (status, body) == (404, b"Not found. There is: /healthz\n")


def test_a_route_that_fails_is_a_500_whose_reason_stays_in_the_log(serve: Serve) -> None:
    endpoint = serve({"/": broken, "/ok": lambda: MetricsPage(b"ok")})
    with capture_logs() as logs:
        status, body, _ = ask(endpoint, "/")
    assert status == 500
    assert b"s3cret" not in body
    assert [entry["event"] for entry in logs] == ["endpoint failed"]
    assert ask(endpoint, "/ok")[0] == 200


def test_nothing_but_reading_is_allowed(serve: Serve) -> None:
    assert ask(serve({"/": lambda: MetricsPage(b"hello")}), "/", "POST")[0] == 501


def test_a_port_in_use_is_said_with_its_setting(serve: Serve) -> None:
    port = urlsplit(serve({}).url).port
    assert port is not None
    with pytest.raises(ServerUnavailable, match=rf"METRICS_PORT {port}: Address already in use"):
        MetricsServer({}, port=port).start()


def test_a_stopped_endpoint_frees_its_port(serve: Serve) -> None:
    endpoint = serve({})
    port = urlsplit(endpoint.url).port
    assert port is not None
    endpoint.stop()
    endpoint.stop()
    again = MetricsServer({}, port=port)
    again.start()
    again.stop()


@pytest.mark.parametrize(
    ("address", "beginning"),
    [("0.0.0.0", "http://127.0.0.1:"), ("127.0.0.1", "http://127.0.0.1:")],  # noqa: S104
)
def test_the_url_is_one_that_a_browser_can_open(address: str, beginning: str) -> None:
    endpoint = MetricsServer({}, address=address)
    endpoint.start()
    try:
        assert endpoint.url.startswith(beginning)
    finally:
        endpoint.stop()


def handlers() -> int:
    """The threads that serve one client each."""
    return sum(thread.name == "fencepost-endpoint-client" for thread in threading.enumerate())


def test_silent_clients_take_no_more_threads_than_allowed_and_keep_no_scrape_out(serve: Serve) -> None:
    endpoint = serve({"/": lambda: MetricsPage(b"hello")})
    place = urlsplit(endpoint.url)
    with ExitStack() as silent:
        for _ in range(3 * CLIENTS_MAX):
            silent.enter_context(socket.create_connection((place.hostname, place.port or 0)))
            assert handlers() <= CLIENTS_MAX
        assert ask(endpoint, "/")[:2] == (200, b"hello")
        assert handlers() <= CLIENTS_MAX


def test_a_page_that_is_being_made_is_not_cut_off_by_other_clients(serve: Serve) -> None:
    asked, may_answer = threading.Event(), threading.Event()

    def slow() -> MetricsPage:
        asked.set()
        may_answer.wait(60)
        return MetricsPage(b"at last")

    endpoint = serve({"/slow": slow, "/": lambda: MetricsPage(b"hello")})
    place = urlsplit(endpoint.url)
    with ThreadPoolExecutor(1) as pool, ExitStack() as silent:
        first = pool.submit(ask, endpoint, "/slow")
        assert asked.wait(60)
        for _ in range(2 * CLIENTS_MAX):
            silent.enter_context(socket.create_connection((place.hostname, place.port or 0)))
        assert ask(endpoint, "/")[:2] == (200, b"hello")
        may_answer.set()
        assert first.result(60)[:2] == (200, b"at last")


def test_where_every_thread_makes_a_page_the_next_client_is_turned_away_and_not_queued(serve: Serve) -> None:
    making, may_answer = threading.Semaphore(0), threading.Event()

    def slow() -> MetricsPage:
        making.release()
        may_answer.wait(60)
        return MetricsPage(b"at last")

    endpoint = serve({"/slow": slow})
    with ThreadPoolExecutor(CLIENTS_MAX) as pool:
        first = [pool.submit(ask, endpoint, "/slow") for _ in range(CLIENTS_MAX)]
        for _ in first:
            assert making.acquire(timeout=60)
        with pytest.raises((http.client.HTTPException, OSError)):
            ask(endpoint, "/slow")
        may_answer.set()
        assert {one.result(60)[0] for one in first} == {200}
    assert ask(endpoint, "/slow")[0] == 200
