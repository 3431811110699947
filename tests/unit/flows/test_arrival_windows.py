"""Windows in processing time: by a clock that never goes back, and each record in one window, once."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from fencepost.flows import (
    Flow,
    GraphRefused,
    IterableSource,
    ListSink,
    Session,
    Sliding,
    TableSink,
    Tumbling,
)
from fencepost.flows._windows import Window
from fencepost.testing import check_flow, run_flow
from tests.unit.flows import window_reference as reference
from tests.unit.flows.test_lateness import disordered, keyed, numbered, told
from tests.unit.flows.window_reference import Answer, Event

CASES = [pytest.param(90, id="quick"), pytest.param(900, id="full", marks=pytest.mark.full)]
WINDOWS: dict[str, tuple[Window, Callable[[list[Event]], Answer]]] = {
    "tumbling": (Tumbling(10), lambda events: reference.of_fixed(events, 0, 10, 10)),
    "sliding": (Sliding(12, 4), lambda events: reference.of_fixed(events, 0, 12, 4)),
    "session": (Session(5), lambda events: reference.of_sessions(events, 0, 5)),
}


def untimed() -> Any:
    return Flow("f").source(IterableSource([], name="in"))


@pytest.mark.parametrize("cases", CASES)
@pytest.mark.parametrize("kind", WINDOWS)
def test_windows_have_what_was_processed_within_them(kind: str, cases: int) -> None:
    window, expected = WINDOWS[kind]
    for seed in range(cases):
        chance = random.Random(f"arrival-{kind}-{seed}")  # noqa: S311
        # The times of these events are what the clock shows; where it goes back, it stands still.
        events = disordered(chance)
        clock = iter([time for _, time, _ in events]).__next__
        by_key = keyed(untimed(), chance.choice((None, 2)))
        flow = numbered(by_key.window(window, by="arrival")).sink(ListSink())

        outcome = run_flow(
            flow,
            {"in": events},
            batch=1,
            restart_every=chance.choice((None, 1, 3)),
            clock=clock,
        )
        arrived, latest = list[Event](), 0
        for key, time, number in events:
            latest = max(latest, time)
            arrived.append((key, latest, number))

        assert told(outcome.of()) == expected(arrived).told, (seed, events)


@pytest.mark.parametrize("window", [Tumbling(3), Session(2)], ids=repr)
def test_a_crash_counts_each_record_once(window: Any) -> None:
    """Which window it is in depends on the run; the sum over all windows does not."""
    events = disordered(random.Random("crash"))  # noqa: S311
    shown = iter(range(10_000))
    counts = keyed(untimed()).window(window, by="arrival").count()
    totals = counts.key_by(lambda result: result.key).sum(lambda result: result.value)
    flow = totals.sink(TableSink())

    for at in ("before_fence", "before_commit", "after_commit"):
        outcome = run_flow(
            flow, {"in": events}, batch=2, clock=lambda: next(shown), crash_at=f"flows.commit.{at}", nth=None
        )
        assert outcome.table() == Counter(key for key, _, _ in events)
    check_flow(flow, {"in": events}, batch=2)


def test_it_needs_no_event_time_and_takes_no_early_firing() -> None:
    by_key = keyed(untimed())
    with pytest.raises(GraphRefused, match="allowed: 'event' or 'arrival'"):
        by_key.window(Tumbling(5), by="noon")  # type: ignore[call-overload] # pyright: ignore[reportCallIssue, reportArgumentType] - Refused.
    with pytest.raises(GraphRefused, match="no late records"):
        by_key.window(Tumbling(5), by="arrival", late_for=5)  # type: ignore[call-overload] # pyright: ignore[reportCallIssue, reportArgumentType] - Refused.
