"""The HTTP server, in a thread and an event loop of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI

from fencepost.endpoint import reachable
from fencepost.errors import ServerUnavailable

# Streams of events have no end of their own.
FAREWELL_SECONDS = 3


class WebServer:
    """Serves an application between `start` and `stop`. A port of 0 takes a free one; `url` says which."""

    def __init__(self, app: FastAPI, *, address: str, port: int) -> None:
        self._address = address
        self._port = port
        self._failure: BaseException | None = None
        self._socket: socket.socket | None = None
        self._ready = threading.Event()
        self._keep_failure_of(app)
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                lifespan="on",
                log_config=None,
                # What it would say is said by us: a failed start is raised, a failed request is logged.
                log_level="critical",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=FAREWELL_SECONDS,
            )
        )
        self._thread = threading.Thread(target=self._serve, name="fencepost-web", daemon=True)

    @property
    def url(self) -> str:
        assert self._socket is not None, "the server has no address before it is started"
        return f"http://{reachable(self._address)}:{self._socket.getsockname()[1]}"

    def start(self) -> None:
        """Returns when requests are answered. What a service raises at its start is raised here."""
        self._socket = _listen(self._address, self._port)
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
            asyncio.run(self._server.serve(sockets=[self._socket] if self._socket else None))
        except BaseException as error:
            self._failure = self._failure or error
        finally:
            self._ready.set()

    def _keep_failure_of(self, app: FastAPI) -> None:
        """The server writes a failed start into its log and goes; its starter wants to know why."""
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


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address.strip("[]"), port))
        # From here on who connects waits for an answer instead of being refused.
        listening.listen(1024)
    except OSError as error:
        listening.close()
        raise ServerUnavailable(
            f"Cannot listen on HTTP_ADDRESS {address}, HTTP_PORT {port}: {error.strerror or error}."
        ) from None
    return listening
