"""Which windows a moment belongs to, and in which order the records of several partitions come."""

import pytest

from fencepost.flows._errors import GraphRefused
from fencepost.flows._merge import TimeMerge
from fencepost.flows._value_codec import flat, unpack
from fencepost.flows._windows import Session, Sliding, Tumbling


@pytest.mark.parametrize(
    ("time", "starts"),
    [(0, [0, -5]), (4, [0, -5]), (5, [5, 0]), (9.5, [5, 0]), (10, [10, 5]), (-1, [-5, -10])],
)
def test_a_moment_belongs_to_every_window_that_has_begun_and_not_ended(
    time: float, starts: list[float]
) -> None:
    assert list(Sliding(10, 5).starts(time)) == starts
    assert list(Tumbling(10).starts(time)) == [time // 10 * 10]


def test_a_step_may_be_as_long_as_the_window_and_no_window_is_empty() -> None:
    assert list(Sliding(10, 10).starts(10)) == [10]
    for make in (lambda: Sliding(0, 1), lambda: Sliding(1, 0), lambda: Tumbling(0), lambda: Session(-1)):
        with pytest.raises(GraphRefused, match="must be more than 0"):
            make()
    assert Session(0.1).gap_seconds == 0.1


def record(value: str, time: float | None, at: int = 0) -> tuple[str, str, float | None, int]:
    return value, "key", time, at


def released(merge: TimeMerge, watermark: float) -> list[tuple[int, list[str]]]:
    return [(input_number, [one[0] for one in batch]) for input_number, batch in merge.release(watermark)]


def test_records_wait_for_the_watermark_and_come_by_time_then_sender_then_place() -> None:
    merge = TimeMerge()
    merge.add("b", 0, [record("b0", 5), record("b1", 3)])
    merge.add("a", 0, [record("a0", 5), record("a1", 5)])
    merge.add("a", 1, [record("a2", 5), record("a3", 7)])
    merge.add("b", 1, [record("b2", None)])

    assert len(merge) == 7
    assert released(merge, 3) == [(1, ["b2"])]
    assert released(merge, 3) == []
    assert released(merge, 6) == [(0, ["b1", "a0", "a1"]), (1, ["a2"]), (0, ["b0"])]
    assert len(merge) == 1
    assert released(merge, 7) == [], "who lies on the watermark may have a fellow still"
    assert released(merge, 8) == [(1, ["a3"])]
    assert len(merge) == 0


def test_a_merge_comes_back_as_it_was_stored_and_goes_on_counting() -> None:
    merge = TimeMerge()
    merge.add("a", 0, [record("a0", 5), record("a1", 5)])
    merge.add("b", 1, [record("b0", 5)])
    assert merge.dump([False, True])[0] == {"a": 2, "b": 1}
    stored = unpack(flat(merge.dump([False, True])))
    assert [waiting[:4] for waiting in stored[1]] == [[5, "a", 0, 0], [5, "a", 1, 0], [5, "b", 0, 1]]

    again = TimeMerge()
    again.load(stored, [str.upper, str.title], {0: 0, 1: 1})
    again.add("a", 0, [record("a2", 5)])

    assert released(again, 6) == [(0, ["A0", "A1", "a2"]), (1, ["B0"])]


def test_a_merge_stores_what_came_since_and_drops_what_was_released() -> None:
    merge, again = TimeMerge(), TimeMerge()
    merge.add("a", 0, [record(f"a{n}", n) for n in range(100)])
    whole = merge.dump([False])
    merge.clean()
    merge.release(90)
    merge.add("a", 0, [record("late", 1), record("new", 95)])
    change = merge.dump([False], whole=False)
    merge.clean()
    unmoved = merge.dump([False], whole=False)

    assert [len(stored[1]) for stored in (whole, change, unmoved)] == [100, 2, 0]
    for stored, watermark in ((whole, float("-inf")), (change, 90.0), (unmoved, float("-inf"))):
        again.load(unpack(flat(stored)), [str], {0: 0}, watermark)
    assert len(again) == len(merge) == 12
    assert released(again, 96) == released(merge, 96)
