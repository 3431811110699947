"""The listening socket: it counts connections as it accepts them, and closes those above the limits.

asyncio calls `accept` of the socket that it is given. So the limits apply before a connection costs a
transport, a protocol or a task, and a process without descriptors closes connections instead of retrying.
"""

from __future__ import annotations

import errno
import os
import resource
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fencepost.logs import LogLimiter, get_logger
from fencepost_server.web._connections import ConnectionTable, Ending, source_of

_log = get_logger(__name__)

QUEUE_LENGTH = 4096
"""Connections that the kernel keeps until they are accepted."""
ACCEPTED_AT_ONCE = 64
"""After this many accepts the event loop serves the connections that it has. asyncio takes one number for
this and for the kernel's queue; `BoundedListener.listen` separates them."""
REFUSED_AT_ONCE = 256
_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
_NO_MEMORY = frozenset({errno.ENOBUFS, errno.ENOMEM})
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\n"
    b"content-type: application/json\r\ncontent-length: 69\r\nretry-after: 1\r\n"
    b"cache-control: no-store\r\nx-content-type-options: nosniff\r\nconnection: close\r\n\r\n"
    b'{"code":"too_many_connections","message":"Too many open connections"}'
)
REMEDIES = {
    Ending.ADDRESS_FULL: "One address has HTTP_CONNECTIONS_PER_ADDRESS connections that are all in use. If "
    "it is a proxy, name it in HTTP_PROXIES.",
    Ending.TOTAL_FULL: "HTTP_CONNECTIONS_MAX connections are open. If they are wanted, raise it, or run more "
    "processes.",
    Ending.NO_DESCRIPTOR: "The process has no file descriptor left. Raise the limit (ulimit -n, LimitNOFILE) "
    "or lower HTTP_CONNECTIONS_MAX.",
}

Count = Callable[[Ending], object]


class _Counted(socket.socket):
    """An accepted connection. However it is closed, the table is notified once."""

    on_close: Callable[[], object] | None = None

    def close(self) -> None:
        super().close()
        told, self.on_close = self.on_close, None
        if told is not None:
            told()


class BoundedListener(socket.socket):
    """Accepts as many connections as the table allows."""

    def __init__(self, family: int, table: ConnectionTable, count: Count) -> None:
        super().__init__(family, socket.SOCK_STREAM)
        self._table = table
        self._count = count
        self._log_limiter = LogLimiter(burst=1)
        # Closed when the process has no descriptor left, so that one connection can be accepted and closed.
        self._spare: int | None = _spare_descriptor()
        self._failed = False

    def listen(self, backlog: int = QUEUE_LENGTH, /) -> None:
        super().listen(max(backlog, QUEUE_LENGTH))

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection that is admitted. Raises BlockingIOError when there is none for now."""
        for _ in range(REFUSED_AT_ONCE):
            accepted = self._next()
            if accepted is None:
                continue
            connection, address = accepted
            source = source_of(address[0])
            bound, victim = self._table.decide(source)
            if victim is not None:
                assert bound is not None
                self._table.waits_no_more(victim)
                self._count(bound)
                victim.close()
            elif bound is not None:
                self._refuse(connection, bound)
                continue
            return self._counted(connection, source), address
        raise BlockingIOError(errno.EAGAIN, "the event loop has other work; the queue is read again after it")

    def close(self) -> None:
        super().close()
        spare, self._spare = self._spare, None
        if spare is not None:
            os.close(spare)

    def _next(self) -> tuple[socket.socket, Any] | None:
        """The next connection of the queue. None when it had to be closed because there is no descriptor for
        it."""
        if self._failed:
            # asyncio has stopped watching the queue for a second, and still finishes its round.
            self._failed = False
            raise BlockingIOError(errno.EAGAIN, "accepting failed a moment ago")
        try:
            return super().accept()
        except OSError as error:
            if error.errno in _NO_DESCRIPTOR and self._close_one():
                return None
            self._failed = error.errno in _NO_DESCRIPTOR | _NO_MEMORY
            raise

    def _close_one(self) -> bool:
        """Free a slot: the connection that has waited longest is closed, and the new one is told to try
        again."""
        self._report(Ending.NO_DESCRIPTOR)
        if (victim := self._table.oldest()) is not None:
            self._table.waits_no_more(victim)
            victim.close()
        if self._spare is None:
            self._spare = _spare_descriptor()
            return False
        os.close(self._spare)
        try:
            connection, _ = super().accept()
            self._close(connection)
        except OSError:
            return False
        finally:
            self._spare = _spare_descriptor()
        return True

    def _refuse(self, connection: socket.socket, bound: Ending) -> None:
        self._report(bound)
        self._close(connection)

    def _report(self, ending: Ending) -> None:
        self._count(ending)
        self._log_limiter.log(
            _log.warning,
            "http_connections_refused",
            kind=ending,
            reason=ending.value,
            open=self._table.total,
            remedy=REMEDIES[ending],
        )

    @staticmethod
    def _close(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.setblocking(False)
            connection.send(_BUSY)

    def _counted(self, connection: socket.socket, source: str) -> socket.socket:
        counted = _Counted(connection.family, connection.type, connection.proto, fileno=connection.detach())
        self._table.opened(source)
        counted.on_close = lambda: self._table.closed(source)
        return counted


def connections_within(wanted: int, reserved: int) -> int:
    """How many connections leave `reserved` descriptors to everything else. The process first raises its own
    limit, as far as it needs and is allowed to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + reserved
    if soft == resource.RLIM_INFINITY:
        return wanted
    if soft < needed:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    possible = max(1, soft - min(reserved, soft // 2))
    if possible < wanted:
        _log.warning(
            "http_connections_lowered",
            wanted=wanted,
            possible=possible,
            remedy="The limit of file descriptors allows no more. Raise it (ulimit -n, LimitNOFILE), or set "
            "HTTP_CONNECTIONS_MAX to what is possible.",
        )
    return min(wanted, possible)


def _spare_descriptor() -> int | None:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
