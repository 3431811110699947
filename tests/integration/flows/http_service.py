"""A service for tests of HTTP sinks: honours keys, keeps connections, loses and refuses what it is told."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Answer(NamedTuple):
    status: int = 204
    body: bytes = b""
    lost: bool = False
    """Whether the connection is closed in its place, after the request was executed."""


class HttpService:
    """`answer` says what becomes of a request, from its key and its body."""

    def __init__(self, answer: Callable[[str, bytes], Answer]) -> None:
        self._answer = answer
        self._lock = threading.Lock()
        self.url = ""
        self.requests = 0
        self.connections = 0
        self.bodies: dict[str, set[bytes]] = {}
        """What came under each key."""
        self.executed: dict[str, Any] = {}
        """By key: what was executed, once."""

    def take(self, key: str, body: bytes) -> Answer:
        with self._lock:
            self.requests += 1
            self.bodies.setdefault(key, set()).add(body)
            answer = self._answer(key, body)
            if answer.status < 300:
                self.executed.setdefault(key, json.loads(body))
            return answer

    def connected(self) -> None:
        with self._lock:
            self.connections += 1

    @property
    def values(self) -> Counter[Any]:
        """Everything that was executed, also within batches."""
        values: list[Any] = []
        for each in self.executed.values():
            values += each if isinstance(each, list) else [each]
        return Counter(values)


@contextmanager
def serving(answer: Callable[[str, bytes], Answer]) -> Generator[HttpService]:
    service = HttpService(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            service.connected()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            given = service.take(self.headers["Idempotency-Key"], body)
            if given.lost:
                self.close_connection = True
                return
            self.send_response(given.status)
            self.send_header("Content-Length", str(len(given.body)))
            self.end_headers()
            self.wfile.write(given.body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Tests are quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        service.url = f"http://127.0.0.1:{server.server_address[1]}/"
        yield service
        server.shutdown()
        thread.join()
