"""Charts: from figures to the geometry of an SVG. No I/O.

Lines differ by dash and by name, not by colour alone; a table below each chart has the figures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from fencepost_server.web.formatting import duration
from fencepost_server.web.words import say

WIDTH, HEIGHT = 640.0, 180.0
TOP, BOTTOM = 8.0, 8.0
TICKS = 4
# The number of dash styles in app.css: more lines could not be told apart.
STYLES = 6
OTHER = "other"
Figures = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Tick:
    place: float
    label: str


@dataclass(frozen=True, slots=True)
class ChartLine:
    name: str
    number: int
    path: str
    values: Figures
    last: str


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart: its lines as SVG paths, its axes, and the figures themselves."""

    title: str
    unit: str
    times: Sequence[datetime]
    lines: Sequence[ChartLine]
    ticks: Sequence[Tick]
    summary: str

    @property
    def is_empty(self) -> bool:
        return not any(value is not None for line in self.lines for value in line.values)


def draw(title: str, unit: str, times: Sequence[datetime], series: Mapping[str, Figures]) -> Chart:
    """Draw figures over time, one for each time; a time without a figure is a gap."""
    assert len(series) <= STYLES, "two lines of one chart would look the same"
    most = max((value for values in series.values() for value in values if value is not None), default=0.0)
    top = ceiling(most)
    lines = tuple(
        ChartLine(say(name), number, _path(values, top), values, figure(_last(values), unit))
        for number, (name, values) in enumerate(series.items())
    )
    ticks = tuple(
        Tick(_y(top * step / TICKS, top), figure(top * step / TICKS, unit)) for step in range(TICKS + 1)
    )
    title = say(title)
    summary = f"{title}: " + "; ".join(
        say("{name} {last} at last", name=line.name, last=line.last) for line in lines
    )
    return Chart(title, unit, times, lines, ticks, summary)


def ceiling(most: float) -> float:
    """The least round number (1, 2 or 5 times a power of ten) that no figure exceeds, so that ticks are round
    too."""
    if most <= 0:
        return 1.0
    magnitude = 10.0 ** math.floor(math.log10(most))
    return next(step * magnitude for step in (1, 2, 4, 8, 10) if step * magnitude >= most * 0.999_999)


def figure(value: float | None, unit: str) -> str:
    if value is None:
        return "no figure"
    if unit == "s":
        return duration(value)
    # Three digits distinguish every tick of a round scale from its neighbours.
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def bar(measured: float, goal: float) -> tuple[float, float]:
    """How far a bar is filled, and where its goal is, in percent of the larger of the two."""
    top = max(measured, goal) if max(measured, goal) > 0 else 1.0
    return round(100 * max(0.0, measured) / top, 1), round(100 * goal / top, 1)


def growth(cumulative: Sequence[Mapping[str, int] | None]) -> dict[str, list[float | None]]:
    """The increases between consecutive readings of counters that only grow. A counter that decreased was
    reset."""
    names = sorted({name for counts in cumulative for name in counts or {}})
    grown: dict[str, list[float | None]] = {name: [] for name in names}
    before: Mapping[str, int] | None = None
    for counts in cumulative:
        for name in names:
            if counts is None or before is None:
                grown[name].append(None)
                continue
            now, then = counts.get(name, 0), before.get(name, 0)
            grown[name].append(float(now - then if now >= then else now))
        before = counts if counts is not None else before
    return {name: values for name, values in grown.items() if any(values)}


def largest(series: Mapping[str, Figures]) -> dict[str, Figures]:
    """As many series as can be told apart, the largest first; the rest are added up as one more line."""
    by_size = sorted(series, key=lambda name: -sum(value or 0 for value in series[name]))
    if len(by_size) <= STYLES:
        return {name: series[name] for name in by_size}
    shown, rest = by_size[: STYLES - 1], by_size[STYLES - 1 :]
    return {**{name: series[name] for name in shown}, OTHER: _added([series[name] for name in rest])}


def _added(columns: Sequence[Figures]) -> Figures:
    """The sums per time; a time without any figure has none."""
    return [
        sum(value for value in at if value is not None) if any(value is not None for value in at) else None
        for at in zip(*columns, strict=True)
    ]


def _last(values: Figures) -> float | None:
    return next((value for value in reversed(values) if value is not None), None)


def _path(values: Figures, top: float) -> str:
    """The SVG path of a line; a gap interrupts it."""
    step = WIDTH / max(1, len(values) - 1)
    commands: list[str] = []
    down = False
    for index, value in enumerate(values):
        if value is None:
            down = False
            continue
        x, y = index * step, _y(value, top)
        commands.append(f"{'L' if down else 'M'}{x:.1f} {y:.1f}")
        if not down:
            # A single point is drawn as a dot.
            commands.append(f"l0.1 0M{x:.1f} {y:.1f}")
        down = True
    return "".join(commands)


def _y(value: float, top: float) -> float:
    return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top), 1)
