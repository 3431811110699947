"""The figures of the README and of the pages come from kept results, and from whole runs only."""

import json
from pathlib import Path

import pytest

from bench import publish
from bench.publish import FIGURES, README, shown, table


def test_the_readme_has_the_figures_of_the_kept_results() -> None:
    assert shown() == table(), "Run: python -m bench publish"


@pytest.mark.parametrize("name", publish.PAGE_OF)
def test_a_page_has_the_figures_of_the_kept_results(name: str) -> None:
    assert publish.shown_on_page(name) == publish.figures(name), "Run: python -m bench publish"


def test_every_kept_run_has_its_page() -> None:
    names = ("bench-*.json", "storm-*.json", "torture-*.json")
    kept = {path.stem.removeprefix("bench-") for name in names for path in publish.RESULTS.glob(name)}

    assert kept == publish.PAGE_OF.keys() - publish.COLUMNS_OF.keys()


def test_a_wide_table_becomes_two_and_an_empty_cell_stays_empty(tmp_path: Path) -> None:
    wide = {"system": "a", **{f"c{n}": n for n in range(8)}}
    result = {
        "name": "jobs",
        "at": "2026-11-17T00:00:00",
        "quick": False,
        "machine": {"cores": 2, "load_1m": 0.5, "commit": "abc", "python": "3.11.7"},
        "rows": [wide, {"system": "b", "c0": 1_500, "c1": 0.25}],
        "goals": [{"name": "rate", "measured": 7.0, "goal": 8, "at_most": False, "met": False}],
    }
    (tmp_path / "bench-jobs.json").write_text(json.dumps(result))
    head = "| system | c0 | c1 | c2 | c3 | c4 | c5 | c6 |\n|---|---:|---:|---:|---:|---:|---:|---:|"

    assert publish.figures("jobs", tmp_path).split("\n\n") == [
        f"{head}\n| a | 0 | 1 | 2 | 3 | 4 | 5 | 6 |\n| b | 1,500 | 0.25 |  |  |  |  |  |",
        "| system | c7 |\n|---|---:|\n| a | 7 |",
        "| goal | measured | wanted | met |\n|---|---:|---|---|\n| rate | 7 | at least 8 | **no** |",
        "Measured by `make bench-jobs` on 2026-11-17, commit `abc`: 2 cores, load 0.5, Python 3.11.7.",
    ]


def test_the_readme_fits_on_three_screens() -> None:
    assert len(README.read_text().splitlines()) < 120


def test_a_figure_names_the_best_peer_of_the_same_run_even_where_it_wins() -> None:
    slow = {"system": "slow 1", "truth": "Redis", "p50 ms": 9.0}
    fast = {"system": "fast 2", "truth": "Redis", "p50 ms": 1.5}
    ours = {"system": "fencepost", "truth": "PostgreSQL", "p50 ms": 3.0}
    started = next(figure for figure in FIGURES if figure.column == "p50 ms")

    assert started.line({"rows": [slow, ours, fast]}).split(" | ")[1:4] == ["3 ms", "fast 2: 1.5 ms", "0.5"]


def test_our_rate_is_that_of_the_turns_beside_the_peer() -> None:
    ours = {"system": "fencepost", "truth": "PostgreSQL", "jobs/s": 900}
    peer = {"system": "peer", "truth": "PostgreSQL", "jobs/s": 100, publish.BESIDE: 350}

    assert FIGURES[0].line({"rows": [ours, peer]}).split(" | ")[1:4] == [
        "350 a second",
        "peer: 100 a second",
        "3.5",
    ]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


def test_a_whole_run_is_kept(runs: Path, tmp_path: Path) -> None:
    (runs / "jobs.json").write_text(json.dumps({"quick": False, "rows": []}))

    assert publish.publish(["jobs"], runs, tmp_path) == [tmp_path / "bench-jobs.json"]
    assert (tmp_path / "bench-jobs.json").read_text() == (runs / "jobs.json").read_text()


def test_a_short_run_is_not_published(runs: Path, tmp_path: Path) -> None:
    (runs / "jobs.json").write_text(json.dumps({"quick": True}))

    with pytest.raises(SystemExit, match="short form"):
        publish.publish(["jobs"], runs, tmp_path)
    assert not list(tmp_path.glob("*.json"))


def test_a_run_that_was_not_made_is_asked_for(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="Run: make bench-jobs"):
        publish.publish(["jobs"], runs, tmp_path)
