"""A savepoint with another number of key groups: its state and frontiers, divided anew. No I/O.

The bytes of a state's pairs are kept as they are; only keys are read, so no class of a value is needed. A
new group has, one after the other, the checkpoints of all groups of before, with the pairs of its keys: the
keys of two groups are different ones, so a whole state of the second is a change of the first. State that
tasks kept on disk is divided a bucket at a time: it may be larger than memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from fencepost.flows._errors import StartRefused
from fencepost.flows._frontier import Frontier, Mark, least_mark
from fencepost.flows._parts import PART_BYTES, Part
from fencepost.flows._segments import (
    INLINE_SEGMENT_BYTES_MAX,
    Blob,
    PackedPair,
    Segment,
    SegmentChain,
    encoded,
    key_of,
    stored,
)
from fencepost.flows._state import ARRAY, as_key
from fencepost.flows._taken import Taken, group_of
from fencepost.flows._value_codec import flat, unpack

PLACED = frozenset({"window", "seen", "sides"})
"""Parts of a step's state whose keys begin with the record's key."""
KEYED = frozenset({"value", "touched", "timers", "row", "sessions"})
"""Parts whose keys are the records'."""
NOTHING = msgspec.Raw(b"\xc0")
"""None, as MessagePack has it."""


@dataclass(frozen=True, slots=True)
class SavedRow:
    """One checkpoint of a savepoint. Number 0 is a task's beginning."""

    resource: str
    number: int
    whole: bool
    frontier: Mapping[str, Any]
    state: bytes | None
    layout: int | None
    parts: Sequence[bytes] | None = None
    """The hashes of its parts; None for a checkpoint without any."""


class _Body(msgspec.Struct, frozen=True):
    versions: msgspec.Raw
    steps: dict[str, msgspec.Raw]
    watermark: float
    merge: msgspec.Raw = NOTHING
    clock: float = 0.0
    layout: int = 0
    entrances: list[str] = []
    segments: list[Segment] = []
    inline: bytes = b""


class _Checkpoint(msgspec.Struct, frozen=True):
    body: _Body | None = None


@dataclass(frozen=True, slots=True)
class SegmentHead:
    """What the checkpoints of a state on disk have in common: the versions of its steps, packed, the layout
    and the inputs."""

    versions: bytes
    layout: int
    entrances: tuple[str, ...]


Waiting = tuple[float, str, int, int, tuple[msgspec.Raw, msgspec.Raw, msgspec.Raw, int]]
_checkpoint = msgspec.msgpack.Decoder(_Checkpoint).decode
_raw_list = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_places = msgspec.msgpack.Decoder(dict[str, int]).decode
_waiting = msgspec.msgpack.Decoder(list[Waiting]).decode


@dataclass
class _Group:
    """A group of before: its checkpoints, and what they add up to beside the states."""

    bodies: list[_Body]
    frontier: Frontier
    watermark: float = float("-inf")
    waiting: Sequence[Waiting] = ()
    places: Mapping[str, int] | None = None

    @classmethod
    def of(cls, rows: Sequence[SavedRow]) -> _Group:
        found = [_checkpoint(row.state).body for row in rows if row.state is not None]
        group = cls([body for body in found if body is not None], Frontier.from_json(rows[-1].frontier))
        for body in group.bodies:
            group._add(body)
        return group

    def _add(self, body: _Body) -> None:
        """As a task that restores takes what waits in its merge: a change has what came, and the watermark
        says what went."""
        released = body.watermark if body.watermark > self.watermark else float("-inf")
        self.watermark = body.watermark
        if bytes(body.merge) == bytes(NOTHING):
            return
        places, waiting, *is_change = _raw_list(body.merge)
        kept = [each for each in self.waiting if each[0] >= released] if is_change else []
        self.waiting = [*kept, *_waiting(waiting)]
        self.places = _places(places)


