from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs

from fencepost.errors import ServerUnavailable
from fencepost.metrics_server import MetricsPage, MetricsServer, Route

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
