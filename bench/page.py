"""All benchmarks as one page: ours, the peers and the limit as bars, with ratios, goals and the machine.

One file, no script, no external resources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from fencepost_torture._page import STYLE

# The columns that identify a row; every other number is a figure of it.
LABELS = (
    "system",
    "contestant",
    "way",
    "function",
    "page",
    "what",
    "batch",
    "signers",
    "history",
    "connections",
)
CHARTS_MAX = 3
BAR_HEIGHT, LABEL_WIDTH, BAR_WIDTH, FIGURE_WIDTH = 20, 330, 400, 170
BAR_STYLE = """
  .ours { fill: var(--mark); } .limit { fill: var(--so); } .peer { fill: var(--quiet); }
  .met { color: var(--good); } .missed { color: var(--bad); } .legend b { font-weight: 600; }
  svg text { font-size: 12px; } svg .ink { fill: var(--ink); }
"""
LEGEND = """
  <p class='legend'><b style='color:var(--mark)'>ours</b>, <b style='color:var(--so)'>the limit</b>,
  <b style='color:var(--quiet)'>others</b></p>
"""
LIMITS = ("pgbench", "the limit", "plain spawn", "bare")

Facts = Mapping[str, Any]


def page_of(reports: Sequence[Facts]) -> str:
    """Every benchmark's newest run, in the order given."""
    met = [bool(goal["met"]) for report in reports for goal in report["goals"]]
    parts = [
        "<h1>Benchmarks</h1>",
        f"<p>{sum(met)} of {len(met)} goals are met. A ratio is how many times ours is of that row.</p>",
        LEGEND,
        *(_section(report) for report in reports),
    ]
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>Benchmarks of Fencepost</title><style>{STYLE}{BAR_STYLE}</style></head>\n<body>"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _section(report: Facts) -> str:
    quick = " (quick: short, with more noise)" if report["quick"] else ""
    machine = "; ".join(f"{name} {value}" for name, value in report["machine"].items())
    return "\n".join(
        [
            f"<h2 id='{escape(report['name'])}'>{escape(report['name'])}{quick}</h2>",
            f"<p class='quiet'>{escape(str(report['at']))}; {escape(machine)}</p>",
            "<ul>" + "".join(_goal(goal) for goal in report["goals"]) + "</ul>",
            *_charts(report["rows"]),
            _table(report["rows"]),
        ]
    )


def _goal(goal: Facts) -> str:
    verdict = "met" if goal["met"] else "missed"
    bound = "at most" if goal["at_most"] else "at least"
    return (
        f"<li><b class='{verdict}'>{verdict}</b> {escape(goal['name'])}: {goal['measured']:,.4g},"
        f" {bound} {goal['goal']:,.4g}</li>"
    )


def _charts(rows: Sequence[Facts]) -> Iterator[str]:
    """The first few figures that more than one row has."""
    columns = list(dict.fromkeys(name for row in rows for name in row if name not in LABELS))
    drawn = 0
    for column in columns:
        bars = [
            (label_of(row), float(row[column])) for row in rows if isinstance(row.get(column), int | float)
        ]
        if len(bars) > 1 and drawn < CHARTS_MAX:
            drawn += 1
            yield f"<h3>{escape(column)}</h3>" + _bars(column, bars)


def label_of(row: Facts) -> str:
    """Texts as they are, numbers with their name."""
    named = [(name, row[name]) for name in LABELS if name in row and row[name] != "-"]
    return ", ".join(str(value) if isinstance(value, str) else f"{name} {value:,}" for name, value in named)


def kind_of(label: str) -> str:
    if label.startswith("fencepost"):
        return "ours"
    return "limit" if label.startswith(LIMITS) else "peer"


def ratio_of(label: str, value: float, ours: float | None) -> str:
    """Our figure divided by this one, where both exist."""
    return f"  ours is {ours / value:.2g} times it" if ours and value and kind_of(label) != "ours" else ""


def _bars(column: str, bars: Sequence[tuple[str, float]]) -> str:
    most = max(abs(value) for _, value in bars) or 1.0
    ours = next((value for label, value in bars if kind_of(label) == "ours"), None)
    lines: list[str] = []
    for number, (label, value) in enumerate(bars):
        top = number * (BAR_HEIGHT + 4)
        text = f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"
        lines.append(
            f"<text x='0' y='{top + 14}' class='ink'>{escape(label[:52])}</text>"
            f"<rect class='{kind_of(label)}' x='{LABEL_WIDTH}' y='{top}' height='{BAR_HEIGHT}'"
            f" width='{max(1.0, abs(value) / most * BAR_WIDTH):.1f}'/>"
            f"<text x='{LABEL_WIDTH + abs(value) / most * BAR_WIDTH + 6:.1f}' y='{top + 14}'>"
            f"{text}{ratio_of(label, value, ours)}</text>"
        )
    width, height = LABEL_WIDTH + BAR_WIDTH + FIGURE_WIDTH, len(bars) * (BAR_HEIGHT + 4)
    return (
        f"<svg viewBox='0 0 {width} {height}' role='img' aria-label='{escape(column)}'>{''.join(lines)}</svg>"
    )


def _table(rows: Sequence[Facts]) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(_cell(row.get(name, "")) for name in columns) + "</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<details><summary>Every figure</summary><div class='wide'>{table}</div></details>"


def _cell(value: Any) -> str:
    if isinstance(value, int | float):
        return f"<td class='number'>{value:,}</td>"
    return f"<td>{escape(str(value))}</td>"