class DividedSegments:
    """The segments of a new group, in parts that are full; the last ones may lie in the checkpoint."""

    def __init__(self) -> None:
        self._blobs: list[Blob] = []
        self._bytes = 0
        self.segments: list[Segment] = []
        self.inline = b""
        self.hashes: list[bytes] = []

    def add(self, name: str, bucket: int, pairs: Sequence[PackedPair]) -> list[Part]:
        """Add pairs; returns the parts that are full."""
        self._blobs.append((name, bucket, False, encoded(pairs)))
        self._bytes += len(self._blobs[-1][3])
        return self.finish() if self._bytes > max(PART_BYTES, INLINE_SEGMENT_BYTES_MAX) else []

    def finish(self) -> list[Part]:
        """The parts of what is not in one yet."""
        found = stored(self._blobs, [])
        first = len(self.hashes)
        self.segments += [
            msgspec.structs.replace(each, part=each.part + first) if each.part >= 0 else each
            for each in found.segments
        ]
        self.inline = found.inline or self.inline
        self.hashes += [part.hash for part in found.parts]
        self._blobs, self._bytes = [], 0
        return found.parts


def chain_of(rows: Sequence[SavedRow]) -> tuple[SegmentChain, SegmentHead] | None:
    """The segments of the rows of one group, and what they have in common; None if they have none."""
    chain, head = SegmentChain(), None
    for row in rows:
        body = None if row.state is None else _checkpoint(row.state).body
        if body is None or not body.segments:
            continue
        chain.add(row.number, body.segments, body.inline, row.parts or (), lambda name: (name, None))
        head = same_head(head, SegmentHead(bytes(body.versions), body.layout, tuple(body.entrances)))
    return None if head is None else (chain, head)


def has_both(rows: Sequence[SavedRow]) -> bool:
    """Whether some checkpoints are of tasks that kept state in memory, and some of tasks that kept it on
    disk."""
    found = [_checkpoint(row.state).body for row in rows if row.state is not None]
    bodies = [body for body in found if body is not None]
    return any(body.segments for body in bodies) and any(body.steps for body in bodies)


def same_head(one: SegmentHead | None, other: SegmentHead) -> SegmentHead:
    if one is not None and one != other:
        raise StartRefused(
            "The savepoint has state on disk of two releases of the graph. Let the flow run with the newest "
            "until every task has stored all of it again, keep another savepoint, and regroup that."
        )
    return other


def divided(name: str, pairs: Mapping[bytes, bytes | None], groups: int) -> dict[int, list[PackedPair]]:
    """The pairs of one part of a step's state, by the new group of their keys."""
    part = _part_of(name)
    found: dict[int, list[PackedPair]] = {}
    for packed, value in pairs.items():
        place = unpack(packed if value is None else key_of(packed, value))
        group = group_of(place[0] if part in PLACED else place, groups)
        found.setdefault(group, []).append((packed, value))
    return found


def with_segments(
    rows: Sequence[SavedRow], found: Mapping[int, DividedSegments], head: SegmentHead, prefix: str
) -> list[SavedRow]:
    """The rows of all new groups with one more in each, which has the segments of its keys."""
    made: list[SavedRow] = []
    for group, segments in sorted(found.items()):
        resource = f"{prefix}{group:04}"
        mine = [row for row in rows if row.resource == resource]
        body: dict[str, Any] = {
            "versions": msgspec.Raw(head.versions),
            "layout": head.layout,
            "entrances": list(head.entrances),
            "steps": {},
            "watermark": float("-inf"),
            "clock": 0.0,
            "merge": None,
            "segments": segments.segments,
            "inline": segments.inline,
        }
        state = flat({"body": body, "staged": {}, "previous": None})
        last = mine[-1]
        made.append(replace(last, number=1, whole=True, state=state, parts=segments.hashes))
        made += [replace(row, number=row.number + 1, whole=False) for row in mine if row.state is not None]
    return made


def regrouped(flow: str, rows: Sequence[SavedRow], groups: int) -> list[SavedRow]:
    """The rows of the same savepoint for another number of groups, numbered from 1 in each."""
    prefix = f"flow:{flow}/group/"
    names = sorted({row.resource for row in rows})
    if not names or not all(name.startswith(prefix) for name in names):
        raise StartRefused(
            f"The savepoint of {flow} has no key groups: only key_by(groups=) has a number of them."
        )
    if any("-" in name.removeprefix(prefix) for name in names):
        raise StartRefused(
            f"{flow} has several key_by with groups, and their numbers cannot be changed: what one has sent "
            "to the next would have to be divided too. Begin another flow under another name."
        )
    before = [_Group.of([row for row in rows if row.resource == name]) for name in names]
    frontier = _frontier([group.frontier for group in before])
    layout = max((row.layout for row in rows if row.layout is not None), default=None)
    found: list[SavedRow] = []
    for group in range(groups):
        resource = f"{prefix}{group:04}"
        bodies = [*_bodies(before, group, groups)]
        states = [flat({"body": body, "staged": {}, "previous": None}) for body in bodies]
        for number, state in enumerate(states or list[bytes | None]([None]), 1):
            found.append(SavedRow(resource, number, number == 1, frontier.as_json(), state, layout))
    return found


