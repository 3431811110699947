"""What the goals have reached, as the page of the guarantees tells it: made from the files of the runs.

`python -m tests.unit.torture.results_table` writes it anew.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fencepost_torture._goals import GOALS

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "guarantees.md"
HEAD = """| command | size | goal | reached | hours left | verdict |
|---|---|---:|---:|---:|---|
"""


def table() -> str:
    return HEAD + "".join(f"| {' | '.join(row)} |\n" for name in GOALS for row in _rows(name))


def written(page: str) -> str:
    """The page with the table in place of the one that it has."""
    start = page.index(HEAD)
    return page[:start] + table() + page[page.index("\n\n", start) + 1 :]


def _rows(name: str) -> Iterator[tuple[str, ...]]:
    facts: dict[str, Any] = json.loads((DOCS / "results" / f"{name}.json").read_text())
    assert facts["goal"] == name
    runs = "1 run" if facts["runs_counted"] == 1 else f"{facts['runs_counted']} runs"
    verdict = f"[{facts['verdict']}](results/{name}.json), {facts['lost']} lost, {facts['doubled']} doubled"
    for size in facts["sizes"]:
        left = "unknown" if size["hours_left"] is None else f"{size['hours_left']:g}"
        reached = f"{size['reached']:,} in {runs}, {facts['seconds'] / 60:.1f} min"
        yield f"`--goal {name}`", size["what"], f"{size['wanted']:,}", reached, left, verdict


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
