"""Late means that the window is closed: random streams, compared with windows by their definition."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from fencepost.flows import Flow, IterableSource, ListSink, Session, Sliding, Tumbling
from fencepost.flows._graph import KeyedStream, Stream, Windowed
from fencepost.flows._windows import Window
from fencepost.testing import run_flow
from tests.unit.flows import window_reference as reference
from tests.unit.flows.window_reference import Answer, Event

CASES = 900


def stream(name: str = "in", lateness: float = 0) -> Stream[Any]:
    source = Flow("f").source(IterableSource([], name=name))
    return source.event_time(lambda event: event[1], allowed_lateness=lateness)


def keyed(events: Stream[Any], groups: int | None = None) -> KeyedStream[Any, Any]:
    return events.key_by(lambda event: event[0], groups=groups)


def numbered(windowed: Windowed[Any, Any, Any]) -> Stream[Any]:
    """Which records a window has."""
    return windowed.fold(list[int], lambda found, event: [*found, event[2]])


def disordered(chance: random.Random, first: int = 0) -> list[Event]:
    """Times that advance, with records that come late by a little or a lot."""
    time, events = 0.0, list[Event]()
    for number in range(chance.randint(0, 24)):
        time += chance.choice((0, 1, 3, 8))
        back = chance.choice((0, 0, 0, 2, 6, 15, 40))
        events.append((chance.choice("ab"), max(0, int(time) - back), first + number))
    return events


def way(chance: random.Random) -> dict[str, Any]:
    return {
        "batch": chance.choice((1, 2, 5, 100)),
        "seed": chance.randint(0, 9),
        "restart_every": chance.choice((None, 1, 3)),
    }


WINDOWS: dict[str, tuple[Window, Callable[[list[Event], float], Answer]]] = {
    "tumbling": (Tumbling(10), lambda events, lateness: reference.of_fixed(events, lateness, 10, 10)),
    "sliding": (Sliding(12, 4), lambda events, lateness: reference.of_fixed(events, lateness, 12, 4)),
    "session": (Session(5), lambda events, lateness: reference.of_sessions(events, lateness, 5)),
}


def told(results: list[Any]) -> list[Any]:
    """Sessions that begin and end alike are told one by one, and counted as one here and there."""
    together: dict[Any, list[int]] = {}
    for result in results:
        together.setdefault((result.key, result.start, result.end), []).extend(result.value)
    return sorted((*place, sorted(numbers)) for place, numbers in together.items())


@pytest.mark.parametrize("kind", WINDOWS)
def test_windows_have_what_their_definition_says_and_late_has_the_rest(kind: str) -> None:
    window, expected = WINDOWS[kind]
    lates = 0
    for seed in range(CASES):
        chance = random.Random(f"{kind}-{seed}")  # noqa: S311
        events, lateness = disordered(chance), chance.choice((0, 0, 3, 7))
        timed = stream(lateness=lateness)
        results, late = ListSink(), ListSink()
        by_key = keyed(timed, groups=chance.choice((None, 2)))
        flow = numbered(by_key.window(window)).sink(results).also(timed.late.sink(late))

        outcome = run_flow(flow, {"in": events}, **way(chance))
        answer = expected(events, lateness)

        assert told(outcome.of(results)) == answer.told, (seed, events)
        assert sorted(event[2] for event in outcome.of(late)) == sorted(answer.late), (seed, events)
        lates += len(answer.late)
    assert lates > CASES / 10, "hardly a record was late: nothing was shown"


def test_joins_have_every_pair_of_a_window_and_late_has_the_rest() -> None:
    found = 0
    for seed in range(CASES):
        chance = random.Random(f"join-{seed}")  # noqa: S311
        left, right = disordered(chance), disordered(chance, first=100)
        lateness = chance.choice((0, 3, 7))
        one, two = stream("left", lateness), stream("right", lateness)
        pairs, early, later = ListSink(), ListSink(), ListSink()
        join = keyed(one).join(keyed(two), lambda a, b: (a[2], b[2]), window=Tumbling(10))
        flow = join.sink(pairs).also(one.late.sink(early), two.late.sink(later))

        outcome = run_flow(flow, {"left": left, "right": right}, **way(chance))
        expected, late = reference.of_join(left, right, lateness, 10)

        assert sorted(outcome.of(pairs)) == expected, (seed, left, right)
        given = [*outcome.of(early), *outcome.of(later)]
        assert sorted(event[2] for event in given) == late, (seed, left, right)
        found += len(expected)
    assert found > CASES


@pytest.mark.parametrize("other", [Sliding(40, 20), Session(5)], ids=repr)
def test_a_record_that_another_window_still_takes_is_not_late(other: Window) -> None:
    """Two windows over one stream: late is what neither of them takes, and it comes once."""
    for seed in range(CASES // 3):
        chance = random.Random(f"two-{other}-{seed}")  # noqa: S311
        events = disordered(chance)
        timed = stream()
        small, large, late = ListSink(), ListSink(), ListSink()
        by_key = keyed(timed)
        flow = numbered(by_key.window(Tumbling(10))).sink(small)
        flow = flow.also(numbered(by_key.window(other)).sink(large), timed.late.sink(late))

        outcome = run_flow(flow, {"in": events}, **way(chance))
        first = reference.of_fixed(events, 0, 10, 10)
        is_session = isinstance(other, Session)
        second = reference.of_sessions(events, 0, 5) if is_session else reference.of_fixed(events, 0, 40, 20)

        assert told(outcome.of(small)) == first.told, (seed, events)
        assert told(outcome.of(large)) == second.told, (seed, events)
        neither = sorted(set(first.late) & set(second.late))
        assert sorted(event[2] for event in outcome.of(late)) == neither, (seed, events)


def test_a_late_record_is_what_event_time_saw() -> None:
    """Whatever the steps between made of it."""
    timed = stream()
    late = ListSink()
    doubled = keyed(timed.map(lambda event: (event[0], event[1], 2 * event[2])))
    flow = doubled.window(Session(5)).count().sink(ListSink()).also(timed.late.sink(late))

    outcome = run_flow(flow, {"in": [("a", 0, 1), ("a", 50, 2), ("a", 1, 3)]}, restart_every=1, batch=1)

    assert outcome.of(late) == [("a", 1, 3)]


def test_a_flow_without_windows_calls_late_what_lies_behind_the_watermark() -> None:
    timed = stream(lateness=5)
    kept, late = ListSink(), ListSink()
    flow = timed.sink(kept).also(timed.late.sink(late))

    outcome = run_flow(flow, {"in": [("a", 20, 1), ("a", 15, 2), ("a", 14, 3)]})

    assert [event[2] for event in outcome.of(kept)] == [1, 2]
    assert [event[2] for event in outcome.of(late)] == [3]
