"""Formats figures, times and addresses for pages."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

from markupsafe import Markup

from fencepost_server.web.words import say

NO_FIGURE = "none"
_BELOW = {"d": "h", "h": "min", "min": "s"}
_RATES = ((1, "s"), (60, "min"), (3600, "h"))


def moment(value: datetime | str | None) -> Markup:
    """A time that the browser shows in its own zone; the exact instant is in its title."""
    if value is None:
        return Markup('<span class="none">{}</span>').format(say("never"))
    when = datetime.fromisoformat(value) if isinstance(value, str) else value
    exact = when.isoformat()
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        exact,
        exact,
        when.strftime("%Y-%m-%d %H:%M:%S UTC" if not when.utcoffset() else "%Y-%m-%d %H:%M:%S %z"),
    )


def span(value: float | timedelta | None) -> str:
    """A duration for people, or the sign for no figure."""
    if value is None:
        return say(NO_FIGURE)
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    return duration(max(0.0, seconds))


def duration(seconds: float) -> str:
    """0.0032 is 3.2 ms; 75 is 1 min 15 s."""
    if seconds == 0:
        return "0 s"
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    for size, large, small in ((86_400, "d", 3600), (3600, "h", 60), (60, "min", 1)):
        if whole >= size:
            rest = whole % size // small
            return f"{whole // size} {large}" + (f" {rest} {_BELOW[large]}" if rest else "")
    return f"{whole} s"


def number(value: float | None) -> str:
    """A number with thousands separated, or the sign for no figure."""
    return say(NO_FIGURE) if value is None else f"{value:,}"


def rate(per_second: float | None) -> str:
    """A rate in the unit that makes it one or more: 3.2/s, 45/min, 7/h."""
    if not per_second:
        return "0"
    size, unit = next((one for one in _RATES if per_second * one[0] >= 1), _RATES[-1])
    count = per_second * size
    return f"{count:,.0f}/{unit}" if count >= 100 else f"{count:.3g}/{unit}"


def quoted(value: Any) -> str:
    """A name as one part of a path."""
    return quote(str(value), safe="")


def brief(text: str | None, most: int = 200) -> str:
    """The first line of a text, cut at a length."""
    line = (text or say("no error is recorded")).strip().partition("\n")[0]
    return line if len(line) <= most else f"{line[: most - 1]}…"


def link(path: str, **parameters: Any) -> str:
    """A path with the parameters that have a value."""
    given = {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in parameters.items()
        if value not in (None, "")
    }
    return f"{path}?{urlencode(given)}" if given else path
