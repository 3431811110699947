"""A silent partition does not hold the others back: what that means for windows, late records and replays."""

import random
from typing import Any

import pytest

from fencepost.flows import Flow, IterableSource, ListSink, Sliding, Tumbling
from fencepost.flows._frontier import Frontier, Mark
from fencepost.flows._plan import FlowPlan
from fencepost.flows._record import END
from fencepost.flows._watermarks import Silence, Watermarks
from fencepost.testing import check_flow, run_flow
from fencepost.testing._errors import PointMissed
from tests.unit.flows import firing_reference as reference
from tests.unit.flows.test_lateness import disordered, keyed, numbered, told, way

CASES = [pytest.param(90, id="quick"), pytest.param(900, id="full", marks=pytest.mark.full)]


def idle_stream(lateness: float = 0, idle_after: float | None = 30) -> Any:
    source = Flow("f").source(IterableSource([], name="in"))
    return source.event_time(lambda event: event[1], allowed_lateness=lateness, idle_after=idle_after)


@pytest.mark.parametrize("cases", CASES)
@pytest.mark.parametrize("kind", ["tumbling", "sliding", "none"])
def test_windows_and_late_records_behind_a_silence(kind: str, cases: int) -> None:
    lates = 0
    for seed in range(cases):
        chance = random.Random(f"idle-{kind}-{seed}")  # noqa: S311
        parts = [disordered(chance, first=100 * n) for n in range(chance.choice((2, 3)))]
        silent = [chance.randrange(len(p)) if p and chance.random() < 0.6 else None for p in parts]
        lateness = chance.choice((0, 3, 7))
        timed, results, late = idle_stream(lateness), ListSink(), ListSink()
        by_key = keyed(timed, groups=chance.choice((None, 2)))
        window, size, step = (Sliding(12, 4), 12, 4) if kind == "sliding" else (Tumbling(10), 10, 10)
        if kind == "none":
            flow = by_key.sink(results).also(timed.late.sink(late))
            size = step = 1
        else:
            flow = numbered(by_key.window(window)).sink(results).also(timed.late.sink(late))
        inputs = {"in": {str(n): part for n, part in enumerate(parts)}}
        silences = {f"in/{n}": [at] for n, at in enumerate(silent) if at is not None}

        outcome = run_flow(flow, inputs, silences=silences, **way(chance))

        if kind == "none":
            # A record without windows is late below the watermark: as in windows without extent.
            taken = [event[2] for event in outcome.of(results)]
            expected, too_late = reference.of_silences_without_windows(parts, silent, lateness)
            assert sorted(taken) == expected, (seed, parts, silent)
        else:
            windows, too_late = reference.of_silences(parts, silent, lateness, size, step)
            expected_windows = sorted((*place, sorted(mine)) for place, mine in windows.items())
            assert told(outcome.of(results)) == expected_windows, (seed, parts, silent)
            places = [(result.key, result.start) for result in outcome.of(results)]
            assert len(places) == len(set(places)), "a window closes once"
        assert sorted(event[2] for event in outcome.of(late)) == too_late, (seed, parts, silent)
        lates += len(too_late)
    assert lates > cases / 10


QUICK = [("a", 1, 0), ("a", 25, 1), ("a", 47, 2)]
SLOW = [("b", 3, 10), ("b", 8, 11), ("b", 60, 12)]


@pytest.mark.parametrize(("idle_after", "closed"), [(None, 1), (30, 3)])
def test_windows_close_while_a_partition_is_silent(idle_after: float | None, closed: int) -> None:
    """Without idle_after nothing closes that the silent partition may still have a record for."""
    flow = numbered(keyed(idle_stream(idle_after=idle_after)).window(Tumbling(10))).sink(ListSink())
    # The silence is broken by a record that is late: without idle_after it is not.
    slow = [SLOW[0], SLOW[1], SLOW[2]]

    outcome = run_flow(flow, {"in": {"0": QUICK, "1": slow}}, silences={"in/1": [1]}, batch=1)

    members = [number for result in outcome.of() for number in result.value]
    assert (11 in members) is (idle_after is None)
    before = next(n for n, values in enumerate(outcome.commits[0]) if any(12 in v.value for v in values))
    early = [value for values in outcome.commits[0][:before] for value in values if value.key == "a"]
    assert len(early) >= closed - 1


