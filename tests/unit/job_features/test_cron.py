"""When schedules tick: calendars, intervals, clock changes, and which missed ticks are taken."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.errors import InvalidInput
from fencepost.jobs._cron import CronCalendar, Interval, every, parse_cron, plan
from fencepost.kernel.schedule import Due, Missed

BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def due(now: datetime, next_tick: datetime, missed: Missed, *, grace_seconds: float = 0) -> Due:
    grace = timedelta(seconds=grace_seconds)
    return Due("n", "*/5 * * * *", "UTC", missed, grace, next_tick, paused=False, now=now)


def test_a_tick_is_later_than_the_moment_it_follows() -> None:
    schedule = parse_cron("*/5 * * * *", "UTC")
    assert schedule.after(NOON) == NOON + timedelta(minutes=5)
    assert schedule.after(NOON - timedelta(microseconds=1)) == NOON


def test_a_zone_says_which_hour_is_meant() -> None:
    schedule = parse_cron("0 3 * * *", "Europe/Berlin")
    assert schedule.after(utc("2030-01-10T00:00")) == utc("2030-01-10T02:00"), "winter is one hour ahead"
    assert schedule.after(utc("2030-07-10T00:00")) == utc("2030-07-10T01:00"), "summer is two"


def ticks(schedule: CronCalendar, start: datetime, end: datetime) -> list[datetime]:
    found: list[datetime] = []
    moment = start
    while (moment := schedule.after(moment)) <= end:
        found.append(moment)
    return found


@pytest.mark.parametrize(
    ("day", "expected"),
    [
        ("2030-03-31", ["2030-03-31T01:00"]),  # 02:30 does not exist: it fires when the gap has passed.
        ("2030-10-27", ["2030-10-27T00:30"]),  # 02:30 exists twice: it fires once.
    ],
)
def test_a_clock_change_neither_loses_nor_doubles_a_daily_tick(day: str, expected: list[str]) -> None:
    start = utc(f"{day}T00:00") - timedelta(hours=3)
    found = ticks(CronCalendar("30 2 * * *", BERLIN), start, start + timedelta(hours=24))
    assert found == [utc(moment) for moment in expected]


def test_an_interval_means_the_same_moments_everywhere() -> None:
    schedule = parse_cron(every(90), "UTC")
    assert schedule.after(NOON) == schedule.after(NOON + timedelta(seconds=89))
    assert isinstance(schedule, Interval)


@given(st.integers(1, 86_400), st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1)))  # noqa: DTZ001
def test_ticks_of_an_interval_are_one_interval_apart(seconds: int, naive: datetime) -> None:
    schedule, moment = parse_cron(every(seconds), "UTC"), naive.replace(tzinfo=UTC)
    tick = schedule.after(moment)
    assert moment < tick <= moment + timedelta(seconds=seconds)
    assert schedule.after(tick) - tick == timedelta(seconds=seconds)
    assert tick.timestamp() % seconds == 0


@pytest.mark.parametrize(
    ("seconds", "text"), [(30, "every 30s"), (1.5, "every 1.5s"), (1_234_567, "every 1234567s")]
)
def test_an_interval_is_written_exactly(seconds: float, text: str) -> None:
    assert every(seconds) == text
    schedule = parse_cron(text, "UTC")
    assert schedule == Interval(timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("expression", "zone", "field"),
    [
        ("61 * * * *", "UTC", "expression"),
        ("soon", "UTC", "expression"),
        ("every now", "UTC", "expression"),
        ("* * 30 2 *", "UTC", "expression"),
        ("* * * * *", "Europe/Atlantis", "zone"),
        ("* * * * *", "../etc/passwd", "zone"),
    ],
)
def test_what_names_no_moment_is_refused(expression: str, zone: str, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_cron(expression, zone)
    assert refused.value.field == field


@pytest.mark.parametrize("seconds", [0, 0.5, -1, float("nan"), 1e12])
def test_an_interval_is_a_second_at_least(seconds: float) -> None:
    with pytest.raises(InvalidInput):
        every(seconds)


@pytest.mark.parametrize(
    ("missed", "grace_seconds", "taken"),
    [
        ("once", 0, [20]),
        ("all", 0, [5, 10, 15, 20]),
        ("skip", 0, []),
        ("skip", 180, [20]),
        ("skip", 600, [15, 20]),
        ("skip", 86_400, [5, 10, 15, 20]),
    ],
)
def test_which_ticks_are_taken(missed: Missed, grace_seconds: int, taken: list[int]) -> None:
    asked = due(
        NOON + timedelta(minutes=23),
        NOON + timedelta(minutes=5),
        missed,
        grace_seconds=grace_seconds,
    )
    planned = plan(asked, parse_cron("*/5 * * * *", "UTC"), ticks_max=100)
    assert planned.ticks == tuple(NOON + timedelta(minutes=number) for number in taken)
    assert planned.next_tick == NOON + timedelta(minutes=25)


def test_so_many_at_a_time_and_the_rest_next_time() -> None:
    schedule = parse_cron("* * * * *", "UTC")
    asked = due(NOON + timedelta(minutes=100), NOON, "all")
    planned = plan(asked, schedule, ticks_max=10)
    assert len(planned.ticks) == 10
    assert planned.next_tick == NOON + timedelta(minutes=10)


@pytest.mark.parametrize("expression", ["* * * * *", "0 * * * *", "0 0 * * *", "0 0 1 * *", "0 0 29 2 *"])
def test_the_latest_of_years_is_found(expression: str) -> None:
    schedule = parse_cron(expression, "UTC")
    first, now = schedule.after(utc("2020-06-15T00:00")), utc("2030-06-15T13:37")
    planned = plan(due(now, first, "once"), schedule, ticks_max=10)
    [tick] = planned.ticks
    assert first <= tick <= now < planned.next_tick
    assert schedule.after(tick) == planned.next_tick, "there is none between the latest and the next"
