"""Offsets, calendars, early and late firings, interval and outer joins: random streams, compared with a
reference that knows nothing of the code's rule; and every crash window of each."""

import random
from collections.abc import Callable
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from fencepost.flows import (
    Calendar,
    Flow,
    GraphRefused,
    Interval,
    IterableSource,
    ListSink,
    Session,
    Sliding,
    TableSink,
    Tumbling,
    WindowUpdate,
)
from fencepost.flows._graph import KeyedStream, Stream, Windowed
from fencepost.testing import check_flow, run_flow
from tests.unit.flows import firing_reference as reference
from tests.unit.flows import window_reference
from tests.unit.flows.test_lateness import disordered, keyed, numbered, stream, told, way

CASES = [pytest.param(90, id="quick"), pytest.param(900, id="full", marks=pytest.mark.full)]
ZONES = ("Europe/Berlin", "America/Havana", "Africa/Cairo", "Australia/Lord_Howe", "Asia/Kolkata", "UTC")
CHANGES = (1_711_846_800, 1_729_990_800, 1_710_046_800, 1_714_082_400, 1_728_144_000, 1_735_689_600)
"""Moments at which clocks of these zones change, or a year ends."""
UNITS = ("day", "week", "month", "year")


def split(chance: random.Random, events: list[Any]) -> dict[str, list[Any]]:
    """Over one partition, or two."""
    if chance.random() < 0.5:
        return {"0": events}
    parts: dict[str, list[Any]] = {"0": [], "1": []}
    for event in events:
        parts[chance.choice("01")].append(event)
    return parts


@pytest.mark.parametrize("cases", CASES)
@pytest.mark.parametrize("kind", ["tumbling", "sliding"])
def test_windows_with_an_offset(kind: str, cases: int) -> None:
    for seed in range(cases):
        chance = random.Random(f"offset-{kind}-{seed}")  # noqa: S311
        events, lateness = disordered(chance), chance.choice((0, 3, 7))
        offset = chance.choice((1, 2, 3))
        window = Tumbling(10, offset) if kind == "tumbling" else Sliding(12, 4, offset)
        timed, results, late = stream(lateness=lateness), ListSink(), ListSink()
        by_key = keyed(timed, groups=chance.choice((None, 2)))
        flow = numbered(by_key.window(window)).sink(results).also(timed.late.sink(late))

        outcome = run_flow(flow, {"in": events}, **way(chance))
        # Shifted, the windows are those without an offset.
        shifted = [(key, time - offset + 20, number) for key, time, number in events]
        size, step = (10, 10) if kind == "tumbling" else (12, 4)
        answer = window_reference.of_fixed(shifted, lateness, size, step)
        moved = [
            (key, start + offset - 20, end + offset - 20, value) for key, start, end, value in answer.told
        ]

        assert told(outcome.of(results)) == sorted(moved), (seed, events)
        assert sorted(event[2] for event in outcome.of(late)) == sorted(answer.late), (seed, events)


