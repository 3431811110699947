"""The life of a job or a lease as swim lanes: who held it when, and where a late write was refused. No I/O.

One lane for each owner, one bar for each attempt (or token), a dashed line where an owner held nothing any
more and did not know, and a mark for each refusal. Stretches in which nothing happens are compressed: a lane
shows the order of events and how they overlap; the exact instants stand in the list below it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from fencepost_server.web.words import say

BAR_MIN = 4.0
LANES_MAX = 12
REFUSED = "refused:"
# What ends an attempt, and the word for it in a sentence. `lost` is not among them: its owner does not know.
_ENDS = {
    "finished": "finished",
    "failed": "failed in",
    "released": "gave back",
    "buried": "buried",
    "dead": "ended",
    "cancelled": "ended",
}
_OPERATIONS = {"fence": "write", "store": "store a checkpoint", "commit": "commit a checkpoint"}


@dataclass(frozen=True, slots=True)
class Shape:
    """The measures of a picture: where the bars begin and end, and where each lane stands."""

    width: float
    left: float
    right: float
    lane_height: float
    top: float
    name_above: float
    """How far the name of an owner stands above the middle of its lane."""


WIDE = Shape(width=780.0, left=190.0, right=750.0, lane_height=44.0, top=22.0, name_above=-4.0)
NARROW = Shape(width=340.0, left=10.0, right=322.0, lane_height=68.0, top=42.0, name_above=32.0)
"""For a phone: the name of an owner stands above its bars."""


@dataclass(slots=True)
class Attempt:
    """One acquisition: from its claim to its end. `known_until` is where its owner lost it unawares."""

    owner: str
    token: int
    start: datetime
    end: datetime | None = None
    known_until: datetime | None = None
    how: str | None = None


@dataclass(frozen=True, slots=True)
class Late:
    """A refused write: the owner that tried, and with which token."""

    at: datetime
    owner: str
    token: int | None
    reason: str
    operation: str | None


@dataclass(frozen=True, slots=True)
class Bar:
    x: float
    width: float
    label: str
    title: str
    ended: str


@dataclass(frozen=True, slots=True)
class Mark:
    x: float
    title: str


@dataclass(slots=True)
class Lane:
    owner: str
    name: str
    y: float
    bars: list[Bar] = field(default_factory=list[Bar])
    pauses: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    marks: list[Mark] = field(default_factory=list[Mark])


@dataclass(frozen=True, slots=True)
class SwimLanes:
    shape: Shape
    lanes: Sequence[Lane]
    sentences: Sequence[str]
    left_out: int

    @property
    def height(self) -> float:
        return self.shape.top + self.shape.lane_height * len(self.lanes)

    @property
    def summary(self) -> str:
        attempts = sum(len(lane.bars) for lane in self.lanes)
        refusals = sum(len(lane.marks) for lane in self.lanes)
        return say(
            "{lanes} owners, {attempts} acquisitions, {refusals} refused writes",
            lanes=len(self.lanes),
            attempts=attempts,
            refusals=refusals,
        )


def draw(
    moments: Sequence[Mapping[str, Any]], now: datetime, noun: str = "attempt", shape: Shape = WIDE
) -> SwimLanes | None:
    """The picture of a history, or None for one in which nothing was ever held."""
    attempts = _attempts(moments)
    if not attempts:
        return None
    owners = {attempt.token: attempt.owner for attempt in attempts}
    late = [_late(moment, owners) for moment in moments if moment["event"].startswith(REFUSED)]
    is_open = any(attempt.end is None for attempt in attempts)
    scale = _Scale([*_instants(attempts), *(one.at for one in late), *((now,) if is_open else ())], shape)
    lanes: dict[str, Lane] = {}
    for owner in dict.fromkeys([*(one.owner for one in attempts), *(one.owner for one in late)]):
        lanes[owner] = Lane(owner, short_name(owner), shape.top + shape.lane_height * len(lanes))
    for attempt in attempts:
        _place(attempt, lanes[attempt.owner], late, scale, now, noun)
    sentences = [sentence(one, attempts, noun) for one in late]
    for one, told in zip(late, sentences, strict=True):
        lanes[one.owner].marks.append(Mark(scale.x(one.at), told))
    shown = list(lanes.values())[:LANES_MAX]
    return SwimLanes(shape, shown, sentences, len(lanes) - len(shown))


def draw_now(moments: Sequence[Mapping[str, Any]], noun: str = "attempt") -> Sequence[SwimLanes]:
    """The same at this moment, wide and narrow; never before the newest event, which the database's own clock
    dated."""
    now = max([datetime.now(UTC), *(moment["at"] for moment in moments)])
    pictures = (draw(moments, now, noun, shape) for shape in (WIDE, NARROW))
    return [picture for picture in pictures if picture is not None]


def sentence(late: Late, attempts: Sequence[Attempt], noun: str = "attempt") -> str:
    """What happened, for a reader in a hurry: the late write, and the acquisition that refused it."""
    token = "" if late.token is None else f" ({noun} {late.token})"
    tried = (
        say("tried to {operation}", operation=_OPERATIONS.get(late.operation, late.operation))
        if late.operation
        else say("came too late")
    )
    holder = next((a for a in reversed(attempts) if a.start <= late.at and a.token != late.token), None)
    told = say(
        "{owner}{token} {tried} at {at} and was refused: {reason}",
        owner=short_name(late.owner),
        token=token,
        tried=tried,
        at=_clock(late.at),
        reason=late.reason,
    )
    if holder is None:
        return f"{told}."
    other, its = short_name(holder.owner), f"{noun} {holder.token}"
    if holder.end is not None and holder.end <= late.at and holder.how in _ENDS:
        return say(
            "{told}; {other} had {what} {its} at {end}.",
            told=told,
            other=other,
            what=_ENDS[holder.how],
            its=its,
            end=_clock(holder.end),
        )
    return say(
        "{told}; {other} had held {its} since {start}.",
        told=told,
        other=other,
        its=its,
        start=_clock(holder.start),
    )


def short_name(owner: str) -> str:
    """`worker@vm:4021:1710731bef9d` without its boot id: `worker@vm:4021`."""
    front, _, boot = owner.rpartition(":")
    return front if front and len(boot) >= 8 else owner


def _attempts(moments: Sequence[Mapping[str, Any]]) -> list[Attempt]:
    """The acquisitions of a history, oldest first. An end names its start, so a history that was pruned at
    its beginning still has both."""
    found: dict[int, Attempt] = {}
    for moment in moments:
        event, owner, token, at, detail = (
            moment["event"],
            moment["actor"],
            moment["token"],
            moment["at"],
            moment["detail"],
        )
        if owner is None or token is None or event.startswith(REFUSED):
            continue
        match event:
            case "claimed" | "acquired" | "held":
                found.setdefault(token, Attempt(owner, token, instant(detail.get("acquired_at")) or at))
            case "taken_over":
                before = found.setdefault(
                    detail.get("from_token") or 0,
                    Attempt(str(detail.get("from")), detail.get("from_token") or 0, at),
                )
                before.end, before.how = at, "lost"
                before.known_until = instant(detail.get("expired_at"))
                found[token] = Attempt(owner, token, at)
            case "lost" | "failed" | "released" | "buried" | "finished" | "dead" | "cancelled":
                start = instant(detail.get("claimed_at"))
                if token not in found and start is None and event in ("dead", "cancelled", "released"):
                    # It ended without ever having been held by this owner.
                    continue
                one = found.setdefault(token, Attempt(owner, token, start or at))
                one.end, one.how = at, event
                if event == "lost":
                    one.known_until = instant(detail.get("expired_at"))
            case _:
                pass
    return sorted(found.values(), key=lambda one: (one.start, one.token))


def _late(moment: Mapping[str, Any], owners: Mapping[int, str]) -> Late:
    attempted: Mapping[str, Any] = moment["detail"].get("attempted") or {}
    token = attempted.get("attempt", attempted.get("token"))
    token = token if isinstance(token, int) else None
    # A fence carries the token alone: it is the writer that once acquired it.
    owner = attempted.get("owner") or (owners.get(token) if token is not None else None)
    return Late(
        moment["at"],
        str(owner or moment["actor"] or say("unknown")),
        token,
        moment["event"].removeprefix(REFUSED),
        attempted.get("op"),
    )


def _place(
    attempt: Attempt, lane: Lane, late: Sequence[Late], scale: _Scale, now: datetime, noun: str
) -> None:
    """The bar of an attempt; behind a lost one, a dashed line to the last write that came too late."""
    until = attempt.known_until or attempt.end or now
    x, end = scale.x(attempt.start), scale.x(min(until, attempt.end or now))
    label = f"{noun} {attempt.token}"
    told = say("{name} held {label} from {start}", name=lane.name, label=label, start=_clock(attempt.start))
    told += say(" to {until}", until=_clock(until)) if attempt.end else say(" and holds it")
    ended = attempt.how or "held"
    lane.bars.append(Bar(x, max(BAR_MIN, round(end - x, 1)), label, f"{told} ({say(ended)}).", ended))
    if attempt.how == "lost":
        last = max(
            (one.at for one in late if one.owner == attempt.owner and one.token == attempt.token),
            default=None,
        )
        if last is not None and last > until:
            lane.pauses.append((end, scale.x(last)))


def _instants(attempts: Sequence[Attempt]) -> Iterator[datetime]:
    for attempt in attempts:
        yield attempt.start
        yield from (at for at in (attempt.end, attempt.known_until) if at is not None)


class _Scale:
    """From instants to places: each gap has a width by the logarithm of its length."""

    def __init__(self, instants: Sequence[datetime], shape: Shape) -> None:
        ordered = sorted(set(instants))
        places = [0.0]
        for before, after in pairwise(ordered):
            places.append(places[-1] + math.log1p((after - before) / timedelta(milliseconds=100)))
        width = shape.right - shape.left
        self._places = {
            at: round(shape.left + width * place / (places[-1] or 1.0), 1)
            for at, place in zip(ordered, places, strict=True)
        }

    def x(self, at: datetime) -> float:
        return self._places[at]


def instant(stored: object) -> datetime | None:
    """A time from a JSON document; None for anything else that stands in its place."""
    try:
        found = datetime.fromisoformat(str(stored))
    except ValueError:
        return None
    return found if found.tzinfo else None


def _clock(at: datetime) -> str:
    return f"{at:%H:%M:%S}.{at.microsecond // 1000:03}"
