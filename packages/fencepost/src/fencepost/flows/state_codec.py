"""The bytes of a checkpoint: packed and unpacked a few keys at a time.

To pack a whole state at once would be one call, during which no other thread runs: for 1,000,000 keys the
thread that renews the leases would stop for a second. To find where each pair begins takes a thirteenth of
that.
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
    """The state of a keyed stage, or its changes. The pairs of its steps are still packed."""

    versions: dict[str, int]
    steps: dict[str, msgspec.Raw]
    watermark: float
    merge: Any = None
    layout: int = 0
    """The layout of the flow's stateful steps under whose names it was stored."""
    entrances: list[str] = []
    """The entrances through which the records that wait in the merge arrived."""


class StateCodec(msgspec.Struct, frozen=True):
    """The content of one checkpoint."""

    body: Document | None = None
    staged: dict[int, Any] = {}
    previous: int | None = None
    """The durable checkpoint before it."""


_stored = decoder(StateCodec)
_apart = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


def encode(body: Mapping[str, Any] | None, **more: Any) -> bytes:
    """The document of a keyed stage, and the rest of a checkpoint. `declared` in it names the states that are
    plain data: their types are declared, and convert them back."""
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
    """The pairs of a state, in order, a limited number of keys at a time: as they were, or as plain data for
    a migration."""
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
    """A key and its value, or a key alone. Packed as an array: a tuple would get a tag."""
    return pack(list(pair))


def _plain_pair(pair: Sequence[Any]) -> bytes:
    return flat([marked(pair[0]), *pair[1:]])
