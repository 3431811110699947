"""The part of the PostgreSQL protocol that faults need: where a message ends, and which one is a COMMIT.

    int32 length, ...               a client's first message
    byte type, int32 length, ...    every other; the length counts itself, and not the type

There are no encryption requests, because no client makes them on a unix socket.
"""

import struct
from typing import Protocol

_LENGTH_BYTES = 4
_HEADER_BYTES = 5
_COMMITS = frozenset({"COMMIT", "COMMIT TRANSACTION", "COMMIT WORK", "END"})


class Splitter(Protocol):
    """Splits a stream into the pieces that a fault may select."""

    def feed(self, data: bytes) -> list[bytes]: ...


class Chunks:
    """No protocol: each chunk that arrives is one piece."""

    def feed(self, data: bytes) -> list[bytes]:
        return [data]


class Messages:
    """Whole PostgreSQL messages; an incomplete message waits for the rest."""

    def __init__(self, *, first_has_type: bool) -> None:
        self._rest = b""
        self._type_bytes = 1 if first_has_type else 0

    def feed(self, data: bytes) -> list[bytes]:
        stream = self._rest + data
        messages: list[bytes] = []
        start = 0
        while (end := self._end(stream, start)) is not None:
            messages.append(stream[start:end])
            start = end
            self._type_bytes = 1
        self._rest = stream[start:]
        return messages

    def _end(self, stream: bytes, start: int) -> int | None:
        length_at = start + self._type_bytes
        if len(stream) < length_at + _LENGTH_BYTES:
            return None
        (length,) = struct.unpack_from("!i", stream, length_at)
        end = length_at + int(length)
        return end if end <= len(stream) else None


def asks_to_commit(message: bytes) -> bool:
    """Whether a client's message is a COMMIT, by the simple or the extended protocol."""
    body = message[_HEADER_BYTES:]
    match message[:1]:
        case b"Q":
            text = body
        case b"P":
            # The name of the prepared statement precedes the text.
            text = body.partition(b"\0")[2]
        case _:
            return False
    return text.partition(b"\0")[0].decode(errors="replace").strip(" \t\r\n;").upper() in _COMMITS


def says_committed(message: bytes) -> bool:
    """Whether a server's message says that a COMMIT has happened."""
    return message[:1] == b"C" and message[_HEADER_BYTES:].rstrip(b"\0") == b"COMMIT"
