"""Early and late firings, calendars and joins by their definition, without a line of the code under test.

A record is known at its own time, or, when it came behind the watermark of its partition, at that
watermark. Whatever a window or a join says at a moment is said of the records known before it, in the order
in which they were known, then of their partitions, then of their places.
"""

from bisect import bisect_left
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from tests.unit.flows.window_reference import Event, watermarks

Place = tuple[str, float, float]
Said = tuple[str, int, list[int]]
"""Timing, number, and the numbers of the records."""


@dataclass(order=True, frozen=True)
class Known:
    at: float
    partition: int
    place: int
    event: Event
    behind: float = field(compare=False)
    """The watermark when it came, if it came behind it."""


def known(partitions: list[list[Event]], lateness: float) -> list[Known]:
    found: list[Known] = []
    for number, events in enumerate(partitions):
        for place, (event, watermark) in enumerate(zip(events, watermarks(events, lateness), strict=True)):
            behind = watermark if event[1] < watermark else float("-inf")
            found.append(Known(max(event[1], watermark), number, place, event, behind))
    return sorted(found)


def of_firing(
    partitions: list[list[Event]], lateness: float, window: tuple[int, int, int], every: int | None, keep: int
) -> tuple[dict[Place, list[Said]], list[int]]:
    """What each window (of this size, step and offset) says, in order, and the late records."""
    size, step, offset = window
    members: dict[Place, list[Known]] = {}
    late: list[int] = []
    records = known(partitions, lateness)
    for record in records:
        key, time, number = record.event
        first = (time - offset) // step * step + offset
        starts = [first - n * step for n in range(size // step + 1) if first - n * step + size > time]
        mine = [start for start in starts if start + size + keep > record.behind]
        if not mine:
            late.append(number)
        for start in mine:
            members.setdefault((key, start, start + size), []).append(record)
    return {place: said(place, mine, every) for place, mine in members.items()}, sorted(late)


def said(place: Place, members: list[Known], every: int | None) -> list[Said]:
    _, start, end = place
    answers: list[Said] = []
    held: list[int] = []
    moments = (
        [start + n * every for n in range(1, int(end - start)) if start + n * every < end] if every else []
    )
    for moment in moments:
        now = [record.event[2] for record in members if record.at < moment]
        if len(now) > len(held):
            answers.append(("early", len(answers) + 1, now))
        held = now
    held = [record.event[2] for record in members if record.at < end]
    if held:
        answers.append(("on_time", len(answers) + 1, held))
    for record in members:
        if record.at >= end:
            held = [*held, record.event[2]]
            answers.append(("late", len(answers) + 1, held))
    return answers


def day_of(time: float, unit: str, zone: str) -> Any:
    """What the clocks of the zone show, as far as the unit goes."""
    day = datetime.fromtimestamp(time, ZoneInfo(zone)).date()
    return {
        "day": day,
        "week": day.isocalendar()[:2],
        "month": (day.year, day.month),
        "year": day.year,
    }[unit]


def bounds_of(time: float, unit: str, zone: str) -> tuple[float, float]:
    """The first second, and the one behind the last, at which the clocks show the same day, week, month or
    year: searched, second by second in halves."""
    here = day_of(time, unit, zone)
    far = 400 * 86_400

    def at(second: int) -> bool:
        return bool(day_of(second, unit, zone) >= here)

    def behind(second: int) -> bool:
        return bool(day_of(second, unit, zone) > here)

    span = range(int(time) - far, int(time) + far)
    return float(span[bisect_left(span, True, key=at)]), float(span[bisect_left(span, True, key=behind)])


def of_window_join(
    left: list[Event], right: list[Event], lateness: float, size: int, offset: int, how: str
) -> tuple[list[Any], list[int]]:
    """Pairs and records without a partner in their window, and the late ones."""
    late: list[int] = []
    taken: list[list[Event]] = [[], []]
    for side, events in enumerate((left, right)):
        for event, watermark in zip(events, watermarks(events, lateness), strict=True):
            end = (event[1] - offset) // size * size + offset + size
            if end <= watermark:
                late.append(event[2])
            else:
                taken[side].append(event)

    def is_pair(a: Event, b: Event) -> bool:
        return a[0] == b[0] and (a[1] - offset) // size == (b[1] - offset) // size

    return _paired(taken[0], taken[1], is_pair, how), sorted(late)


def of_interval_join(
    left: list[Event], right: list[Event], lateness: float, before: int, after: int, how: str
) -> tuple[list[Any], list[int]]:
    """A record is late when, as it came, no partner of it could come any more: its partition's watermark lay
    behind its own time and those of all its possible partners."""
    late: list[int] = []
    taken: list[list[Event]] = [[], []]
    for side, (events, last) in enumerate(((left, max(0, after)), (right, max(0, before)))):
        for event, watermark in zip(events, watermarks(events, lateness), strict=True):
            if watermark > event[1] + last:
                late.append(event[2])
            else:
                taken[side].append(event)

    def is_pair(a: Event, b: Event) -> bool:
        return a[0] == b[0] and a[1] - before <= b[1] <= a[1] + after

    return _paired(taken[0], taken[1], is_pair, how), sorted(late)


def _paired(left: list[Event], right: list[Event], is_pair: Any, how: str) -> list[Any]:
    found: list[Any] = [(a[2], b[2]) for a in left for b in right if is_pair(a, b)]
    if how in ("left", "outer"):
        found += [(a[2], None) for a in left if not any(is_pair(a, b) for b in right)]
    if how in ("right", "outer"):
        found += [(None, b[2]) for b in right if not any(is_pair(a, b) for a in left)]
    return sorted(found, key=repr)


def of_silences(
    partitions: list[list[Event]], silences: list[int | None], lateness: float, size: int, step: int
) -> tuple[dict[Place, list[int]], list[int]]:
    """Windows where partitions are silent before a record of theirs until the others have nothing left.

    Then the watermark of those that were silent is at least the highest that any partition has reached.
    """
    ends = [len(events) if at is None else at for events, at in zip(partitions, silences, strict=True)]
    before = [events[:end] for events, end in zip(partitions, ends, strict=True)]
    reached = max((time - lateness for events in before for _, time, _ in events), default=float("-inf"))
    windows: dict[Place, list[int]] = {}
    late: list[int] = []
    for events, end in zip(partitions, ends, strict=True):
        for place, (event, own) in enumerate(zip(events, watermarks(events, lateness), strict=True)):
            key, time, number = event
            watermark = max(own, reached) if place >= end else own
            first = time // step * step
            starts = [first - n * step for n in range(size // step + 1) if first - n * step + size > time]
            mine = [start for start in starts if start + size > watermark]
            if not mine:
                late.append(number)
            for start in mine:
                windows.setdefault((key, start, start + size), []).append(number)
    return windows, sorted(late)


def of_silences_without_windows(
    partitions: list[list[Event]], silences: list[int | None], lateness: float
) -> tuple[list[int], list[int]]:
    """Without windows a record is late below the watermark, its own partition's or that of a silence."""
    ends = [len(events) if at is None else at for events, at in zip(partitions, silences, strict=True)]
    before = [events[:end] for events, end in zip(partitions, ends, strict=True)]
    reached = max((time - lateness for events in before for _, time, _ in events), default=float("-inf"))
    taken: list[int] = []
    late: list[int] = []
    for events, end in zip(partitions, ends, strict=True):
        for place, (event, own) in enumerate(zip(events, watermarks(events, lateness), strict=True)):
            watermark = max(own, reached) if place >= end else own
            (late if event[1] < watermark else taken).append(event[2])
    return sorted(taken), sorted(late)
