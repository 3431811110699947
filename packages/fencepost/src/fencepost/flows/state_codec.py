"""What a checkpoint holds as bytes: packed and unpacked a few keys at a time.

A whole state at once would be one call, which lets no other thread run: for 1,000,000 keys the thread that
renews the leases would stand still for a second. To find where each pair begins takes a thirteenth of that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from fencepost.flows.value_codec import decoder, flat, marked, pack, stored, unpack, unpack_plain

PIECE_KEYS = 5_000
ARRAY = b"\xdd"
"""In MessagePack: an array, whose length follows in four bytes."""


class Document(msgspec.Struct, frozen=True):
    """The state of a body, or what changed of it. The pairs of its steps are still packed."""

    versions: dict[str, int]
    steps: dict[str, msgspec.Raw]
    watermark: float
    merge: Any = None
    layout: int = 0
    """Of the flow's stateful steps, under whose names it was stored."""
    entrances: list[str] = []
    """By which what waits in the merge came."""


class StateCodec(msgspec.Struct, frozen=True):
    """What one checkpoint holds."""

    body: Document | None = None
    staged: dict[int, Any] = {}
    previous: int | None = None
    """The durable checkpoint before it."""


_stored = decoder(StateCodec)
_apart = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


def encode(body: Mapping[str, Any] | None, **more: Any) -> bytes:
    """The document of a body, and what else a checkpoint holds. `declared` in it names the states that
    are plain
    data: their types are declared, which makes them again."""
    if body is not None:
        declared = body.get("declared", ())
        steps = {name: _together(pairs, plain=name in declared) for name, pairs in body["steps"].items()}
        body = {name: part for name, part in body.items() if name != "declared"}
        body = {**body, "steps": steps}
    return flat({"body": body, **{name: stored(part) for name, part in more.items()}})


def decode(data: bytes) -> StateCodec:
    found: StateCodec = _stored(data)
    return found


def pieces(pairs: msgspec.Raw, *, plain: bool = False) -> Iterator[list[Any]]:
    """What a state wrote, in order, so many keys at a time: as it was, or as plain data for a migration."""
    read = unpack_plain if plain else unpack
    apart = _apart(pairs)
    for start in range(0, len(apart), PIECE_KEYS):
        yield [read(pair) for pair in apart[start : start + PIECE_KEYS]]


def _together(pairs: Collection[Any], *, plain: bool) -> msgspec.Raw:
    packed, left = [ARRAY, len(pairs).to_bytes(4, "big")], iter(pairs)
    write = _plain_pair if plain else _pair
    while piece := b"".join(write(pair) for pair in islice(left, PIECE_KEYS)):
        packed.append(piece)
    return msgspec.Raw(b"".join(packed))


def _pair(pair: Sequence[Any]) -> bytes:
    """A key and its value, or a key alone. An array: a tuple would have a mark."""
    return pack(list(pair))


def _plain_pair(pair: Sequence[Any]) -> bytes:
    return flat([marked(pair[0]), *pair[1:]])
