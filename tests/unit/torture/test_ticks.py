"""Which ticks there must have been, worked out beside the scheduler and not by it."""

from datetime import UTC, datetime, timedelta

from fencepost.jobs._cron import every, parse_cron
from fencepost_torture._ticks import EPOCH, Ticks, microseconds

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
START = microseconds(NOON)
TICKS = Ticks(1300)


def key(moment: int) -> str:
    return f"every-1300@{moment}"


def test_the_ticks_are_those_of_the_schedule_by_another_way() -> None:
    schedule = parse_cron(every(1.3), "UTC")
    found, moment = list[int](), NOON
    while (moment := schedule.after(moment)) <= NOON + timedelta(minutes=1):
        found.append(microseconds(moment))

    assert list(TICKS.between(START, microseconds(NOON + timedelta(minutes=1)))) == found
    assert len(found) == 46


def test_a_tick_at_the_end_counts_and_one_at_the_beginning_does_not() -> None:
    first, second = TICKS.between(START, START + 2_600_000)

    assert list(TICKS.between(first, second)) == [second]
    assert list(TICKS.between(first, second - 1)) == []
    assert microseconds(EPOCH) == 0


def test_what_is_due_begins_with_the_first_that_was_done() -> None:
    first, second, third, fourth = TICKS.between(START, START + 5_200_000)

    assert TICKS.due([], second, fourth) == {key(third), key(fourth)}
    assert TICKS.due([key(first)], second, third) == {key(first), key(second), key(third)}
    assert TICKS.due([key(third)], START, third) == {key(first), key(second), key(third)}
    assert TICKS.due(["own-1-1", f"every-1000@{first}", key(first + 1)], second, third) == {key(third)}
