"""A savepoint with another number of key groups: its state and frontiers, divided anew. No I/O.

The bytes of a state's pairs are kept as they are; only keys are read, so no class of a value is needed. A
new group has, one after the other, the checkpoints of all groups of before, with the pairs of its keys: the
keys of two groups are different ones, so a whole state of the second is a change of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from fencepost.flows._errors import StartRefused
from fencepost.flows._frontier import Frontier, Mark, least_mark
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


class _Body(msgspec.Struct, frozen=True):
    versions: msgspec.Raw
    steps: dict[str, msgspec.Raw]
    watermark: float
    merge: msgspec.Raw = NOTHING
    clock: float = 0.0
    layout: int = 0
    entrances: list[str] = []


class _Checkpoint(msgspec.Struct, frozen=True):
    body: _Body | None = None


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


def _pairs(name: str, pairs: msgspec.Raw, is_mine: Callable[[Any], bool]) -> msgspec.Raw | None:
    """The pairs of one part of a step's state whose keys are in the new group."""
    part = name.rpartition("/")[2]
    if part not in PLACED | KEYED:
        raise StartRefused(f"The state {name} has no keys that this release knows how to divide.")
    found: list[bytes] = []
    for pair in _raw_list(pairs):
        place = as_key(unpack(_raw_list(pair)[0]))
        if is_mine(place[0] if part in PLACED else place):
            found.append(bytes(pair))
    return msgspec.Raw(ARRAY + len(found).to_bytes(4, "big") + b"".join(found)) if found else None
