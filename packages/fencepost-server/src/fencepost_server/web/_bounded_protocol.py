"""HTTP/1.1 as uvicorn speaks it, with a deadline for whatever the server waits for.

| phase | from | until | deadline |
|---|---|---|---|
| head | the connection, or the first byte of its next request | the head is whole | HTTP_HEADER_SEC |
| body | the head is whole | the body is whole | HTTP_BODY_SEC, and a second for every 16 KiB that have come |
| answer | the request is whole | the answer is written | none; HTTP_SEND_SEC while the client takes nothing |
| idle | the answer is written | the next byte | uvicorn's own, of a kept-alive connection |
| closing | the server has closed it | what is still unsent is gone | HTTP_SEND_SEC |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from fencepost_server.web._connections import ConnectionTable, Ending, Waiting, source_of


def _said(status: bytes, body: bytes) -> bytes:
    """An answer from before there is a request that a route could answer. It closes the connection."""
    return (
        b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\ncache-control: no-store\r\n"
        b"x-content-type-options: nosniff\r\nconnection: close\r\n\r\n%b" % (status, len(body), body)
    )


TIMED_OUT = _said(
    b"408 Request Timeout", b'{"code":"timeout","message":"The request was not complete in time."}'
)
NOT_HTTP = _said(b"400 Bad Request", b'{"code":"invalid_input","message":"This is no HTTP request."}')


class _Phase(Enum):
    HEAD = auto()
    BODY = auto()
    ANSWER = auto()
    IDLE = auto()
    CLOSING = auto()


_WAITING = frozenset({_Phase.HEAD, _Phase.BODY, _Phase.IDLE})
_ENDINGS = {
    _Phase.HEAD: Ending.SLOW_HEADER,
    _Phase.BODY: Ending.SLOW_BODY,
    _Phase.CLOSING: Ending.SLOW_READER,
}


class BoundedProtocol(H11Protocol):
    """One connection. The table knows whether it waits, and closes it when others need its slot."""

    def __init__(self, table: ConnectionTable, count: Callable[[Ending], object], **options: Any) -> None:
        super().__init__(**options)
        self._table = table
        self._limits = table.limits
        self._count = count
        self._phase = _Phase.HEAD
        self._began = 0.0
        self._received_bytes = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._place: Waiting | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._place = Waiting(source_of(self.client[0] if self.client else ""), self.transport.abort)
        self._enter(_Phase.HEAD)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        if self._unread is not None:
            self._unread.cancel()
        if self._place is not None:
            self._table.waits_no_more(self._place)
        super().connection_lost(exc)
        # uvicorn does not cancel its timer for a connection that ended with an error, which keeps the whole
        # protocol alive.
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        if self._phase is _Phase.IDLE:
            self._enter(_Phase.HEAD)
        self._received_bytes += len(data)
        super().data_received(data)
        self._look()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is not HTTP, in the same shape as every other refusal."""
        self.transport.write(NOT_HTTP)
        self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look(answered=True)

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._look()

    def shutdown(self) -> None:
        super().shutdown()
        self._look()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self._limits.send_seconds, self._give_up, Ending.SLOW_READER)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _look(self, *, answered: bool = False) -> None:
        """Update the connection's phase from what the parser has read."""
        if self.transport.is_closing():
            phase = _Phase.CLOSING
        elif self.conn.their_state is h11.SEND_BODY:
            phase = _Phase.BODY
        elif self.conn.their_state is h11.IDLE:
            # Between two requests nothing is expected before the next byte.
            phase = _Phase.IDLE if answered and not self.conn.trailing_data[0] else _Phase.HEAD
        else:
            phase = _Phase.ANSWER
        if phase is not self._phase or (answered and phase is _Phase.HEAD):
            self._enter(phase)

    def _enter(self, phase: _Phase) -> None:
        self._disarm()
        self._phase = phase
        self._began = self.loop.time()
        self._received_bytes = 0
        if self._place is not None and phase not in _WAITING:
            self._table.waits_no_more(self._place)
        elif self._place is not None:
            self._table.begins_to_wait(self._place)
        if phase in _ENDINGS:
            self._arm(self._allowed_seconds())

    def _allowed_seconds(self) -> float:
        if self._phase is _Phase.BODY:
            return self._limits.body_deadline_seconds(self._received_bytes)
        return self._limits.header_seconds if self._phase is _Phase.HEAD else self._limits.send_seconds

    def _arm(self, seconds: float) -> None:
        self._deadline = self.loop.call_later(seconds, self._overdue)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _overdue(self) -> None:
        if self._phase is _Phase.BODY and self.flow.read_paused:
            # We are not reading: the client is not the slow side.
            self._began, self._received_bytes = self.loop.time(), 0
        left = self._began + self._allowed_seconds() - self.loop.time()
        if left > 0:
            self._arm(left)
            return
        self._give_up(_ENDINGS[self._phase])

    def _give_up(self, ending: Ending) -> None:
        self._count(ending)
        if self._expects_an_answer() and not self.transport.is_closing():
            self.transport.write(TIMED_OUT)
        if self.transport.get_write_buffer_size():
            # Unsent data would keep the connection open.
            self.transport.abort()
        else:
            self.transport.close()

    def _expects_an_answer(self) -> bool:
        """Whether a request has begun that has no answer yet."""
        if self._phase is _Phase.HEAD:
            return bool(self.conn.trailing_data[0])
        return self._phase is _Phase.BODY and not self.cycle.response_started
