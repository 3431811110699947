"""`python -m bench publish [NAME…]`: keep the newest runs in docs/results, and write the tables of figures.

The README has a selection, and the page of each benchmark all rows and goals of its kept run. A run of the
short form is not published. A test compares the tables with the kept results.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from bench.report import DIRECTORY

BESIDE = "fencepost beside it, jobs/s"

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs/results"
README = ROOT / "README.md"
PAGES = ROOT / "docs/explanation"
PAGE_OF: Mapping[str, str] = {
    "kernel": "performance.md",
    "growth": "performance.md",
    "jobs": "jobs-performance.md",
    "install": "jobs-performance.md",
    "scale": "scale.md",
    "flows": "flows-performance.md",
    "orders": "orders-performance.md",
    "players": "players-performance.md",
    "nonces": "nonces-performance.md",
    "judge": "judge-performance.md",
    "workflows": "workflows-performance.md",
    "zombies": "zombies.md",
    "storm-orders": "storms.md",
    "storm-late-accepts": "storms.md",
    "storm-changes": "storms.md",
    "storm-players": "storms.md",
    "storm-jobs": "storms.md",
    "storm-poison": "storms.md",
    "storm-contest": "storms.md",
    "storm-rehearsal": "storms.md",
    "storm-chain": "nonces-storms.md",
    "storm-uneven": "nonces-storms.md",
    "torture-seeds": "torture.md",
    "torture-lossy": "failovers.md",
}
"""The page that has the figures of a benchmark, some of its columns, or those of a long test."""
COLUMNS_OF: Mapping[str, tuple[str, Sequence[str]]] = {
    "zombies": ("jobs", ("system", "truth", "the zombie's finish", "effects"))
}
"""The benchmark and the columns of a page that shows no whole run."""
COLUMNS_MAX = 7
BEGIN = "<!-- figures: written by `python -m bench publish` -->"
END = "<!-- end of figures -->"

Result = Mapping[str, Any]
Row = Mapping[str, Any]


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
        rows: Sequence[Mapping[str, Any]] = [
            row for row in result["rows"] if {self.column, self.system} <= row.keys()
        ]
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
    readme.write_text(_with_block(readme.read_text(), BEGIN, table(results)))


def shown(readme: Path = README) -> str:
    """The table that the README has."""
    return _block(readme.read_text(), BEGIN)


def write_pages(results: Path = RESULTS, pages: Path = PAGES) -> None:
    """Write the figures of each benchmark into its page."""
    for name, page in PAGE_OF.items():
        path = pages / page
        path.write_text(_with_block(path.read_text(), begin_of(name), figures(name, results)))


def shown_on_page(name: str, pages: Path = PAGES) -> str:
    """The figures that the page of this benchmark has."""
    return _block((pages / PAGE_OF[name]).read_text(), begin_of(name))


def begin_of(name: str) -> str:
    return f"<!-- figures of {name}: written by `python -m bench publish` -->"


def kept(name: str, results: Path = RESULTS) -> Path:
    """The file with a run. Those of long tests are made from what the test prints."""
    return results / f"{'' if name.startswith(('storm-', 'torture-')) else 'bench-'}{name}.json"


def figures(name: str, results: Path = RESULTS) -> str:
    """Every row and goal of the kept run, or the columns of this page, and the machine that made them."""
    bench, columns = COLUMNS_OF.get(name, (name, ()))
    result: Result = json.loads(kept(bench, results).read_text())
    rows: Sequence[Row] = result["rows"]
    if columns:
        chosen = [row for row in rows if row.keys() >= set(columns)]
        return "\n".join([*_markdown(columns, chosen), "", _made(result)])
    parts = ["\n".join(_markdown(columns, rows)) for rows, columns in _tables(rows)]
    if goals := result["goals"]:
        parts.append("\n".join(_goals(goals)))
    return "\n\n".join([*parts, _made(result)])


def _tables(rows: Sequence[Row]) -> Iterator[tuple[Sequence[Row], Sequence[str]]]:
    """Neighbouring rows that begin with the same column share a table; a wide one becomes several."""
    for first, group in groupby(rows, key=lambda row: next(iter(row))):
        together = list(group)
        columns = list(dict.fromkeys(name for row in together for name in row))[1:]
        for start in range(0, len(columns), COLUMNS_MAX):
            part = columns[start : start + COLUMNS_MAX]
            yield [row for row in together if row.keys() & set(part)], [first, *part]


def _markdown(columns: Sequence[str], rows: Sequence[Row]) -> Iterator[str]:
    is_figure = [all(not isinstance(row.get(column, 0), str) for row in rows) for column in columns]
    yield f"| {' | '.join(columns)} |"
    yield f"|{'|'.join('---:' if right else '---' for right in is_figure)}|"
    for row in rows:
        yield f"| {' | '.join(_cell(row.get(column, '')) for column in columns)} |"


def _goals(goals: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "| goal | measured | wanted | met |"
    yield "|---|---:|---|---|"
    for goal in goals:
        bound = f"at {'most' if goal['at_most'] else 'least'} {_cell(goal['goal'])}"
        met = "yes" if goal["met"] else "**no**"
        yield f"| {goal['name']} | {_cell(goal['measured'])} | {bound} | {met} |"


def _made(result: Result) -> str:
    machine = result["machine"]
    form = " in the short form (`QUICK=1`)" if result["quick"] else ""
    versions = "".join(
        f", {said} {machine[key]}"
        for key, said in (("postgresql", "PostgreSQL"), ("python", "Python"))
        if key in machine
    )
    commit = f", commit `{machine['commit']}`" if machine.get("commit") else ""
    if command := result.get("command"):
        made = f"Measured by `{command}` on {result['at']}{commit}"
        return f"{made}: {machine['cores']} cores, load {machine['load']}; {result['took']}."
    parts = f" {machine['measured']}" if "measured" in machine else ""
    cores = f"{machine['cores']} cores, {_load(machine['load_1m'])}"
    command = f"`make bench-{result['name']}`{form}{parts}"
    return f"Measured by {command} on {result['at'][:10]}{commit}: {cores}{versions}."


def _cell(value: str | int | float) -> str:
    match value:
        case str():
            return value
        case int():
            return f"{value:,}"
        case _:
            return _number(value)


def _block(text: str, begin: str) -> str:
    return text.partition(begin)[2].partition(END)[0].strip()


def _with_block(text: str, begin: str, block: str) -> str:
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(END)
    return f"{before}{begin}\n\n{block}\n\n{END}{after}"


def _load(value: float | str) -> str:
    return f"a {value} machine" if isinstance(value, str) else f"load {value}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"
