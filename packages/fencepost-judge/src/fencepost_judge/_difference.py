"""Where an output differs from the answer, in a form that fits on a page. Pure."""

from __future__ import annotations

from dataclasses import dataclass

LINES_BEFORE = 3
LINES_MAX = 20
LINE_MAX = 200


@dataclass(frozen=True, slots=True)
class DifferentLine:
    """A line of both; None where one of them has ended."""

    number: int
    answer: str | None
    output: str | None
    differs: bool


def difference(answer: str, output: str) -> list[DifferentLine]:
    """The lines from shortly before the first one that differs; empty when none does. Blanks at the ends of
    lines, and empty lines at the end, make no difference."""
    expected, found = _lines(answer), _lines(output)
    pairs = [
        (expected[place] if place < len(expected) else None, found[place] if place < len(found) else None)
        for place in range(max(len(expected), len(found)))
    ]
    first = next((place for place, (right, given) in enumerate(pairs) if right != given), None)
    if first is None:
        return []
    start = max(0, first - LINES_BEFORE)
    return [
        DifferentLine(place + 1, _cut(right), _cut(given), right != given)
        for place, (right, given) in enumerate(pairs[start : start + LINES_MAX], start)
    ]


def _lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _cut(line: str | None) -> str | None:
    return line if line is None or len(line) <= LINE_MAX else f"{line[:LINE_MAX]}…"
