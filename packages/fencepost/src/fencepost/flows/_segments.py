"""State in buckets of keys, as checkpoints store it: segments of a few keys each, in parts.

A segment has pairs of packed keys and packed values: what changed in a bucket, or, as a base, all that the
bucket holds. A commit stores what changed, and a base for as many buckets as make up as many bytes, one after
the other. So a restore reads the newest base of each bucket and what changed since, about twice the state,
and no commit stores all of it."""

from __future__ import annotations

import asyncio
import os
import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from tempfile import TemporaryFile
from typing import Any, cast

import msgspec

from fencepost.flows._parts import Part, checked, packed_together
from fencepost.flows._value_codec import Unstorable, flat, pack

BUCKETS = 1024
INLINE_SEGMENT_BYTES_MAX = 65_536
"""Segments up to this size together are stored in the row of the checkpoint."""

OTHER_KEY = b"\xc1"
"""Begins a value that is stored with its key. In MessagePack it begins nothing."""
PackedPair = tuple[bytes, bytes | None]
"""A key and its value; None for a key that was removed."""
_encode = msgspec.msgpack.Encoder().encode
_pairs = msgspec.msgpack.Decoder(list[PackedPair]).decode


class Segment(msgspec.Struct, frozen=True, array_like=True):
    """Where the pairs of one bucket of a state lie: in a part of the checkpoint, or behind its last one in
    the checkpoint itself."""

    name: str
    bucket: int
    is_base: bool
    part: int
    offset: int
    length: int


def bucket_of(packed_key: bytes) -> int:
    """The bucket of a key. Key groups are chosen by the lower bits of the same sum."""
    return (zlib.crc32(packed_key) >> 16) % BUCKETS


def packed_key(key: Any) -> bytes:
    """A key as bytes, the same for keys that are equal. Raises Unstorable for a key that has no such
    bytes."""
    kind = cast("Any", type(key))
    if kind is str or kind is bytes:
        return flat(key)
    if kind is int and -(2**63) <= key < 2**64:
        return flat(key)
    return pack(_canonical(key))


def _canonical(key: Any) -> Any:
    kind = cast("Any", type(key))
    if kind is bool:
        return int(key)
    if kind is float and key.is_integer():
        return int(key)
    if kind is Decimal:
        return int(key) if key == key.to_integral_value() else key.normalize()
    if kind is tuple:
        return tuple(map(_canonical, key))
    if kind is datetime and key.tzinfo is not None:
        return key.astimezone(UTC)
    if isinstance(key, set | frozenset):
        raise Unstorable(
            "A key of a step is a set, whose members have no order: state on disk cannot find it again. Use "
            "a sorted tuple."
        )
    return key


def with_key(key: Any, packed: bytes, value: bytes) -> bytes:
    """A value as it is stored under a packed key: with the key as it was, if an equal one has other bytes."""
    kind = cast("Any", type(key))
    if kind is str or kind is int or kind is bytes:
        return value
    own = pack(key)
    return value if own == packed else OTHER_KEY + len(own).to_bytes(4, "big") + own + value


def value_of(stored_value: bytes) -> bytes:
    """The packed value of what `with_key` made."""
    if stored_value[:1] != OTHER_KEY:
        return stored_value
    return stored_value[5 + int.from_bytes(stored_value[1:5], "big") :]


def key_of(packed: bytes, stored_value: bytes) -> bytes:
    """The key of what `with_key` made, as it was and packed."""
    if stored_value[:1] != OTHER_KEY:
        return packed
    return stored_value[5 : 5 + int.from_bytes(stored_value[1:5], "big")]


def encoded(pairs: Sequence[PackedPair]) -> bytes:
    return _encode(pairs)


@dataclass(frozen=True, slots=True)
class Stored:
    """Segments as a checkpoint stores them."""

    segments: list[Segment]
    inline: bytes
    parts: list[Part]


Blob = tuple[str, int, bool, bytes]
"""The name of a state, the bucket, whether it is a base, and the encoded pairs."""


def stored(changes: Sequence[Blob], bases: Sequence[Blob]) -> Stored:
    """Lay segments out. Changes and bases lie in parts of their own: superseded bases need not be read."""
    if sum(len(blob[3]) for blob in (*changes, *bases)) <= INLINE_SEGMENT_BYTES_MAX:
        together = [*changes, *bases]
        return Stored(_placed(together, -1), b"".join(blob[3] for blob in together), [])
    segments: list[Segment] = []
    parts: list[Part] = []
    for blobs in (changes, bases):
        done = 0
        for contents in packed_together(blob[3] for blob in blobs):
            segments += _placed(blobs[done : done + len(contents)], len(parts))
            parts.append(Part.of(b"".join(contents)))
            done += len(contents)
    return Stored(segments, b"", parts)


