"""One HTTP exchange, with the one question that matters answered: can the request have left?

A library's "timeout" says nothing of that. Here NotSent means that no byte of the request can have reached
the other side; whatever else goes wrong is MaybeSent. Redirects are not followed and nothing is retried:
either would be a second request that nobody counted.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, Self

import aiohttp

from fencepost.errors import FencepostError
from fencepost.redaction import redact_text

BODY_BYTES_MAX = 1 << 20


class NotSent(FencepostError):
    """The request did not leave: no connection was there for it."""


class MaybeSent(FencepostError):
    """The request left, or may have, and no whole answer came."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer. Header names are in lower case."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""

    def json(self) -> Any:
        """The body as a document with exact numbers, or None when it is none."""
        try:
            return json.loads(self.body, parse_float=Decimal, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return None

    def excerpt(self) -> str:
        """The beginning of the body, for a log or an error, without secrets."""
        return redact_text(self.body[:300].decode(errors="replace").replace("\0", "\ufffd"))


class HttpClient:
    """A pool of connections to other houses. Made inside the event loop that uses it, closed by `close`."""

    def __init__(
        self, *, connections_max: int = 256, connect_seconds: float = 5.0, reply_seconds: float = 30.0
    ) -> None:
        # TLS and connecting are before the request leaves; the reply's time begins after it.
        self._timeout = aiohttp.ClientTimeout(
            total=connect_seconds + reply_seconds, connect=connect_seconds, sock_read=reply_seconds
        )
        self._connections_max = connections_max
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def exchange(self, request: Request) -> Reply:
        """The answer, whatever its status. Raises NotSent or MaybeSent."""
        progress = SimpleNamespace(connected=False)
        try:
            return await self._exchange(request, progress)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, asyncio.IncompleteReadError) as error:
            # Without a connection nothing can have left. With one, we do not know how far it went.
            kind = MaybeSent if progress.connected else NotSent
            raise kind(
                f"{request.method} {redact_text(request.url)}: {type(error).__name__} {error}"
            ) from error

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _exchange(self, request: Request, progress: SimpleNamespace) -> Reply:
        async with self._opened().request(
            request.method,
            request.url,
            headers=dict(request.headers),
            data=request.body,
            allow_redirects=False,
            trace_request_ctx=progress,
        ) as response:
            body = await response.content.read(BODY_BYTES_MAX + 1)
            while len(body) <= BODY_BYTES_MAX and not response.content.at_eof():
                body += await response.content.read(BODY_BYTES_MAX + 1 - len(body))
            if len(body) > BODY_BYTES_MAX:
                raise ValueError(f"the answer is larger than {BODY_BYTES_MAX} bytes")
            headers = {name.lower(): value for name, value in response.headers.items()}
            return Reply(response.status, headers, body)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._connections_max),
                timeout=self._timeout,
                trace_configs=[_watch_for_connection()],
                # A broker's cookie is nobody's business, and would be a state that no other worker has.
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _watch_for_connection() -> aiohttp.TraceConfig:
    """From the moment that a request has its connection, it may leave."""

    async def connected(session: object, context: SimpleNamespace, parameters: object) -> None:
        context.trace_request_ctx.connected = True

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(connected)
    trace.on_connection_reuseconn.append(connected)
    return trace
