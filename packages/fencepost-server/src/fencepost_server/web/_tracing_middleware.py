"""The trace of a request: the caller's, if it sends one."""

from __future__ import annotations

from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fencepost.logs import log_context
from fencepost.tracing import TRACEPARENT, span, trace_id_of, with_trace


class TracingMiddleware:
    """Every event that is logged and every job that is submitted during a request carries its trace."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        given = headers.get(TRACEPARENT.encode(), b"").decode("latin-1")
        carried: dict[str, Any] = {TRACEPARENT: given} if trace_id_of(given) else {}
        with span(f"HTTP {scope['method']}", "server", carried, path=scope["path"]) as note:
            trace_id = trace_id_of(given) or with_trace()["trace_id"]

            async def answer(message: Message) -> None:
                if message["type"] == "http.response.start":
                    note(status=message["status"])
                await send(message)

            with log_context(trace_id=trace_id):
                await self._app(scope, receive, answer)
