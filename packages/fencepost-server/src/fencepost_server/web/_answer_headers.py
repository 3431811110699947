"""The headers of every answer: no caching, and no content sniffing."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

EVERYWHERE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class AnswerHeaders:
    """Wraps the whole application: the answer to an unhandled error is made outside of every other layer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in EVERYWHERE.items():
                    headers[name] = value
            await send(message)

        await self._app(scope, receive, answer if scope["type"] == "http" else send)
