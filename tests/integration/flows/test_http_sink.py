"""What an HTTP sink makes of answers that say neither yes nor no."""

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from fencepost.flows import CheckpointId, FlowError
from fencepost.flows.sinks import http
from fencepost.flows.sinks._rejecting import Rejection
from fencepost.flows.sinks.http import HttpSink

CHECKPOINT = CheckpointId("flow:f/all", 1, 1)


class Service:
    """Answers each request with the next of the given answers, and counts what it has executed."""

    def __init__(self, *answers: tuple[int, bytes]) -> None:
        self.answers = list(answers)
        self.executed: list[str] = []
        self.asked = 0
        self.url = ""

    def answer(self, key: str) -> tuple[int, bytes]:
        self.asked += 1
        status, body = self.answers.pop(0) if self.answers else (204, b"")
        if status < 300:
            self.executed.append(key)
        return status, body


@contextmanager
def running(service: Service) -> Generator[Service]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            status, body = service.answer(self.headers["Idempotency-Key"])
            self.send_response(status)
            self.send_header("Retry-After", "0")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Tests are quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        service.url = f"http://127.0.0.1:{server.server_address[1]}/"
        yield service
        server.shutdown()
        thread.join()


async def delivered(sink: HttpSink, values: Sequence[Any]) -> list[Rejection]:
    try:
        return list(await sink.deliver(CHECKPOINT, values) or ())
    finally:
        await sink.close()


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504])
async def test_a_request_that_was_not_settled_is_asked_for_again(status: int) -> None:
    with running(Service((status, b"in flight"), (status, b"in flight"))) as service:
        await delivered(HttpSink(service.url, honours_keys=True), [1])

    assert (service.asked, len(service.executed)) == (3, 1)


async def test_a_conflict_that_never_ends_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "TRIES_MAX", 3)
    told = r"answered 409 for flow:f/all#1/0, 3 times.*already_done="
    with running(Service(*[(409, b"in flight")] * 9)) as service, pytest.raises(FlowError, match=told):
        await delivered(HttpSink(service.url, honours_keys=True), [1])

    assert service.executed == []


async def test_a_conflict_that_says_done_is_done() -> None:
    with running(Service((409, b"in flight"), (409, b"done before"))) as service:
        sink = HttpSink(service.url, honours_keys=True, already_done=lambda body: body == b"done before")
        await delivered(sink, [1])

    assert service.asked == 2


@pytest.mark.parametrize("status", [301, 401, 403, 404, 405])
async def test_an_answer_about_every_request_is_raised_at_once(status: int) -> None:
    told = rf"answered {status} .* about every request .*: no such thing.*rejects="
    with running(Service((status, b"no such thing"))) as service, pytest.raises(FlowError, match=told):
        await delivered(HttpSink(service.url, honours_keys=True), [1])

    assert service.asked == 1


async def test_a_rejection_is_answered_at_once_with_body_and_answer() -> None:
    with running(Service((422, b"no customer"))) as service:
        [rejected] = await delivered(HttpSink(service.url, honours_keys=True), [{"n": 1}])

    assert service.asked == 1
    assert (rejected.value, rejected.body, rejected.answer) == ({"n": 1}, b'{"n":1}', "no customer")
    assert "answered 422 for flow:f/all#1/0" in rejected.error


async def test_a_status_may_be_named_as_a_rejection() -> None:
    with running(Service((404, b"no customer"))) as service:
        [rejected] = await delivered(HttpSink(service.url, honours_keys=True, rejects={404}), [1])

    assert rejected.answer == "no customer"


async def test_what_was_taken_is_not_sent_again_by_the_same_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a checkpoint that begins again because one request failed for good."""
    monkeypatch.setattr(http, "TRIES_MAX", 1)
    service = Service((204, b""), (204, b""), (503, b""))
    with running(service):
        sink = HttpSink(service.url, honours_keys=True, concurrency=1)
        with pytest.raises(FlowError, match="503"):
            await sink.deliver(CHECKPOINT, [1, 2, 3, 4])
        await delivered(sink, [1, 2, 3, 4])

    assert service.asked == 3 + 2
    assert sorted(service.executed) == [f"flow:f/all#1/{place}" for place in range(4)]


@pytest.mark.parametrize("url", ["ftp://x/", "http://", "nowhere"])
def test_what_is_no_address_is_refused_when_the_sink_is_made(url: str) -> None:
    with pytest.raises(FlowError, match="is no address for HTTP"):
        HttpSink(url)
