"""When a schedule ticks: pure functions on timestamps. The current time comes from the database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from fencepost.errors import InvalidInput
from fencepost.kernel.schedule import Due

_EVERY = "every "
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEARER_AND_NEARER = tuple(timedelta(hours=hours) for hours in (1, 24, 32 * 24, 366 * 24))


class Schedulable(Protocol):
    def after(self, moment: datetime) -> datetime:
        """The first tick after the given time."""
        ...


@dataclass(frozen=True, slots=True)
class CronCalendar:
    """A cron expression in a time zone. Clock changes are treated as Debian's cron treats them."""

    expression: str
    zone: ZoneInfo

    def after(self, moment: datetime) -> datetime:
        return next(CronSim(self.expression, moment.astimezone(self.zone))).astimezone(UTC)

    def in_words(self) -> str:
        """`0 3 * * *` is "At 03:00 every day"."""
        return str(CronSim(self.expression, _EPOCH).explain())


@dataclass(frozen=True, slots=True)
class Interval:
    """A fixed interval, counted from 1970, so that all nodes compute the same ticks."""

    every: timedelta

    def after(self, moment: datetime) -> datetime:
        return _EPOCH + ((moment - _EPOCH) // self.every + 1) * self.every


def every(seconds: float) -> str:
    """The expression of an interval."""
    if not 1 <= seconds <= 366 * 86_400:
        raise InvalidInput(
            f"interval is {seconds:g} s; it must lie between 1 second and a year.", field="interval"
        )
    return f"{_EVERY}{f'{seconds:.6f}'.rstrip('0').rstrip('.')}s"


def parse_cron(expression: str, zone: str) -> Schedulable:
    """The schedule of an expression. Raises InvalidInput for one that never matches."""
    try:
        known = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        # OSError: zones are files, and not every text is a valid file name.
        raise InvalidInput(f"{zone!r} is no time zone; write one like Europe/Berlin.", field="zone") from None
    try:
        if expression.startswith(_EVERY):
            seconds = float(expression.removeprefix(_EVERY).removesuffix("s"))
            every(seconds)
            return Interval(timedelta(seconds=seconds))
        calendar = CronCalendar(expression, known)
        calendar.after(_EPOCH)
    except (CronSimError, ValueError, OverflowError) as error:
        raise InvalidInput(f"{expression!r} is no cron expression: {error}.", field="expression") from None
    except StopIteration:
        raise InvalidInput(f"Cron expression {expression!r} never matches.", field="expression") from None
    return calendar


@dataclass(frozen=True, slots=True)
class TickPlan:
    """The ticks to take now, and the next tick."""

    ticks: tuple[datetime, ...]
    next_tick: datetime


def plan(due: Due, schedule: Schedulable, *, ticks_max: int) -> TickPlan:
    """Which of the ticks that are due are taken.

    once   only the latest: a report of this morning need not be made five times
    all    each of them, at most `ticks_max` at a time
    skip   those that are not older than the grace: a late tick is of no use
    """
    if due.missed == "all":
        ticks = _at_most(ticks_max, due.next_tick, due.now, schedule)
        return TickPlan(ticks, schedule.after(ticks[-1]))
    if due.missed == "once":
        return TickPlan((_latest(due, schedule),), schedule.after(due.now))
    oldest = due.now - due.grace
    first = due.next_tick if due.next_tick >= oldest else schedule.after(oldest - timedelta(microseconds=1))
    return TickPlan(_at_most(ticks_max, first, due.now, schedule), schedule.after(due.now))


def _latest(due: Due, schedule: Schedulable) -> datetime:
    """The last tick that is due. Searches near the present first: years of minutes take long to enumerate."""
    for reach in _NEARER_AND_NEARER:
        if due.now - reach <= due.next_tick:
            break
        ticks = tuple(_walk(schedule.after(due.now - reach), due.now, schedule))
        if ticks:
            return ticks[-1]
    *_, last = _walk(due.next_tick, due.now, schedule)
    return last


def _at_most(count: int, first: datetime, until: datetime, schedule: Schedulable) -> tuple[datetime, ...]:
    return tuple(tick for tick, _ in zip(_walk(first, until, schedule), range(count), strict=False))


def _walk(first: datetime, until: datetime, schedule: Schedulable) -> Iterator[datetime]:
    tick = first
    while tick <= until:
        yield tick
        tick = schedule.after(tick)
