"""Durations in the interface: a `timedelta`, or a number of seconds."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TypeAlias

from fencepost.errors import InvalidInput

Duration: TypeAlias = timedelta | float


def seconds_of(option: str, value: Duration) -> float:
    """The duration in seconds. Refuses one that is negative or not finite, and names the option."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not math.isfinite(seconds) or seconds < 0:
        raise InvalidInput(
            f"{option} is {seconds:g} s; give a timedelta or a number of seconds that is finite and not "
            "negative.",
            field=option,
        )
    return float(seconds)


def positive_seconds_of(option: str, value: Duration) -> float:
    """The same for a duration that must be longer than zero."""
    seconds = seconds_of(option, value)
    if seconds == 0:
        raise InvalidInput(f"{option} is 0 s; it must be longer than that.", field=option)
    return seconds


def optional_seconds_of(option: str, value: Duration | None) -> float | None:
    """The same for one that may be left out."""
    return None if value is None else positive_seconds_of(option, value)
