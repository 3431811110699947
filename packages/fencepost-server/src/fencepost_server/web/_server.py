"""The HTTP server, in a thread and an event loop of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import uvicorn
from fastapi import FastAPI

from fencepost.errors import ServerUnavailable
from fencepost.logs import LogLimiter, get_logger
from fencepost.metrics import Metrics, MetricSet, counter, gauge
from fencepost.metrics_server import reachable
from fencepost_server.web._answer_headers import AnswerHeaders
from fencepost_server.web._bounded_protocol import BoundedProtocol
from fencepost_server.web._connections import ConnectionTable, Ending, Limits
from fencepost_server.web._listener import ACCEPTED_AT_ONCE, BoundedListener, connections_within

_log = get_logger(__name__)

# Event streams have no end of their own.
FAREWELL_SECONDS = 3
DEFAULT_PORT = 8642
"""Where `up` and `serve` listen unless they are told otherwise: the same address after a restart."""


class WebServerMetrics(MetricSet):
    connections = gauge("fencepost_http_connections", "Open connections.")
    connections_closed = counter(
        "fencepost_http_connections_closed",
        "Connections that the server refused or closed because of a bound or a deadline.",
        labels=("reason",),
    )


class WebServer:
    """Serves an application between `start` and `stop`. Port 0 takes a free one; None takes DEFAULT_PORT,
    or a free one when another process has it. `url` contains it."""

    def __init__(
        self,
        app: FastAPI,
        *,
        address: str,
        port: int | None,
        limits: Limits | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._address = address
        self._port = port
        self._table = ConnectionTable(limits or Limits())
        metrics = metrics or Metrics()
        counts = WebServerMetrics.on(metrics)
        self._closed = counts.connections_closed
        counts.connections.set_function(lambda: self._table.total)
        self._failure: BaseException | None = None
        self._socket: socket.socket | None = None
        self._ready = threading.Event()
        self._keep_failure_of(app)
        self._server = uvicorn.Server(
            uvicorn.Config(
                AnswerHeaders(app),
                lifespan="on",
                log_config=None,
                # We report what uvicorn would log: a failed start is raised, a failed request is logged.
                log_level="critical",
                access_log=False,
                server_header=False,
                http=partial(BoundedProtocol, self._table, self._count),  # type: ignore[arg-type]
                # No service has a WebSocket route, and WebSockets would bypass the limits.
                ws="none",
                backlog=ACCEPTED_AT_ONCE,
                # HTTP_PROXIES says which proxies are trusted (`_proxies.py`); uvicorn would trust loopback.
                proxy_headers=False,
                timeout_graceful_shutdown=FAREWELL_SECONDS,
            )
        )
        self._thread = threading.Thread(target=self._serve, name="fencepost-web", daemon=True)

    @property
    def url(self) -> str:
        assert self._socket is not None, "the server has no address before it is started"
        return f"http://{reachable(self._address)}:{self._socket.getsockname()[1]}"

    def start(self) -> None:
        """Returns when requests are answered. An exception of a service at its start is raised here."""
        limits = self._table.limits
        total_max = connections_within(limits.total_max, limits.reserved_descriptors)
        self._table.limits = replace(
            limits, total_max=total_max, per_address_max=min(limits.per_address_max, total_max)
        )
        self._socket = self._listen()
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def stop(self) -> None:
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join()
        if self._socket is not None:
            self._socket.close()

    def _serve(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:
            self._failure = self._failure or error
        finally:
            self._ready.set()

    def _keep_failure_of(self, app: FastAPI) -> None:
        """Keep the exception of a failed start: uvicorn only logs it and exits, and `start` must raise it."""
        opening = app.router.lifespan_context

        @asynccontextmanager
        async def watched(app: FastAPI) -> AsyncGenerator[None]:
            try:
                async with opening(app):
                    self._ready.set()
                    yield
            except Exception as error:
                self._failure = error
                raise

        app.router.lifespan_context = watched

    async def _run(self) -> None:
        asyncio.get_running_loop().set_exception_handler(_LoopErrors())
        await self._server.serve(sockets=[self._socket] if self._socket else None)

    def _count(self, ending: Ending) -> None:
        self._closed.labels(ending.value).inc()

    def _listen(self) -> socket.socket:
        if self._port is not None:
            return self._listen_on(self._port)
        try:
            return self._listen_on(DEFAULT_PORT)
        except ServerUnavailable:
            _log.info("http_port_taken", port=DEFAULT_PORT, meaning="a free port is used")
            return self._listen_on(0)

    def _listen_on(self, port: int) -> socket.socket:
        address = self._address
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listening = BoundedListener(family, self._table, self._count)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((address.strip("[]"), port))
            # From here on a client that connects waits for an answer instead of being refused.
            listening.listen()
        except OSError as error:
            listening.close()
            raise ServerUnavailable(
                f"Cannot listen on HTTP_ADDRESS {address}, HTTP_PORT {port}: {error.strerror or error}."
            ) from None
        return listening


class _LoopErrors:
    """Logs errors of the event loop, at most a few lines of a kind in ten seconds."""

    def __init__(self) -> None:
        self._log_limiter = LogLimiter()

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        message = str(context.get("message", "the event loop failed"))
        self._log_limiter.log(
            _log.error, "event_loop_error", kind=message, message=message, exc_info=context.get("exception")
        )