def _placed(blobs: Iterable[Blob], part: int) -> list[Segment]:
    found: list[Segment] = []
    offset = 0
    for name, bucket, is_base, content in blobs:
        found.append(Segment(name, bucket, is_base, part, offset, len(content)))
        offset += len(content)
    return found


Convert = Callable[[list[PackedPair]], list[PackedPair]]
"""What makes pairs of the current version of a step of older ones."""


@dataclass(frozen=True, slots=True)
class _Place:
    hash: bytes | None
    inline: bytes
    offset: int
    length: int
    convert: Convert | None


class PartFile:
    """Parts on the local disk, in a file without a name: it is gone with the process, however that ends."""

    def __init__(self, directory: str | None) -> None:
        self._file = TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115 - `close` closes it.
        self._offsets: dict[bytes, int] = {}
        self._end = 0

    def add(self, digest: bytes, content: bytes) -> None:
        view = memoryview(content)
        while view:
            view = view[os.pwrite(self._file.fileno(), view, self._end + len(content) - len(view)) :]
        self._offsets[digest] = self._end
        self._end += len(content)

    def read(self, digest: bytes, offset: int, length: int) -> bytes:
        return os.pread(self._file.fileno(), length, self._offsets[digest] + offset)

    def close(self) -> None:
        self._file.close()


class SegmentChain:
    """The segments of a restore: for each bucket of each state the newest base, and what changed since."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, int], list[_Place]] = {}
        self._file: PartFile | None = None
        self.bases: dict[int, int] = {}
        """By bucket: the number of the checkpoint that has its newest base."""
        self.is_used = False
        """Whether a checkpoint had segments."""

    def __bool__(self) -> bool:
        return bool(self._places)

    def add(
        self,
        number: int,
        segments: Iterable[Segment],
        inline: bytes,
        hashes: Sequence[bytes],
        named: Callable[[str], tuple[str, Convert | None] | None],
    ) -> None:
        """Add the segments of the next checkpoint. `named` has the current name of a state, and what converts
        its pairs; None for a state that was dropped."""
        known: dict[str, tuple[str, Convert | None] | None] = {}
        for each in segments:
            self.is_used = True
            if each.name not in known:
                known[each.name] = named(each.name)
            found = known[each.name]
            if each.is_base:
                self.bases[each.bucket] = number
            if found is None:
                continue
            name, convert = found
            digest = None if each.part < 0 else hashes[each.part]
            place = _Place(digest, inline, each.offset, each.length, convert)
            places = self._places.setdefault((name, each.bucket), [])
            if each.is_base:
                places.clear()
            places.append(place)

    def wanted(self) -> list[bytes]:
        """The parts that have to be read, once each."""
        found = dict.fromkeys(
            place.hash for places in self._places.values() for place in places if place.hash is not None
        )
        return list(found)

    async def fetch(
        self,
        get: Callable[[bytes], Awaitable[bytes | None]],
        directory: str | None,
        disk: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Read the parts into a file of the directory; what writes there is within `disk`."""
        wanted = self.wanted()
        if not wanted:
            return
        with disk():
            self._file = file = PartFile(directory)
        try:
            for digest in wanted:
                content = await asyncio.to_thread(checked, await get(digest), digest)
                with disk():
                    file.add(digest, content)
        except BaseException:
            self.close()
            raise

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self._places}

    def buckets(self, name: str) -> list[int]:
        return [bucket for other, bucket in self._places if other == name]

    def take(self, name: str, bucket: int) -> Mapping[bytes, bytes | None]:
        """The pairs of a bucket, with what was removed since the base or, without one, since the first
        checkpoint: older ones, of a task in memory, may have it. They are asked for once."""
        found: dict[bytes, bytes | None] = {}
        for place in self._places.pop((name, bucket), ()):
            found.update(self._read(place))
        if not self._places:
            self.close()
        return found

    def _read(self, place: _Place) -> list[PackedPair]:
        if place.hash is None:
            data = place.inline[place.offset : place.offset + place.length]
        else:
            assert self._file is not None, "the parts of a chain are fetched before they are taken"
            data = self._file.read(place.hash, place.offset, place.length)
        pairs = _pairs(data)
        return pairs if place.convert is None else place.convert(pairs)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def by_bucket(pairs: Iterable[PackedPair]) -> Iterator[tuple[int, list[PackedPair]]]:
    """Pairs, by the bucket of their keys."""
    found: dict[int, list[PackedPair]] = {}
    for pair in pairs:
        found.setdefault(bucket_of(pair[0]), []).append(pair)
    yield from sorted(found.items())
