"""Draws a soak: a panel for each figure, with its faults, as SVG without anything from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Protocol

WIDTH, HEIGHT, LEFT, GAP = 900, 90, 260, 26
GOOD, BAD, FAULT, LINE, TEXT = "#2e7d32", "#c62828", "#bdbdbd", "#1f4e79", "#333333"


class Verdict(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def early(self) -> float: ...
    @property
    def late(self) -> float: ...
    @property
    def is_flat(self) -> bool: ...


def picture(
    times: Sequence[float],
    series: Mapping[str, Sequence[float]],
    faults: Sequence[tuple[float, str]],
    verdicts: Sequence[Verdict],
) -> str:
    """One panel below another; a grey line is a fault."""
    end = max([*times, 1.0])
    height = len(verdicts) * (HEIGHT + GAP) + GAP
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 20}" height="{height}" '
            f'font-family="sans-serif" font-size="12" fill="{TEXT}">'
        ),
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, verdict in enumerate(verdicts):
        top = GAP / 2 + number * (HEIGHT + GAP)
        parts += _panel(top, end, times, series[verdict.name], faults, verdict)
    return "\n".join([*parts, "</svg>\n"])


def _panel(
    top: float,
    end: float,
    times: Sequence[float],
    values: Sequence[float],
    faults: Sequence[tuple[float, str]],
    verdict: Verdict,
) -> list[str]:
    most = max([*values, 1e-9]) * 1.05

    def place(at: float, value: float) -> str:
        return f"{LEFT + at / end * WIDTH:.1f},{top + HEIGHT - value / most * HEIGHT:.1f}"

    colour, word = (GOOD, "flat") if verdict.is_flat else (BAD, "grows")
    points = " ".join(place(at, value) for at, value in zip(times, values, strict=True))
    marks = [
        f'<line x1="{LEFT + at / end * WIDTH:.1f}" x2="{LEFT + at / end * WIDTH:.1f}" y1="{top:.1f}" '
        f'y2="{top + HEIGHT:.1f}" stroke="{FAULT}" stroke-width="0.5"><title>{escape(what)}</title></line>'
        for at, what in faults
    ]
    return [
        f'<rect x="{LEFT}" y="{top:.1f}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="{FAULT}"/>',
        *marks,
        f'<polyline points="{points}" fill="none" stroke="{LINE}" stroke-width="1.2"/>',
        f'<text x="10" y="{top + 20:.1f}" font-weight="bold">{escape(verdict.name)}</text>',
        f'<text x="10" y="{top + 40:.1f}">{verdict.early:,.2f} to {verdict.late:,.2f}</text>',
        f'<text x="10" y="{top + 60:.1f}" fill="{colour}">{word}</text>',
        f'<text x="{LEFT + WIDTH - 4}" y="{top + 12:.1f}" text-anchor="end">{most:,.0f}</text>',
    ]
