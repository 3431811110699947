"""Objects of a bucket, by presigned requests over a connection of our own.

The library that signs them follows redirects and has no bound for a body. The other side is not trusted: a
redirect is not followed, an object has a largest size, and an exchange has one deadline, however slowly it
progresses.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlsplit

import obstore
from obstore.store import S3Store

from fencepost.backoff import Backoff

OBJECT_BYTES_MAX = 1 << 30
BLOCK_BYTES = 1 << 18
REASON_BYTES_MAX = 4096
TRIES = 4
_DELAYS = Backoff(0.1, 2.0)
_TRY_AGAIN = frozenset({408, 429, 500, 502, 503, 504})


class BucketError(Exception):
    """The bucket refused, lied about a length, or was too slow. The message is for an operator."""


class _Passing(BucketError):
    """May be gone at the next try."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Objects by name, whole or not at all. May be used by several threads at once."""

    objects: S3Store
    timeout_seconds: float
    bytes_max: int = OBJECT_BYTES_MAX
    now: Callable[[], float] = time.monotonic

    def get(self, name: str) -> bytes:
        """Raises FileNotFoundError, or BucketError."""
        return self._repeated("GET", name, None)

    def put(self, name: str, content: bytes) -> None:
        self._repeated("PUT", name, content)

    def _repeated(self, method: str, name: str, content: bytes | None) -> bytes:
        deadline = self.now() + self.timeout_seconds
        for attempt in range(1, TRIES + 1):
            try:
                return self._exchange(method, name, content, deadline)
            except (_Passing, OSError, http.client.HTTPException) as error:
                if isinstance(error, FileNotFoundError):
                    raise
                delay = _DELAYS.seconds(attempt)
                if attempt == TRIES or self.now() + delay >= deadline:
                    why = str(error) or type(error).__name__
                    raise BucketError(f"{why} (try {attempt})") from None
                time.sleep(delay)
        raise AssertionError("the last try raises")

    def _exchange(self, method: str, name: str, content: bytes | None, deadline: float) -> bytes:
        lifetime = timedelta(seconds=self.timeout_seconds)
        signed = obstore.sign(self.objects, "GET" if content is None else "PUT", name, lifetime)
        url = urlsplit(signed)
        with _connected(url.scheme, url.hostname or "", url.port, deadline - self.now()) as connection:
            try:
                connection.request(method, f"{url.path}?{url.query}", body=content)
                with connection.getresponse() as reply:
                    return self._answer(reply, name if content is None else None)
            except (_Passing, OSError, http.client.HTTPException):
                if self.now() < deadline:
                    raise
                raise BucketError(f"no whole answer came within {self.timeout_seconds:g} s.") from None

    def _answer(self, reply: http.client.HTTPResponse, wanted: str | None) -> bytes:
        if reply.status == 404 and wanted is not None:
            raise FileNotFoundError(wanted)
        if reply.status in _TRY_AGAIN:
            raise _Passing(f"it answers {reply.status}: {_reason(reply)}")
        if 300 <= reply.status < 400:
            raise BucketError(
                f"it answers {reply.status}, a redirect, which is not followed. "
                "Set JUDGE_S3_ENDPOINT and JUDGE_S3_REGION to those of the bucket."
            )
        if reply.status != 200:
            raise BucketError(f"it answers {reply.status}: {_reason(reply)}")
        return b"" if wanted is None else self._body(reply)

    def _body(self, reply: http.client.HTTPResponse) -> bytes:
        announced = reply.length
        if announced is None:
            raise BucketError("it does not say how long the object is.")
        if announced > self.bytes_max:
            raise BucketError(f"it announces {announced} bytes; an object has at most {self.bytes_max}.")
        body = bytearray()
        while len(body) < announced:
            block = reply.read1(BLOCK_BYTES)
            if not block:
                raise _Passing(f"it ended after {len(body)} of {announced} bytes.")
            body += block
        return bytes(body)


@contextmanager
def _connected(
    scheme: str, host: str, port: int | None, seconds: float
) -> Generator[http.client.HTTPConnection]:
    """A connection that is shut down after this time, whatever it is doing: a socket's own timeout begins
    again with every byte."""
    seconds = max(0.001, seconds)
    is_secure = scheme == "https"
    connection = http.client.HTTPConnection(host, port or (443 if is_secure else 80))
    plain = socket.create_connection((host, connection.port), timeout=seconds)
    with plain.dup() as watched:
        deadline = threading.Timer(seconds, _shut_down, (watched,))
        deadline.start()
        try:
            with closing(connection):
                connection.sock = plain
                if is_secure:
                    connection.sock = ssl.create_default_context().wrap_socket(plain, server_hostname=host)
                yield connection
        finally:
            deadline.cancel()
            deadline.join()


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _reason(reply: http.client.HTTPResponse) -> str:
    """The beginning of what it says; the caller removes secrets and shortens it."""
    return reply.read1(REASON_BYTES_MAX).decode("utf-8", "replace")
