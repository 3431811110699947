"""Keyed state: a mapping that tracks what changed since the last commit, and the bytes of a checkpoint.

The bytes are packed and unpacked a few keys at a time. To pack a whole state at once would be one call,
during which no other thread runs: for 1,000,000 keys the thread that renews the leases would stop for a
second. To find where each pair begins takes a thirteenth of that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from fencepost.flows._record import IdempotentRecord
from fencepost.flows._segments import Segment
from fencepost.flows._value_codec import decoder, flat, marked, pack, stored, unpack, unpack_plain

PIECE_KEYS = 5_000
ARRAY = b"\xdd"
"""In MessagePack: an array, whose length follows in four bytes."""


def as_key(value: Any) -> Any:
    """Convert a stored key. Lists were tuples: no key is a list, and older checkpoints have no tag for
    tuples."""
    return tuple(as_key(part) for part in value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]


def keep(value: Any) -> Any:
    return value


class KeyedState:
    """The state of one step. `values` is the step's own dict; code that changes a key adds it to `dirty`.

    A change is written as pairs and removals, so the cost of a commit depends on what changed, not on the
    size of the state.
    """

    def __init__(self, revive: Callable[[Any], Any] = keep, *, declared: bool = False) -> None:
        """With `declared`, the type of the values is known: they are stored as plain data and converted
        back by it."""
        self.declared = declared
        self.values: dict[Any, Any] = {}
        self.dirty: set[Any] = set()
        self._revive = revive

    @property
    def revive(self) -> Callable[[Any], Any]:
        """What makes a value of what was stored."""
        return self._revive

    def put(self, key: Any, value: Any) -> None:
        self.values[key] = value
        self.dirty.add(key)

    def remove(self, key: Any) -> None:
        if key in self.values:
            del self.values[key]
            self.dirty.add(key)

    def delta(self) -> list[Any]:
        """The changes as pairs; a pair without a value is a removal."""
        values = self.values
        return [[key, values[key]] if key in values else [key] for key in self.dirty]

    def whole(self) -> Collection[Any]:
        return self.values.items()

    def clean(self) -> None:
        self.dirty.clear()

    def load(self, pairs: Iterable[list[Any]]) -> None:
        """Apply what `whole` or `delta` returned."""
        for pair in pairs:
            key = as_key(pair[0])
            if len(pair) == 1:
                self.values.pop(key, None)
            else:
                self.values[key] = self._revive(pair[1])


def as_it_was(stored: Any) -> Any:
    """Return plain data unchanged, except an IdempotentRecord, which has its own tag and is restored."""
    if isinstance(stored, dict) and stored.get("fencepost") == "record":  # pyright: ignore[reportUnknownMemberType]
        return IdempotentRecord[Any].of(stored) or stored  # pyright: ignore[reportUnknownVariableType]
    return stored  # pyright: ignore[reportUnknownVariableType]


def reviver(kind: type[Any] | None) -> Callable[[Any], Any]:
    """Return a function that converts stored plain data to the declared type."""
    if kind is None:
        return as_it_was
    return lambda stored: msgspec.convert(stored, kind)


def state_of(kind: type[Any] | None) -> KeyedState:
    """State for values of a declared type, or of any type."""
    return KeyedState(reviver(kind), declared=kind is not None)


class Document(msgspec.Struct, frozen=True):
    """The state of a keyed stage, or its changes. The pairs of its steps are still packed."""

    versions: dict[str, int]
    steps: dict[str, msgspec.Raw]
    watermark: float
    merge: Any = None
    clock: float = 0.0
    """What the task's clock showed, for windows in processing time."""
    layout: int = 0
    """The layout of the flow's stateful steps under whose names it was stored."""
    entrances: list[str] = []
    """The inputs through which the records that wait in the merge arrived."""
    segments: list[Segment] = []
    """Where the pairs lie of a state that its task keeps on disk."""
    inline: bytes = b""
    """What of them is in no part."""


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