@pytest.mark.parametrize("cases", CASES)
@pytest.mark.parametrize("unit", UNITS)
def test_calendar_windows_are_what_clocks_show(unit: Any, cases: int) -> None:
    for seed in range(cases // 3):
        chance = random.Random(f"calendar-{unit}-{seed}")  # noqa: S311
        zone, change = chance.choice(ZONES), chance.choice(CHANGES)
        stride = {"day": 3_600, "week": 21_600, "month": 86_400, "year": 604_800}[unit]
        events = [(key, change + (time - 30) * stride, n) for key, time, n in disordered(chance)]
        results = ListSink()
        by_key = keyed(stream(lateness=10**9), groups=chance.choice((None, 2)))
        flow = numbered(by_key.window(Calendar(unit, zone))).sink(results)

        outcome = run_flow(flow, {"in": events}, **way(chance))
        expected: dict[Any, list[int]] = {}
        for key, time, number in events:
            place = (key, *reference.bounds_of(time, unit, zone))
            expected.setdefault(place, []).append(number)

        assert told(outcome.of(results)) == sorted((*p, sorted(n)) for p, n in expected.items()), (
            seed,
            events,
        )


def test_a_day_of_a_zone_has_the_length_that_it_has_there() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    noons = [datetime(2024, 3, day, 12, tzinfo=berlin) for day in (30, 31)]
    noons.append(datetime(2024, 10, 27, 12, tzinfo=berlin))
    days = stream().key_by(lambda event: event[0]).window(Calendar("day", "Europe/Berlin"))
    flow = days.count().sink(ListSink())

    outcome = run_flow(flow, {"in": [("a", noon.timestamp(), n) for n, noon in enumerate(noons)]})

    assert [(result.end - result.start) / 3_600 for result in outcome.of()] == [24, 23, 25]


@pytest.mark.parametrize("cases", CASES)
@pytest.mark.parametrize("kind", ["early", "late", "both", "sliding"])
def test_early_and_late_firings_say_what_was_known_by_then(kind: str, cases: int) -> None:
    timings: set[str] = set()
    for seed in range(cases):
        chance = random.Random(f"firing-{kind}-{seed}")  # noqa: S311
        parts, lateness = split(chance, disordered(chance)), chance.choice((0, 0, 3, 7))
        offset = chance.choice((0, 1))
        every = chance.choice((2, 3, 4)) if kind != "late" else None
        keep = chance.choice((1, 5, 20)) if kind != "early" else 0
        size, step = (12, 4) if kind == "sliding" else (10, 10)
        window = Sliding(12, 4, offset) if kind == "sliding" else Tumbling(10, offset)
        timed, results, late = stream(lateness=lateness), ListSink(), ListSink()
        by_key = keyed(timed, groups=chance.choice((None, 2)))
        options: dict[str, Any] = {"early_every": every, "late_for": keep or None}
        fired: Windowed[Any, Any, Any] = by_key.window(window, **options)
        updates = fired.fold(list[int], lambda found, event: [*found, event[2]])
        flow = updates.sink(results).also(timed.late.sink(late))

        outcome = run_flow(flow, {"in": parts}, **way(chance))
        expected, too_late = reference.of_firing(
            [parts[name] for name in sorted(parts)], lateness, (size, step, offset), every, keep
        )

        said: dict[Any, list[Any]] = {}
        for update in outcome.of(results):
            assert isinstance(update, WindowUpdate)
            place = (update.key, update.start, update.end)
            said.setdefault(place, []).append((update.timing, update.number, update.value))
            timings.add(update.timing)
        assert said == expected, (seed, parts)
        assert sorted(event[2] for event in outcome.of(late)) == too_late, (seed, parts)
        again = run_flow(flow, {"in": parts}, **way(chance))
        assert again.of(results) == outcome.of(results), (seed, parts)
    never = {"early": {"late"}, "late": {"early"}}.get(kind, set())
    assert timings == {"early", "on_time", "late"} - never


JOINS = ["inner", "left", "right", "outer"]


@pytest.mark.parametrize("cases", CASES)
@pytest.mark.parametrize("how", JOINS)
def test_joins_of_windows_have_every_pair_and_what_is_alone(how: Any, cases: int) -> None:
    for seed in range(cases // 3):
        chance = random.Random(f"join-{how}-{seed}")  # noqa: S311
        left, right = disordered(chance), disordered(chance, first=100)
        lateness, offset = chance.choice((0, 3, 7)), chance.choice((0, 4))
        outcome, pairs, lates = joined(chance, left, right, lateness, Tumbling(10, offset), how)
        expected, late = reference.of_window_join(left, right, lateness, 10, offset, how)

        assert sorted(outcome.of(pairs), key=repr) == expected, (seed, left, right)
        assert sorted(e[2] for sink in lates for e in outcome.of(sink)) == late, (seed, left, right)


@pytest.mark.parametrize("cases", CASES)
@pytest.mark.parametrize("how", JOINS)
def test_interval_joins_have_every_pair_and_what_is_alone(how: Any, cases: int) -> None:
    found = 0
    for seed in range(cases):
        chance = random.Random(f"interval-{how}-{seed}")  # noqa: S311
        left, right = disordered(chance), disordered(chance, first=100)
        lateness = chance.choice((0, 3, 7))
        before, after = chance.choice(((0, 0), (5, 0), (0, 5), (4, 6), (-2, 9), (9, -3)))
        outcome, pairs, lates = joined(chance, left, right, lateness, Interval(before, after), how)
        expected, late = reference.of_interval_join(left, right, lateness, before, after, how)

        assert sorted(outcome.of(pairs), key=repr) == expected, (seed, left, right, before, after)
        assert sorted(e[2] for sink in lates for e in outcome.of(sink)) == late, (seed, left, right)
        found += len(expected)
    assert found > cases


def joined(
    chance: random.Random, left: list[Any], right: list[Any], lateness: float, window: Any, how: Any
) -> tuple[Any, ListSink, list[ListSink]]:
    """A join of two streams. Of an interval, two runs must have the same pairs in the same order."""
    one, two = stream("left", lateness), stream("right", lateness)
    pairs, early, later = ListSink(), ListSink(), ListSink()
    groups = chance.choice((None, 2))

    def pair(a: Any, b: Any) -> tuple[Any, Any]:
        return (a and a[2], b and b[2])

    join = keyed(one, groups).join(keyed(two, groups), pair, window=window, how=how)
    flow = join.sink(pairs).also(one.late.sink(early), two.late.sink(later))
    outcome, again = (run_flow(flow, {"left": left, "right": right}, **way(chance)) for _ in range(2))
    if isinstance(window, Interval):
        assert outcome.of(pairs) == again.of(pairs)
    return outcome, pairs, [early, later]


@pytest.mark.parametrize("cases", CASES)
def test_branches_of_one_stream_are_joined_in_the_order_of_time(cases: int) -> None:
    """They come batch by batch: first all of one branch, then all of the other."""
    for seed in range(cases):
        chance = random.Random(f"branches-{seed}")  # noqa: S311
        events, lateness = disordered(chance), chance.choice((0, 3, 7))
        before, after = chance.choice(((0, 0), (5, 0), (4, 6)))
        timed, pairs, updates = stream(lateness=lateness), ListSink(), ListSink()
        by_key = keyed(timed, chance.choice((None, 2)))
        both = timed.filter(lambda e: e[2] % 2 == 0).union(timed.filter(lambda e: e[2] % 2 == 1))
        join = by_key.join(by_key, lambda a, b: (a[2], b[2]), window=Interval(before, after))
        fired = keyed(both).window(Tumbling(10), early_every=3).count()
        flow = join.sink(pairs)
        alone = fired.sink(updates)

        outcome = run_flow(flow, {"in": events}, **way(chance))
        expected, _ = reference.of_interval_join(events, events, lateness, before, after, "inner")
        assert sorted(outcome.of(pairs), key=repr) == expected, (seed, events)

        first, second = (run_flow(alone, {"in": events}, **way(chance)) for _ in range(2))
        assert first.of(updates) == second.of(updates), (seed, events)


def test_what_a_join_or_a_window_emits_late_opens_no_closed_window_behind_it() -> None:
    """A window behind them gets each of their records, and closes once."""
    for seed in range(60):
        chance = random.Random(f"behind-{seed}")  # noqa: S311
        left, right = disordered(chance), disordered(chance, first=100)
        one, two = stream("left"), stream("right")
        pairs, windows = ListSink(), ListSink()
        join = keyed(one).join(
            keyed(two), lambda a, b: (a and a[2], b and b[2]), window=Interval(4, 6), how="outer"
        )
        counts = join.window(Tumbling(10)).count()
        flow = join.sink(pairs).also(counts.sink(windows))

        outcome = run_flow(flow, {"left": left, "right": right}, **way(chance))

        places = [(result.key, result.start) for result in outcome.of(windows)]
        assert len(set(places)) == len(places), seed
        assert sum(result.value for result in outcome.of(windows)) == len(outcome.of(pairs)), seed


# Crashes: every window of every commit.

EVENTS = disordered(random.Random("crashes"))  # noqa: S311
OTHERS = disordered(random.Random("others"), first=100)  # noqa: S311
WINDOWS: dict[str, Callable[[KeyedStream[Any, Any]], Stream[Any]]] = {
    "offset": lambda by_key: numbered(by_key.window(Tumbling(10, 3))),
    "sliding-offset": lambda by_key: numbered(by_key.window(Sliding(12, 4, 3))),
    "calendar": lambda by_key: numbered(by_key.window(Calendar("day", "Europe/Berlin"))),
    "early": lambda by_key: by_key.window(Tumbling(10), early_every=3).count(),
    "late": lambda by_key: by_key.window(Tumbling(10), late_for=20).count(),
    "both": lambda by_key: by_key.window(Sliding(12, 4), early_every=2, late_for=5).count(),
}


@pytest.mark.parametrize("groups", [None, 2])
@pytest.mark.parametrize("name", WINDOWS)
def test_a_crash_changes_no_window(name: str, groups: int | None) -> None:
    flow = WINDOWS[name](keyed(stream(lateness=3), groups)).sink(ListSink())

    # Windows that close at once are in no order among keys.
    outcome = check_flow(flow, {"in": EVENTS}, batch=3, key=lambda result: result.key)

    assert outcome.of()


@pytest.mark.parametrize("window", [Tumbling(10), Calendar("day"), Interval(4, 6), Interval(0, 0)], ids=repr)
@pytest.mark.parametrize("how", JOINS)
def test_a_crash_changes_no_join(window: Any, how: Any) -> None:
    one, two = keyed(stream("left", 3)), keyed(stream("right", 3))
    flow = one.join(two, lambda a, b: (a and a[2], b and b[2]), window=window, how=how).sink(ListSink())

    outcome = check_flow(flow, {"left": EVENTS, "right": OTHERS}, batch=3)

    assert outcome.of()


def test_a_sink_that_replaces_by_key_keeps_the_newest_update() -> None:
    updates = keyed(stream()).window(Tumbling(10), early_every=2, late_for=10).sum(lambda event: event[2])
    latest = updates.map(lambda update: ((update.key, update.start), (update.value, update.timing)))
    flow = latest.sink(TableSink())

    outcome = run_flow(flow, {"in": [("a", 1, 1), ("a", 5, 2), ("a", 12, 4), ("a", 3, 8), ("b", 40, 1)]})

    assert outcome.table()["a", 0.0] == (11, "late")


# Refusals.


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Tumbling(10, 10), "offset_seconds is 10; allowed: from 0 to less than 10"),
        (lambda: Sliding(10, 5, -1), "offset_seconds is -1"),
        (lambda: Calendar("hour"), "'hour' is no unit of a calendar; allowed: day, week, month, year"),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - Refused.
        (lambda: Calendar("day", "Mars/Base"), "'Mars/Base' is no time zone"),
        (lambda: Interval(-5, 3), "is empty"),
    ],
)
def test_windows_that_mean_nothing_are_refused(make: Any, told: str) -> None:
    with pytest.raises(GraphRefused, match=told):
        make()


def test_what_cannot_fire_or_join_is_refused() -> None:
    by_key = keyed(stream())
    with pytest.raises(GraphRefused, match="a session may still grow"):
        by_key.window(Session(5), early_every=3)  # type: ignore[call-overload] # pyright: ignore[reportCallIssue, reportArgumentType] - Refused.
    with pytest.raises(GraphRefused, match="'cross'; allowed: inner, left, right, outer"):
        by_key.join(by_key, lambda a, b: a, window=Tumbling(10), how="cross")  # type: ignore[call-overload] # pyright: ignore[reportCallIssue, reportArgumentType] - Refused.
    untimed = Flow("f").source(IterableSource([])).key_by(lambda event: event[0])
    with pytest.raises(GraphRefused, match="works in event time"):
        run_flow(untimed.window(Tumbling(5), late_for=1).count().sink(ListSink()), {"iterable": []})