def _frontier(before: Sequence[Frontier]) -> Frontier:
    """Where a new group begins: at the lowest place of each sender, knowing what each group had taken."""
    found = Frontier()
    for sender in sorted({sender for frontier in before for sender in frontier}):
        marks = [frontier.of(sender) for frontier in before]
        if any(mark.taken is not None for mark in marks):
            raise StartRefused(
                f"{sender} has not passed the place yet at which the number of key groups was changed "
                "before. Let the flow go on until it has, keep a savepoint, and regroup that."
            )
        lowest = least_mark(marks)
        taken = Taken([mark.at for mark in marks], [mark.floor for mark in marks])
        is_alike = len({(mark.at, mark.floor) for mark in marks}) == 1
        found[sender] = Mark(
            lowest.at,
            lowest.watermark,
            lowest.ended,
            lowest.count,
            marks[0].floor if is_alike else None,
            None if is_alike else taken.as_json(),
        )
    return found


def _bodies(before: Sequence[_Group], group: int, groups: int) -> Iterator[dict[str, Any]]:
    """The documents of a new group: those of the groups before with its keys, and one with what is of all."""

    def is_mine(key: Any) -> bool:
        return group_of(key, groups) == group

    last: _Body | None = None
    for each in before:
        for body in each.bodies:
            last = _same_inputs(last, body)
            if body.segments:
                # Its pairs are divided apart.
                continue
            steps = {name: _pairs(name, pairs, is_mine) for name, pairs in body.steps.items()}
            # The watermark of the group is told at the end; until then nothing is released.
            yield _document(body, {name: pairs for name, pairs in steps.items() if pairs}, float("-inf"))
    if last is None:
        return
    waiting = [each for old in before for each in old.waiting if is_mine(as_key(unpack(each[4][1])))]
    merge: list[Any] | None = None
    if any(old.places is not None for old in before):
        counts: dict[str, int] = {}
        for old in before:
            for sender, place in (old.places or {}).items():
                counts[sender] = max(counts.get(sender, 0), place)
        merge = [counts, waiting]
    lowest = min(old.watermark for old in before)
    clock = max(body.clock for old in before for body in old.bodies)
    yield {**_document(last, {}, lowest), "merge": merge, "clock": clock}


def _document(body: _Body, steps: dict[str, Any], watermark: float) -> dict[str, Any]:
    return {
        "versions": body.versions,
        "layout": body.layout,
        "entrances": body.entrances,
        "steps": steps,
        "watermark": watermark,
        "clock": body.clock,
        "merge": None,
    }


def _same_inputs(last: _Body | None, body: _Body) -> _Body:
    """Records that wait name their inputs by number, so all checkpoints must mean the same ones."""
    if last is not None and body.entrances and last.entrances and body.entrances != last.entrances:
        raise StartRefused(
            "The savepoint has records that wait for inputs of two releases of the graph. Let the flow run "
            "with the newest until every task has committed, keep another savepoint, and regroup that."
        )
    return body


def _part_of(name: str) -> str:
    part = name.rpartition("/")[2]
    if part not in PLACED | KEYED:
        raise StartRefused(f"The state {name} has no keys that this release knows how to divide.")
    return part


def _pairs(name: str, pairs: msgspec.Raw, is_mine: Callable[[Any], bool]) -> msgspec.Raw | None:
    """The pairs of one part of a step's state whose keys are in the new group."""
    part = _part_of(name)
    found: list[bytes] = []
    for pair in _raw_list(pairs):
        place = as_key(unpack(_raw_list(pair)[0]))
        if is_mine(place[0] if part in PLACED else place):
            found.append(bytes(pair))
    return msgspec.Raw(ARRAY + len(found).to_bytes(4, "big") + b"".join(found)) if found else None
