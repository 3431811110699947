"""The subset of HTTP/1.1 that a delivery needs: one request's bytes, and one reply parsed from what arrives.

Pure, so that every malformed reply can be tested. Anything that is not exactly HTTP is refused with a
ValueError: the request may have been executed, and a garbled reply must not be interpreted.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote, urlsplit

HEAD_BYTES_MAX = 1 << 16
BODY_BYTES_MAX = 1 << 20
_STATUS = re.compile(r"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [^\r\n]*)?")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})(?:[ \t]*;[^\r\n]*)?")
_LINE_END = re.compile(r"[\r\n\0]")
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n]*)")
_SAFE = "/?&=%:@!$'()*+,;~[]"
Place = tuple[str, int, bool]
"""Host, port, and whether to use TLS: the target of a connection."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to connect, and the beginning of a request to this URL."""

    host: str
    port: int
    is_secure: bool
    target: str
    head: str
    place: Place


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """A complete reply as received. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    keeps_connection: bool


@lru_cache(maxsize=1024)
def address_of(url: str) -> Address:
    """Raises ValueError for anything but an HTTP URL."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"{parts.scheme}://{parts.hostname} is not a valid target")
    is_secure = parts.scheme == "https"
    usual = 443 if is_secure else 80
    port = parts.port or usual
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname.encode("idna").decode()
    target = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe=_SAFE)
    head = f"Host: {host if port == usual else f'{host}:{port}'}\r\nAccept: */*\r\n"
    if parts.username is not None:
        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        head += f"Authorization: Basic {b64encode(secret.encode()).decode()}\r\n"
    return Address(parts.hostname, port, is_secure, target, head, (parts.hostname, port, is_secure))


def request_bytes(method: str, address: Address, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """The complete request. Raises ValueError for a header that contains a line break."""
    head = f"{method} {address.target} HTTP/1.1\r\n{address.head}"
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name) or _LINE_END.search(value):
            raise ValueError(f"the header {name!r} cannot be sent")
        head += f"{name}: {value}\r\n"
    if body is None:
        return f"{head}\r\n".encode()
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class ReplyReader:
    """Receives bytes by `feed`; `reply` is set when the reply is complete."""

    def __init__(self, body_bytes_max: int = BODY_BYTES_MAX) -> None:
        self._body_bytes_max = body_bytes_max
        self.reply: ParsedReply | None = None
        self._buffer = bytearray()
        self._head: tuple[int, dict[str, str], bool] | None = None
        self._body = bytearray()
        # How the body ends: after so many bytes, after the last chunk (-1), or with the connection (None).
        self._left: int | None = 0
        self._is_chunked = False

    def feed(self, data: bytes) -> None:
        """Raises ValueError for an invalid reply, or for bytes behind it: they belong to no request."""
        if self.reply is not None:
            raise ValueError("there is more than one answer")
        self._buffer += data
        if self._head is None:
            self._read_head()
        if self._head is not None:
            self._read_body()

    def end(self) -> None:
        """The connection has ended. Raises ValueError unless that completes the reply."""
        if self.reply is None:
            if self._head is None or self._is_chunked or self._left is not None:
                raise ValueError("the answer was cut off")
            self._finish(keeps_connection=False)

    def _read_head(self) -> None:
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._buffer[:end])
            del self._buffer[: end + 4]
            status, headers, is_newer = _parsed(head)
            if status >= 200:
                self._head = status, headers, is_newer
                self._frame(status, headers)
                return
            if status == 101:
                raise ValueError("the server switched to a protocol that was not requested")
        if len(self._buffer) > HEAD_BYTES_MAX:
            raise ValueError("the answer has no end of its headers")

    def _frame(self, status: int, headers: Mapping[str, str]) -> None:
        coding, length = headers.get("transfer-encoding"), headers.get("content-length")
        if status in {204, 304}:
            return
        if coding is not None:
            if coding.lower() != "chunked" or length is not None:
                raise ValueError("the answer has no clear end")
            self._is_chunked = True
        elif length is None:
            self._left = None
        elif not (length.isascii() and length.isdigit()):
            raise ValueError("the answer's Content-Length is not a number")
        else:
            self._left = int(length)
            self._check_size(self._left)

    def _read_body(self) -> None:
        if self._is_chunked:
            self._read_chunks()
            return
        if self._left is None:
            self._body += self._buffer
            self._buffer.clear()
            self._check_size(len(self._body))
            return
        if len(self._buffer) > self._left:
            raise ValueError("there is more than one answer")
        if len(self._buffer) == self._left:
            self._body = self._buffer
            self._finish(keeps_connection=True)

    def _read_chunks(self) -> None:
        while (end := self._buffer.find(b"\r\n")) >= 0:
            size = _CHUNK.fullmatch(self._buffer[:end])
            if size is None:
                raise ValueError("a chunk has no size")
            length = int(size[1], 16)
            self._check_size(len(self._body) + length)
            if length == 0:
                self._end_chunks(end)
                return
            if len(self._buffer) < end + 2 + length + 2:
                return
            if not self._buffer.startswith(b"\r\n", end + 2 + length):
                raise ValueError("a chunk does not have its declared size")
            self._body += self._buffer[end + 2 : end + 2 + length]
            del self._buffer[: end + 4 + length]
        if len(self._buffer) > HEAD_BYTES_MAX:
            raise ValueError("a chunk has no size")

    def _end_chunks(self, end: int) -> None:
        """Trailers are read and discarded."""
        rest = bytes(self._buffer[end:])
        if rest.startswith(b"\r\n\r\n"):
            after = 4
        elif (found := rest.find(b"\r\n\r\n", 2)) >= 0:
            after = found + 4
        elif len(rest) > HEAD_BYTES_MAX:
            raise ValueError("the answer has no end of its trailers")
        else:
            return
        if len(rest) > after:
            raise ValueError("there is more than one answer")
        self._finish(keeps_connection=True)

    def _finish(self, *, keeps_connection: bool) -> None:
        assert self._head is not None
        status, headers, is_newer = self._head
        said = headers.get("connection", "").lower()
        keeps = keeps_connection and is_newer and "close" not in said
        self.reply = ParsedReply(status, headers, bytes(self._body), keeps)

    def _check_size(self, size: int) -> None:
        if size > self._body_bytes_max:
            raise ValueError(f"the answer is larger than {self._body_bytes_max} bytes")


def _parsed(head: bytes) -> tuple[int, dict[str, str], bool]:
    """Status, headers, and whether the version is HTTP/1.1."""
    first, *lines = head.decode("latin-1").split("\r\n")
    status = _STATUS.fullmatch(first)
    if status is None:
        raise ValueError("the answer is not HTTP")
    headers: dict[str, str] = {}
    for line in lines:
        field = _FIELD.fullmatch(line)
        if field is None:
            raise ValueError("a header of the answer is invalid")
        name, value = field[1].lower(), field[2].rstrip(" \t")
        if name in {"content-length", "transfer-encoding"} and headers.get(name, value) != value:
            raise ValueError("the answer has no clear end")
        if name in headers and name != "content-length":
            value = f"{headers[name]}, {value}"
        headers[name] = value
    return int(status[2]), headers, status[1] == "1"
