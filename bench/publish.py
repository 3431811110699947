"""`python -m bench publish [NAME…]`: keep the newest runs in docs/results, and write the README's table.

A run of the short form is not published. A test compares the README with the kept results, so that no figure
in it was typed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.report import DIRECTORY

BESIDE = "fencepost beside it, jobs/s"

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs/results"
README = ROOT / "README.md"
BEGIN = "<!-- figures: written by `python -m bench publish` -->"
END = "<!-- end of figures -->"

Result = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the README: a measurement of ours, and the same of the best peer in the same run."""

    work: str
    bench: str
    column: str
    system: str
    """The column of the rows that names the system."""
    ours: str
    is_peer: Callable[[Mapping[str, Any]], bool]
    unit: str
    less_is_better: bool = False
    beside: str = ""
    """The column of a peer's row that has our figure by turns with it, if the benchmark makes one."""

    def line(self, result: Result) -> str:
        rows: Sequence[Mapping[str, Any]] = [row for row in result["rows"] if self.column in row]
        ours = next(row for row in rows if row[self.system] == self.ours)
        best = (min if self.less_is_better else max)(
            filter(self.is_peer, rows), key=lambda row: float(row[self.column])
        )
        mine, theirs = float(best.get(self.beside, ours[self.column])), float(best[self.column])
        times = theirs / mine if self.less_is_better else mine / theirs
        figures = f"{_number(mine)} {self.unit} | {best[self.system]}: {_number(theirs)} {self.unit}"
        return f"| {self.work} | {figures} | {times:.2g} | `make bench-{self.bench}` |"


def _is_foreign(row: Mapping[str, Any]) -> bool:
    return "truth" in row and not str(row["system"]).startswith("fencepost")


def _is_runtime(row: Mapping[str, Any]) -> bool:
    return not str(row["system"]).startswith(("fencepost", "the limit"))


def _is_library(row: Mapping[str, Any]) -> bool:
    return str(row["contestant"]) != "fencepost"


def _is_bubblewrap(row: Mapping[str, Any]) -> bool:
    return str(row["what"]) == "bubblewrap"


def _of_jobs(work: str, column: str, unit: str, *, less_is_better: bool = False, beside: str = "") -> Figure:
    return Figure(
        work,
        "jobs",
        column,
        "system",
        "fencepost",
        _is_foreign,
        unit,
        less_is_better=less_is_better,
        beside=beside,
    )


FIGURES = (
    _of_jobs("jobs, empty handler", "jobs/s", "a second", beside=BESIDE),
    _of_jobs("jobs whose handler writes a row", "with a write, jobs/s", "a second"),
    _of_jobs("submit to start, median", "p50 ms", "ms", less_is_better=True),
    Figure(
        "orders delivered to a broker",
        "orders",
        "orders/s",
        "contestant",
        "fencepost",
        _is_library,
        "a second",
    ),
    Figure(
        "stream records, keyed sum, by CPU time",
        "flows",
        "records/CPU s",
        "system",
        "fencepost, keyed sum",
        _is_runtime,
        "a second",
    ),
    Figure(
        "one program in a sandbox",
        "judge",
        "median_ms",
        "what",
        "single box",
        _is_bubblewrap,
        "ms",
        less_is_better=True,
    ),
)


def publish(names: Sequence[str], source: Path = DIRECTORY, results: Path = RESULTS) -> list[Path]:
    """Copy whole runs into docs/results. Raises when one was not made, or was the short form."""
    kept: list[Path] = []
    for name in names:
        found = source / f"{name}.json"
        if not found.is_file():
            raise SystemExit(f"There is no {found}. Run: make bench-{name}")
        if json.loads(found.read_text())["quick"]:
            raise SystemExit(
                f"{found} is a run of the short form, which is not published. Run: make bench-{name}"
            )
        kept.append(results / f"bench-{name}.json")
        kept[-1].write_text(found.read_text())
    return kept


def table(results: Path = RESULTS) -> str:
    """The README's table, and the machine on which each of its runs was made."""
    read = {
        name: json.loads((results / f"bench-{name}.json").read_text())
        for name in dict.fromkeys(figure.bench for figure in FIGURES)
    }
    lines = ["| work | Fencepost | best peer in the same run | times | command |", "|---|---|---|---|---|"]
    lines += [figure.line(read[figure.bench]) for figure in FIGURES]
    runs = "; ".join(
        f"{name} {result['at'][:10]}, commit `{machine['commit']}`, {_load(machine['load_1m'])}"
        for name, result in read.items()
        for machine in [result["machine"]]
    )
    return "\n".join([*lines, "", f"Two cores, durable commits, one run for each row: {runs}."])


def write_readme(results: Path = RESULTS, readme: Path = README) -> None:
    text = readme.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    readme.write_text(f"{before}{BEGIN}\n\n{table(results)}\n\n{END}{after}")


def shown(readme: Path = README) -> str:
    """The table that the README has."""
    return readme.read_text().partition(BEGIN)[2].partition(END)[0].strip()


def _load(value: float | str) -> str:
    return f"a {value} machine" if isinstance(value, str) else f"load {value}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"
