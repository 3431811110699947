"""What a checkpoint holds as bytes: packed and unpacked a few keys at a time.

A whole state at once would be one call, which lets no other thread run: for 1,000,000 keys the thread that
renews the leases would stand still for a second. To find where each pair begins takes a thirteenth of that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec

from fencepost.flows.state import pack, unpack

PIECE_KEYS = 5_000
ARRAY = b"\xdd"
"""In MessagePack: an array, whose length follows in four bytes."""


class Document(msgspec.Struct, frozen=True):
    """The state of a body, or what changed of it. The pairs of its steps are still packed."""

    versions: dict[str, int]
    steps: dict[str, msgspec.Raw]
    watermark: float
    merge: Any = None


class Stored(msgspec.Struct, frozen=True):
    """What one checkpoint holds."""

    body: Document | None = None
    staged: dict[int, Any] = {}
    previous: int | None = None
    """The durable checkpoint before it."""


_stored = msgspec.msgpack.Decoder(Stored).decode
_apart = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


def encode(body: Mapping[str, Any] | None, **more: Any) -> bytes:
    """The document of a body, and what else a checkpoint holds."""
    if body is not None:
        body = {**body, "steps": {name: _together(pairs) for name, pairs in body["steps"].items()}}
    return pack({"body": body, **more})


def decode(data: bytes) -> Stored:
    return _stored(data)


def pieces(pairs: msgspec.Raw) -> Iterator[list[Any]]:
    """What a state wrote, in order, so many keys at a time."""
    apart = _apart(pairs)
    for start in range(0, len(apart), PIECE_KEYS):
        yield [unpack(pair) for pair in apart[start : start + PIECE_KEYS]]


def _together(pairs: Collection[Any]) -> msgspec.Raw:
    packed, left = [ARRAY, len(pairs).to_bytes(4, "big")], iter(pairs)
    while piece := b"".join(pack(pair) for pair in islice(left, PIECE_KEYS)):
        packed.append(piece)
    return msgspec.Raw(b"".join(packed))
