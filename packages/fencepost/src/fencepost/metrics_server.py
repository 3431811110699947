"""A small HTTP server for metrics and health: GET and HEAD of a few fixed paths, on loopback by default.

It runs in its own threads, so that it answers while an event loop is blocked: that is when it is needed. It
has at most CLIENTS_MAX of them: one more client ends the oldest that keeps the server waiting.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from fencepost.errors import ServerUnavailable
from fencepost.logs import get_logger

TEXT = "text/plain; charset=utf-8"
CLIENTS_MAX = 16
_CLIENT_SECONDS = 5.0
_STOP_SECONDS = 0.1
_CUT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """One response."""

    body: bytes
    content_type: str = TEXT
    status: int = 200


Route = Callable[[], MetricsPage]


class MetricsServer:
    """Serves fixed paths between `start` and `stop`. Port 0 takes a free one; `url` contains it."""

    def __init__(self, routes: Mapping[str, Route], *, address: str = "127.0.0.1", port: int = 0) -> None:
        self._routes = routes
        self._address = address
        self._port = port
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The address of the started server."""
        assert self._server is not None, "the endpoint has no address before it is started"
        return f"http://{reachable(self._address)}:{self._server.server_address[1]}"

    def start(self) -> None:
        """Listen, and serve in a thread. Raises if the port is taken."""
        self._server = _listen(self._address, self._port, self._routes)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_STOP_SECONDS,), name="fencepost-endpoint", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop serving and close the port."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._server = self._thread = None


def answer(routes: Mapping[str, Route], path: str) -> MetricsPage:
    """The page at a path. A route that fails returns a 500; the reason is in the log."""
    route = routes.get(urlsplit(path).path)
    if route is None:
        return MetricsPage(f"Not found. There is: {' '.join(sorted(routes))}\n".encode(), status=404)
    try:
        return route()
    except Exception:
        get_logger(__name__).exception("endpoint failed", path=urlsplit(path).path)
        return MetricsPage(b"Failed; the reason is in the log.\n", status=500)


def reachable(address: str) -> str:
    """An address that a browser can open: not the wildcard, and IPv6 in brackets."""
    bare = address.strip("[]")
    bare = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bare, bare)  # noqa: S104 - Compared, not listened on.
    return f"[{bare}]" if ":" in bare else bare


class _BoundedServer(ThreadingHTTPServer):
    """A thread for each client, up to CLIENTS_MAX."""

    def __init__(self, *arguments: Any) -> None:
        self._serving: dict[threading.Thread, socket.socket] = {}
        self._busy: set[socket.socket] = set()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._serving = {thread: client for thread, client in self._serving.items() if thread.is_alive()}
        if len(self._serving) >= CLIENTS_MAX and not self._make_room():
            self.shutdown_request(request)
            return
        thread = threading.Thread(
            target=self.process_request_thread,
            args=(request, client_address),
            name="fencepost-endpoint-client",
            daemon=True,
        )
        self._serving[thread] = request
        thread.start()

    @contextmanager
    def busy(self, client: socket.socket) -> Generator[None]:
        """While a page is made for a client, it is not the client that keeps us waiting."""
        self._busy.add(client)
        try:
            yield
        finally:
            self._busy.discard(client)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is gone, or was cut off, is no error of ours."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def _make_room(self) -> bool:
        """End the oldest client that sends nothing or reads nothing; False when there is none."""
        for thread, client in self._serving.items():
            if client not in self._busy:
                with suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
                thread.join(_CUT_SECONDS)
                return not thread.is_alive()
        return False


def _listen(address: str, port: int, routes: Mapping[str, Route]) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        # A client that connects and sends nothing must not keep a thread.
        timeout = _CLIENT_SECONDS
        server_version = "fencepost"
        sys_version = ""

        def do_GET(self) -> None:
            self._send(self._page(), with_body=True)

        def do_HEAD(self) -> None:
            self._send(self._page(), with_body=False)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - The parent's name.
            """Discards the message: a scrape every few seconds is not worth a log line."""

        def _page(self) -> MetricsPage:
            assert isinstance(self.server, _BoundedServer)
            with self.server.busy(self.connection):
                return answer(routes, self.path)

        def _send(self, page: MetricsPage, *, with_body: bool) -> None:
            self.send_response(page.status)
            self.send_header("Content-Type", page.content_type)
            self.send_header("Content-Length", str(len(page.body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
            self.end_headers()
            if with_body:
                self.wfile.write(page.body)

    class Server(_BoundedServer):
        address_family = socket.AF_INET6 if ":" in address else socket.AF_INET

    try:
        return Server((address.strip("[]"), port), Handler)
    except OSError as error:
        raise ServerUnavailable(
            f"Cannot listen on METRICS_ADDRESS {address}, METRICS_PORT {port}: {error.strerror or error}."
        ) from None
