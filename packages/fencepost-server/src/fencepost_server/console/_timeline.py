"""A workflow's timeline: from steps, waits and history to the geometry of an SVG. No I/O.

The database knows when a step was recorded, not when it began: its bar begins where its attempt was claimed,
or where the record before it ends. Long waits are shortened, so that steps of milliseconds can be seen beside
sleeps of days.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, Literal

from fencepost_server.console._swim_lanes import instant
from fencepost_server.web.formatting import duration
from fencepost_server.web.words import say

NAME_WIDTH, PLOT_WIDTH, WORDS_WIDTH = 180, 520, 150
WIDTH = NAME_WIDTH + PLOT_WIDTH + WORDS_WIDTH
ROW_HEIGHT, HEAD_HEIGHT = 24, 26
MARK = 5
TICKS_MAX = 5
SHORTEST_SECONDS = 0.001
Kind = Literal["step", "sleep", "event", "spawn", "wait", "undo", "failed", "refused", "decided"]
_ENDED_BADLY = {"failed", "buried", "lost"}
_DECIDED = {"cancelled", "cancel_requested", "replayed", "retried_from", "rescheduled", "discarded"}


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """What happened from one moment to another; at one moment when the two are equal."""

    kind: Kind
    name: str
    start: datetime
    end: datetime
    words: str = ""
    open: bool = False


@dataclass(frozen=True, slots=True)
class TimelineRow:
    kind: Kind
    name: str
    words: str
    y: int
    x: float
    width: float
    open: bool

    @property
    def is_mark(self) -> bool:
        return self.width < 2 * MARK


@dataclass(frozen=True, slots=True)
class TimelineTick:
    x: float
    label: str


@dataclass(frozen=True, slots=True)
class Timeline:
    rows: Sequence[TimelineRow]
    ticks: Sequence[TimelineTick]
    height: int
    summary: str


def spans(
    job: Mapping[str, Any],
    steps: Iterable[Mapping[str, Any]],
    waits: Iterable[Mapping[str, Any]],
    children: Iterable[Mapping[str, Any]],
    undo: Iterable[Mapping[str, Any]],
    life: Iterable[Mapping[str, Any]],
    now: datetime,
) -> list[TimelineSpan]:
    """Everything that has a place on the timeline, oldest first."""
    batches = {one["name"]: one for one in children}
    claimed: dict[int, datetime] = {}
    found: list[TimelineSpan] = []
    for moment in life:
        if (began := instant(moment["detail"].get("claimed_at"))) is not None:
            claimed[moment["token"]] = began
        if (span := _moment(moment)) is not None:
            found.append(span)
    if job["claimed_at"] is not None:
        claimed[job["attempt"]] = job["claimed_at"]
    found += _steps(steps, batches, claimed, now)
    # A sleep is a step: its bar has its end already.
    found += [_wait(one, now) for one in waits if one["event"] is not None]
    found += [
        TimelineSpan(
            "undo",
            say("undo of {step}", step=one["step"]),
            one["submitted_at"],
            one["finished_at"] or max(one["submitted_at"], now),
            str(one["state"]),
            open=one["finished_at"] is None,
        )
        for one in undo
    ]
    return sorted(found, key=lambda span: (span.end, span.start))


def _wait(wait: Mapping[str, Any], now: datetime) -> TimelineSpan:
    """A wait for an event. One that is emitted waits for a worker."""
    emitted = wait["emitted_at"]
    if emitted is not None:
        words = "emitted"
    elif wait["deadline"] is None:
        words = "waits"
    else:
        words = say("{deadline} left", deadline=_left(wait["deadline"], now))
    end = max(wait["since"], emitted or now)
    return TimelineSpan("wait", wait["event"], wait["since"], end, words, open=emitted is None)


def _steps(
    steps: Iterable[Mapping[str, Any]],
    batches: Mapping[str, Mapping[str, Any]],
    claimed: Mapping[int, datetime],
    now: datetime,
) -> list[TimelineSpan]:
    made: list[TimelineSpan] = []
    attempt, before = None, None
    for one in steps:
        at: datetime = one["at"]
        begun = claimed.get(one["attempt"])
        if before is not None and (attempt == one["attempt"] or begun is None or one["what"] == "event"):
            begun = before
        start, words = min(begun or at, at), say("attempt {attempt}", attempt=one["attempt"])
        is_open = False
        match one["what"]:
            case "sleep":
                start, end = at, instant(one["result"]) or at
                is_open = end > now
                words = f"{duration((end - at).total_seconds())}"
            case "spawn":
                batch = batches.get(one["name"])
                ended = None if batch is None else batch["completed_at"]
                start, end = at, at if batch is None else ended or max(at, now)
                is_open = batch is not None and ended is None
                words = (
                    ""
                    if batch is None
                    else say(
                        "{what} of {size} ended", what=batch["size"] - batch["remaining"], size=batch["size"]
                    )
                )
            case _:
                end = at
        made.append(TimelineSpan(one["what"], one["name"], start, end, words, open=is_open))
        attempt, before = one["attempt"], end
    return made


def _moment(moment: Mapping[str, Any]) -> TimelineSpan | None:
    at, event, detail = moment["at"], moment["event"], moment["detail"]
    if moment["refused"]:
        attempted: Mapping[str, Any] = detail.get("attempted") or {}
        step = detail.get("step") or attempted.get("name") or ""
        return TimelineSpan(
            "refused", say("refused: {step}", step=step).rstrip(": "), at, at, event.removeprefix("refused:")
        )
    if event in _ENDED_BADLY:
        start = min(instant(detail.get("claimed_at")) or at, at)
        return TimelineSpan(
            "failed",
            say("attempt {token} {event}", token=moment["token"], event=event),
            start,
            at,
            str(detail.get("to") or ""),
        )
    if event in _DECIDED:
        return TimelineSpan("decided", event.replace("_", " "), at, at, moment["actor"] or "")
    return None


def _left(deadline: datetime, now: datetime) -> str:
    return duration(max(0.0, round((deadline - now).total_seconds())))


def lay_out(of: str, found: Sequence[TimelineSpan], begun: datetime) -> Timeline:
    """One row for each, on a scale that shortens what is long."""
    places = _places([begun, *(span.start for span in found), *(span.end for span in found)])
    rows = [
        TimelineRow(
            span.kind,
            span.name,
            span.words,
            HEAD_HEIGHT + ROW_HEIGHT * number,
            round(NAME_WIDTH + places[span.start], 1),
            round(places[span.end] - places[span.start], 1),
            span.open,
        )
        for number, span in enumerate(found)
    ]
    told = ", ".join(f"{span.name} ({span.kind}{', open' if span.open else ''})" for span in found)
    height = HEAD_HEIGHT + ROW_HEIGHT * len(rows) + MARK
    return Timeline(
        rows,
        _ticks(places, begun),
        height,
        say("The timeline of {of}: {what}", of=of, what=told or "nothing yet"),
    )


def _places(moments: Iterable[datetime]) -> dict[datetime, float]:
    """Each moment's distance from the first: a tenfold wait takes a constant more."""
    ordered = sorted(set(moments))
    widths = [
        math.log10(1 + (later - earlier).total_seconds() / SHORTEST_SECONDS)
        for earlier, later in pairwise(ordered)
    ]
    whole = sum(widths) or 1.0
    places, passed = {ordered[0]: 0.0}, 0.0
    for moment, width in zip(ordered[1:], widths, strict=True):
        passed += width
        places[moment] = passed / whole * (PLOT_WIDTH - 2 * MARK)
    return places


def _ticks(places: Mapping[datetime, float], begun: datetime) -> list[TimelineTick]:
    """A few of the moments, far enough from each other to be read, as the time since the beginning."""
    ticks: list[TimelineTick] = []
    room = PLOT_WIDTH / TICKS_MAX
    for moment, place in places.items():
        since = (moment - begun).total_seconds()
        if not ticks or place - (ticks[-1].x - NAME_WIDTH) >= room:
            ticks.append(
                TimelineTick(
                    round(NAME_WIDTH + place, 1), say("start") if since <= 0 else f"+{duration(since)}"
                )
            )
    return ticks
