"""Several key_by with groups: the stages of a graph, and what flows through them, against a reference that
knows neither stages nor watermarks."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.flows import (
    Flow,
    GraphRefused,
    IterableSource,
    ListSink,
    Session,
    StartRefused,
    TableSink,
    Tumbling,
)
from fencepost.flows import _units as units
from fencepost.flows._graph import KeyedStream
from fencepost.flows._plan import FlowPlan, KeyedStage
from fencepost.flows._shuffle import value_reader
from fencepost.flows._stage_log import ROW_RECORDS, StageOutput, unpacked
from fencepost.flows._steps import Batch
from fencepost.testing import FlowBroken, check_flow, run_flow

Event = tuple[int, int, int]
"""Time, user and amount."""
LATENESS = 5


def source(name: str = "in", partitions: Sequence[str] = ("0",)) -> IterableSource:
    return IterableSource({partition: [] for partition in partitions}, name=name)


def by_user(groups: int = 4, **more: Any) -> KeyedStream[int, Event]:
    events = Flow("two").source(source(**more)).event_time(lambda e: e[0], allowed_lateness=LATENESS)
    return events.key_by(lambda e: e[1], groups=groups)


def totals(width: int = 10) -> Flow:
    """The amounts of each user in a window, and of each pair of users in one three times as wide."""
    users = by_user().window(Tumbling(width)).sum(lambda e: e[2], name="users")
    pairs = users.key_by(lambda r: r.key // 2, groups=3).window(Tumbling(3 * width))
    results = pairs.fold(lambda: (0, 0), lambda s, r: (s[0] + r.value, max(s[1], r.value)), name="pairs")
    return results.map(lambda r: (r.key, r.start, r.value)).sink(ListSink())


def expected(parts: Mapping[str, Sequence[Event]], width: int = 10) -> list[Any]:
    sums: Counter[tuple[int, int]] = Counter()
    kept = False
    for events in parts.values():
        highest = float("-inf")
        for at, user, amount in events:
            end = at // width * width + width
            if end > highest - LATENESS:
                sums[user, end] += amount
                kept = True
            highest = max(highest, at)
    assert kept or not any(parts.values()), "the first record of a partition is never late"
    pairs: dict[tuple[int, int], tuple[int, int]] = {}
    for (user, end), amount in sums.items():
        place = (user // 2, end // (3 * width) * 3 * width)
        total, most = pairs.get(place, (0, 0))
        pairs[place] = (total + amount, max(most, amount))
    return sorted((key, float(start), value) for (key, start), value in pairs.items())


EVENTS = st.lists(st.tuples(st.integers(0, 120), st.integers(0, 5), st.integers(1, 9)), max_size=40)


@settings(max_examples=300, deadline=None)
@given(
    parts=st.fixed_dictionaries({"0": EVENTS, "1": EVENTS}), batch=st.integers(1, 20), seed=st.integers(0, 9)
)
def test_windows_behind_windows_are_those_of_the_reference(
    parts: Mapping[str, Sequence[Event]], batch: int, seed: int
) -> None:
    outcome = run_flow(totals(), {"in": parts}, batch=batch, seed=seed, restart_every=3)

    assert sorted(outcome.of()) == expected(parts)


def test_a_crash_at_any_window_changes_nothing_behind_two_shuffles() -> None:
    events = [(n * 3 % 100 + n // 2, n % 6, n % 9 + 1) for n in range(120)]

    check_flow(totals(), {"in": {"0": events[::2], "1": events[1::2]}}, batch=7)


def test_steps_between_two_shuffles_do_what_one_task_does() -> None:
    """Without groups one task has both key_by; with them two stages have."""

    def flow(groups: int | None) -> Flow:
        first = Flow("two").source(source()).key_by(lambda n: n % 7, groups=groups)
        firsts = first.count(emit="each", name="first")
        second = firsts.key_by(lambda pair: pair[0] % 2, groups=groups)
        return second.sum(lambda pair: pair[1], emit="each", name="second").sink(ListSink())

    numbers = {"in": [n * n for n in range(90)]}

    assert run_flow(flow(3), numbers).of() == run_flow(flow(None), numbers).of()


async def test_the_rows_of_a_stage_come_back_as_they_were() -> None:
    program = FlowPlan(totals())
    output = StageOutput(program, units.stage_sender(program, program.stages[0], 0))
    records: Batch = [((n, {"a": n}), n, float(n), 7) for n in range(2 * ROW_RECORDS + 1)]

    rows = await output.packed([(1, records)], 8.0, ended=True)

    readers = [value_reader(border.value) for border in program.borders]
    found = [unpacked(program.inputs(), readers, row.content) for row in rows]
    assert [record[:3] for runs in found for _, batch in runs for record in batch] == [r[:3] for r in records]
    assert [(row.records, row.watermark, row.ended) for row in rows] == [
        (ROW_RECORDS, None, False),
        (ROW_RECORDS, None, False),
        (1, 8.0, True),
    ]
    renamed = [*program.inputs()[:1], "another"]
    assert [number for number, _ in unpacked(renamed, readers, rows[0].content)] == [1]
    assert unpacked([program.inputs()[0]], readers[:1], rows[0].content) == []
    [empty] = await output.packed([], 9.0, ended=False)
    assert unpacked(program.inputs(), readers, empty.content) == []


def test_a_stage_has_what_is_connected_without_a_key_by() -> None:
    program = FlowPlan(totals())

    assert [(stage.groups, stage.inputs, stage.outputs) for stage in program.stages] == [
        (4, (0,), (1,)),
        (3, (1,), ()),
    ]
    assert program.must_merge(2, program.stages[0]), "the fold of the second stage depends on the order"
    kinds = [(unit.kind, unit.resource.removeprefix("flow:two/")) for unit in units.divide(program)]
    assert [name for kind, name in kinds if kind == "group"] == [
        *(f"group/{n:04}" for n in range(4)),
        *(f"group/2-{n:04}" for n in range(3)),
    ]
    assert [name for kind, name in kinds if kind == "forward"] == [
        "source/in:0",
        *(f"source/stage-1:{n:04}" for n in range(4)),
    ]
    assert units.shape(program)["stages"] == [4, 3]
    assert "stages" not in units.shape(FlowPlan(by_user().count().sink(TableSink())))


def test_a_failing_key_by_reports_in_the_stage_before_it() -> None:
    counts = by_user().count(emit="each", name="counts")
    again = counts.key_by(lambda pair: 10 // (pair[1] - 2), groups=2)
    results, failures = ListSink(), ListSink()
    flow = again.errors.map(lambda failure: failure.value).sink(failures)
    flow = flow.also(again.count(emit="each", name="again").sink(results))

    outcome = run_flow(flow, {"in": [(n, 1, 1) for n in range(4)]})

    assert outcome.of(failures) == [(1, 2)]
    assert len(outcome.of(results)) == 3


def test_late_records_are_told_where_the_windows_are() -> None:
    """Windows by session decide what is late: here they lie in the second stage."""
    events = Flow("two").source(source()).event_time(lambda e: e[0], allowed_lateness=LATENESS)
    passed = events.key_by(lambda e: e[1], groups=4).stateful(lambda _, e: (True, [e]), name="passed")
    sessions = passed.key_by(lambda e: e[1] % 2, groups=2).window(Session(3)).count(name="sessions")
    counts, late = ListSink(), ListSink()
    flow = sessions.map(lambda r: (r.start, r.value)).sink(counts).also(events.late.sink(late))

    outcome = run_flow(flow, {"in": [(1, 0, 1), (40, 0, 1), (2, 0, 1), (36, 0, 1)]})

    assert sorted(outcome.of(counts)) == [(1.0, 1), (36.0, 1), (40.0, 1)]
    assert outcome.of(late) == [(2, 0, 1)]


@pytest.mark.parametrize("groups", [(4, None), (None, 4)])
def test_groups_at_one_key_by_only_are_refused(groups: tuple[int | None, int | None]) -> None:
    first = Flow("f").source(source()).key_by(str, groups=groups[0]).count(emit="each")

    with pytest.raises(GraphRefused, match="Give each its groups, or none"):
        FlowPlan(first.key_by(str, groups=groups[1]).count().sink(TableSink()))


def test_a_stage_that_would_send_to_itself_is_refused() -> None:
    events = Flow("f").source(source())
    keyed = events.key_by(str, groups=2)
    again = keyed.count(emit="each").key_by(str, groups=2)

    with pytest.raises(GraphRefused, match=r"come from.*key_by of its own"):
        FlowPlan(again.lookup(keyed, lambda a, b: (a, b)).sink(TableSink()))

    other = events.key_by(str, groups=2)
    FlowPlan(again.lookup(other, lambda a, b: (a, b)).sink(TableSink()))


def test_windows_of_one_event_time_on_both_sides_of_a_shuffle_are_refused() -> None:
    """Only together they know which records are late."""
    keyed = by_user()
    near = keyed.window(Tumbling(10)).count(name="near").sink(ListSink())
    passed = keyed.stateful(lambda _, e: (True, [e]), name="passed").key_by(lambda e: e[1], groups=4)

    with pytest.raises(GraphRefused, match="which records of one event_time are late"):
        FlowPlan(near.also(passed.window(Tumbling(10)).count(name="far").sink(ListSink())))


class Growing(IterableSource):
    resumes = True


def test_a_run_with_an_end_is_refused_where_a_source_goes_on_behind_it() -> None:
    def flow(given: IterableSource) -> FlowPlan:
        counts = Flow("f").source(given).key_by(str, groups=2).count(emit="each")
        return FlowPlan(counts.key_by(str, groups=2).count().sink(TableSink()))

    with pytest.raises(StartRefused, match=r"in goes on behind its end.*without --until-done"):
        units.check_bounded(flow(Growing([], name="in")))
    units.check_bounded(flow(source()))


def test_a_window_behind_a_fold_at_commits_is_refused() -> None:
    folded = by_user().count(name="counts").key_by(lambda pair: pair[0], groups=2)

    with pytest.raises(GraphRefused, match="once per commit"):
        FlowPlan(folded.window(Tumbling(10)).count(name="windows").sink(TableSink()))


def test_a_stage_that_forgets_what_it_sends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: what a stage emits when a watermark passes is left behind at the end of a turn."""
    honest = KeyedStage.take_sent

    def forgetful(stage: KeyedStage) -> Any:
        return [(number, records[:-1]) for number, records in honest(stage)]

    events = {"in": [(n, n % 6, 1) for n in range(100)]}
    monkeypatch.setattr(KeyedStage, "take_sent", forgetful)

    assert sorted(run_flow(totals(), events, batch=3).of()) != expected({"0": events["in"]})


def test_a_stage_whose_state_is_not_stored_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: the second stage stores no change of its state."""
    honest = KeyedStage.changed

    def forgetful(stage: KeyedStage) -> Any:
        found = honest(stage)
        return found if stage.stage.number == 1 else {**found, "steps": {}}

    monkeypatch.setattr(KeyedStage, "changed", forgetful)
    with pytest.raises(FlowBroken):
        check_flow(totals(), {"in": [(n, n % 6, 1) for n in range(100)]}, batch=3)
