"""The result of a benchmark: the machine, the rows of a table, and its goals, met or not."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import psycopg
from rich.console import Console, ConsoleOptions
from rich.table import Table

from bench.page import page_of
from fencepost._code_version import revision

Cell = str | int | float
Row = Mapping[str, Cell]

DIRECTORY = Path(".fencepost/bench")
WHOLE = "report.json"


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure with a goal. It must be at least `goal`, or at most when less is better."""

    name: str
    measured: float
    goal: float
    at_most: bool = False

    @property
    def met(self) -> bool:
        return self.measured <= self.goal if self.at_most else self.measured >= self.goal

    def facts(self) -> dict[str, Cell]:
        return {**asdict(self), "met": self.met}

    def describe(self) -> str:
        bound = "at most" if self.at_most else "at least"
        return f"{self.name}: {_figure(self.measured)}, {bound} {_figure(self.goal)} was the goal"


@dataclass(frozen=True, slots=True)
class Report:
    """One run of one benchmark."""

    name: str
    quick: bool
    rows: Sequence[Row]
    goals: Sequence[Goal]
    machine: Row
    at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def facts(self) -> dict[str, object]:
        return {
            "name": self.name,
            "at": self.at.isoformat(timespec="seconds"),
            "quick": self.quick,
            "machine": dict(self.machine),
            "rows": [dict(row) for row in self.rows],
            "goals": [goal.facts() for goal in self.goals],
        }


def machine(**more: Cell) -> Row:
    """What a reader must know of the machine to compare figures. Other load shows in load_1m."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_1m": round(os.getloadavg()[0], 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "psycopg": f"{psycopg.__version__} ({psycopg.pq.__impl__})",
        "commit": revision(),
        **more,
    }


def show(report: Report, console: Console) -> None:
    """Print the table, the goals and the machine."""
    table = Table(title=f"bench-{report.name}" + (" (quick)" if report.quick else ""))
    columns = list(dict.fromkeys(name for row in report.rows for name in row))
    for name in columns:
        numeric = all(not isinstance(row.get(name, 0), str) for row in report.rows)
        table.add_column(name, justify="right" if numeric else "left", no_wrap=True)
    for row in report.rows:
        table.add_row(*(_figure(row.get(name, "")) for name in columns))
    # A line that wraps is better than a figure that is cut off to fit the screen.
    console.width = max(console.width, console.measure(table, options=_unbounded(console)).maximum)
    console.print(table)
    for goal in report.goals:
        style, verdict = ("green", "met") if goal.met else ("red", "NOT MET")
        console.print(f"[{style}]{verdict:>7}[/{style}]  {goal.describe()}", highlight=False, soft_wrap=True)
    facts = "; ".join(f"{name} {value}" for name, value in report.machine.items())
    console.print(facts, highlight=False, soft_wrap=True)


def _unbounded(console: Console) -> ConsoleOptions:
    return console.options.update(max_width=1000)


def write(report: Report, directory: Path = DIRECTORY) -> Path:
    """Write the report as JSON, in place of the run before, and write the page of all of them again."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{report.name}.json"
    path.write_text(json.dumps(report.facts(), indent=2) + "\n")
    write_whole(directory)
    return path


def read(name: str, directory: Path = DIRECTORY) -> Report | None:
    """The newest report of the benchmark, if there is one."""
    path = directory / f"{name}.json"
    if not path.is_file():
        return None
    facts = json.loads(path.read_text())
    goals = [Goal(one["name"], one["measured"], one["goal"], one["at_most"]) for one in facts["goals"]]
    at = datetime.fromisoformat(facts["at"])
    return Report(facts["name"], facts["quick"], facts["rows"], goals, facts["machine"], at)


def write_whole(directory: Path = DIRECTORY) -> Path:
    """Write one page and one file with the newest run of every benchmark."""
    found = [json.loads(path.read_text()) for path in sorted(directory.glob("*.json")) if path.name != WHOLE]
    (directory / WHOLE).write_text(json.dumps({"reports": found}, indent=2) + "\n")
    page = (directory / WHOLE).with_suffix(".html")
    page.write_text(page_of(found), encoding="utf-8")
    return page


def _figure(value: Cell) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else value


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
