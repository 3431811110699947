"""What an HTTP sink makes of answers that say neither yes nor no."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from fencepost.flows import CheckpointId, FlowError
from fencepost.flows.sinks import http
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


@pytest.mark.parametrize("status", [409, 425, 429, 503])
async def test_a_request_that_is_in_flight_there_is_asked_for_again(status: int) -> None:
    with running(Service((status, b"in flight"), (status, b"in flight"))) as service:
        await HttpSink(service.url, honours_keys=True).deliver(CHECKPOINT, [1])

    assert (service.asked, len(service.executed)) == (3, 1)


async def test_a_conflict_that_never_ends_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "TRIES_MAX", 3)
    told = r"answered 409 for flow:f/all#1/0, 3 times.*already_done="
    with running(Service(*[(409, b"in flight")] * 9)) as service, pytest.raises(FlowError, match=told):
        await HttpSink(service.url, honours_keys=True).deliver(CHECKPOINT, [1])

    assert service.executed == []


async def test_a_conflict_that_says_done_is_done() -> None:
    with running(Service((409, b"in flight"), (409, b"done before"))) as service:
        sink = HttpSink(service.url, honours_keys=True, already_done=lambda body: body == b"done before")
        await sink.deliver(CHECKPOINT, [1])

    assert service.asked == 2


async def test_a_refusal_is_raised_at_once() -> None:
    with running(Service((422, b""))) as service, pytest.raises(FlowError, match="answered 422"):
        await HttpSink(service.url, honours_keys=True).deliver(CHECKPOINT, [1])

    assert service.asked == 1