@pytest.mark.parametrize("groups", [None, 2])
def test_a_crash_changes_nothing_of_what_silence_decided(groups: int | None) -> None:
    for seed in range(6):
        chance = random.Random(f"idle-crash-{seed}")  # noqa: S311
        parts = [disordered(chance, first=100 * n) for n in range(3)]
        timed, late = idle_stream(3), ListSink()
        windows = numbered(keyed(timed, groups).window(Tumbling(10))).map(
            lambda result: (*result[:3], sorted(result.value))
        )
        flow = windows.sink(ListSink()).also(timed.late.sink(late))
        silences = {f"in/{n}": [len(part) // 2] for n, part in enumerate(parts[:2]) if part}

        check_flow(
            flow,
            {"in": {str(n): part for n, part in enumerate(parts)}},
            batch=3,
            seed=seed,
            silences=silences,
        )


def test_a_silence_of_nobody_is_refused() -> None:
    flow = keyed(idle_stream()).window(Tumbling(10)).count().sink(ListSink())

    with pytest.raises(PointMissed, match="in/7"):
        run_flow(flow, {"in": QUICK}, silences={"in/7": [1]})


# What a task advances to.


def test_a_silent_sender_follows_the_slowest_of_the_others() -> None:
    marks = Watermarks({"a": 10.0, "b": 20.0, "c": 30.0, "table": None}, Frontier())
    for name, at in (("b", 20.0), ("c", 30.0)):
        marks.arrived(name, at, at, silent=False)
    assert marks.lowest() == 10

    marks.arrived("a", 10.0, 10.0, silent=True)
    assert marks.settle()
    assert (marks.lowest(), marks.floor("a"), marks.stored_floor("a")) == (20, 20, 20)
    assert not marks.settle(), "nothing has moved since"

    marks.arrived("a", 12.0, 12.0, silent=False)
    assert (marks.lowest(), marks.floor("a")) == (20, 20), "what was decided stays"
    marks.arrived("a", 25.0, 25.0, silent=False)
    assert (marks.of("a"), marks.stored_floor("a")) == (25, None)


def test_when_all_are_silent_the_furthest_counts_and_an_end_moves_nobody_to_the_end_of_time() -> None:
    marks = Watermarks({"a": 0.0, "b": 20.0}, Frontier())
    marks.arrived("a", 0.0, 0.0, silent=True)
    marks.arrived("b", 20.0, 20.0, silent=True)
    assert marks.settle()
    assert marks.lowest() == 20

    marks.arrived("b", END, 35.0, silent=False)
    assert marks.settle()
    assert (marks.of("a"), marks.of("b")) == (35, END)


def test_the_decision_comes_back_with_the_frontier() -> None:
    frontier = Frontier.from_json(Frontier({"a": Mark(3, 10.0, floor=50.0), "b": Mark(9, 60.0)}).as_json())

    marks = Watermarks({"a": 10.0, "b": 60.0}, frontier)

    assert (marks.of("a"), marks.of("b"), marks.lowest()) == (50, 60, 50)
    assert frontier.as_json()["b"].keys() == {"at", "watermark", "ended", "count"}, (
        "as releases before read it"
    )


def test_silence_is_measured_from_a_read_that_found_nothing() -> None:
    now = 0.0
    silence = Silence(5.0, lambda: now)
    now = 100.0
    assert not silence.lasts(), "nothing has looked for a hundred seconds"
    now = 105.0
    assert silence.lasts()
    silence.heard()
    now = 200.0
    assert not silence.lasts()
    assert not Silence(None, lambda: now).lasts()


def test_a_source_is_idle_after_the_longest_of_its_clocks() -> None:
    def planned(*times: float | None) -> float | None:
        source = Flow("f").source(IterableSource([], name="in"))
        flows = [
            source.event_time(lambda event: event[1], idle_after=time)
            .key_by(lambda event: event[0])
            .window(Tumbling(10))
            .count(name=f"count-{n}")
            .sink(ListSink())
            for n, time in enumerate(times)
        ]
        program = FlowPlan(flows[0].also(*flows[1:]))
        return program.idle_seconds(program.sources[0])

    assert planned(5) == 5
    assert planned(5, 9) == 9
    assert planned(5, None) is None, "what it holds back for one of them it holds back"
