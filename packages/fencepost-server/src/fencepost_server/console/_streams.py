"""Server-sent events, each stream bounded in memory and in time."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from fencepost_server.console._live_snapshot import LiveSnapshot, SnapshotStream
from fencepost_server.web.templating import HEADERS

# A proxy closes a connection that is silent for longer.
HEARTBEAT_SECONDS = 15.0
# Then the browser connects again, and authenticates again.
LIFETIME_SECONDS = 300.0


class EventStream(Response):
    """A response without an end of its own: it ends when the reader leaves, is too slow, or reaches the
    lifetime."""

    def __init__(self, live_snapshot: LiveSnapshot, first: bytes) -> None:
        super().__init__(media_type="text/event-stream", headers={**HEADERS, "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._live_snapshot = live_snapshot
        self._first = first
        self._stream: SnapshotStream = live_snapshot.subscribe()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pumping = asyncio.create_task(self._pump(send), name="fencepost-console-stream")
        leaving = asyncio.create_task(_until_gone(receive), name="fencepost-console-reader")
        # A reader that takes nothing blocks the pump inside `send`: only cancelling ends that.
        self._stream.cut = pumping.cancel
        try:
            await asyncio.wait({pumping, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._live_snapshot.unsubscribe(self._stream)
            for task in (pumping, leaving):
                task.cancel()
            await asyncio.gather(pumping, leaving, return_exceptions=True)

    async def _pump(self, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        headers += [one for one in self.raw_headers if one[0] != b"content-type"]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await _send(send, b"retry: 3000\n\n" + self._first)
        with suppress(TimeoutError):
            async with asyncio.timeout(LIFETIME_SECONDS):
                while True:
                    await _send(send, await self._next())
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _next(self) -> bytes:
        try:
            async with asyncio.timeout(HEARTBEAT_SECONDS):
                return await self._stream.take()
        except TimeoutError:
            return b": still here\n\n"


async def _send(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
