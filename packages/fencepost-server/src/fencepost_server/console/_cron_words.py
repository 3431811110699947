"""The expression of a schedule in words."""

from __future__ import annotations

from fencepost.errors import InvalidInput
from fencepost.jobs._cron import CronCalendar, Interval, parse_cron
from fencepost_server.web.formatting import duration
from fencepost_server.web.words import say


def in_words(expression: str, zone: str) -> str:
    """`0 3 * * *` is "At 03:00 every day, Europe/Berlin". What cannot be parsed stays as it is."""
    try:
        schedule = parse_cron(expression, zone)
    except InvalidInput:
        return expression
    if isinstance(schedule, Interval):
        return say("Every {total_seconds}", total_seconds=duration(schedule.every.total_seconds()))
    return f"{schedule.in_words()}, {zone}" if isinstance(schedule, CronCalendar) else expression
