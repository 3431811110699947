"""A report says what was measured, and does not hide a goal that was missed."""

import io
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from bench import report as reports
from bench.report import Goal, Report
from fencepost_server.console._reports import read_reports


@pytest.fixture
def report() -> Report:
    return Report(
        name="sums",
        quick=True,
        rows=[{"function": "add", "rate": 1234.5}, {"function": "take", "rate": 7, "note": "slow"}],
        goals=[Goal("rate of add", 1234.5, 1000), Goal("rate of take", 7, 1000)],
        machine={"cores": 2},
        at=datetime(2026, 1, 2, tzinfo=UTC),
    )


def shown(report: Report) -> str:
    screen = io.StringIO()
    reports.show(report, Console(file=screen, width=120))
    return screen.getvalue()


def test_a_goal_is_met_from_its_figure_on() -> None:
    assert Goal("rate", 10, 10).met
    assert not Goal("rate", 9.99, 10).met


def test_where_less_is_better_a_goal_is_met_up_to_its_figure() -> None:
    assert Goal("pause", 10, 10, at_most=True).met
    assert not Goal("pause", 10.01, 10, at_most=True).met


def test_a_missed_goal_is_shown_as_missed(report: Report) -> None:
    lines = shown(report).splitlines()

    assert [line.strip() for line in lines if "rate of" in line] == [
        "met  rate of add: 1,234, at least 1,000 was the goal",
        "NOT MET  rate of take: 7, at least 1,000 was the goal",
    ]


def test_every_column_of_any_row_is_shown(report: Report) -> None:
    text = shown(report)

    assert "note" in text
    assert "slow" in text


def test_the_kept_file_says_for_each_goal_whether_it_was_met(report: Report, tmp_path: Path) -> None:
    path = reports.write(report, tmp_path / "bench")

    kept = json.loads(path.read_text())
    assert path.name == "sums.json"
    assert kept["machine"] == {"cores": 2}
    assert kept["rows"][0] == {"function": "add", "rate": 1234.5}
    assert [(goal["name"], goal["met"]) for goal in kept["goals"]] == [
        ("rate of add", True),
        ("rate of take", False),
    ]


def test_the_machine_names_what_figures_depend_on() -> None:
    facts = reports.machine(fsync="on")

    assert {"processor", "cores", "memory_gib", "load_1m", "python", "psycopg", "fsync"} <= facts.keys()


def test_all_reports_are_one_page_and_one_file(report: Report, tmp_path: Path) -> None:
    other = Report(
        name="queues",
        quick=False,
        rows=[
            {"system": "fencepost", "jobs/s": 200.0},
            {"system": "a <peer>", "jobs/s": 50},
            {"system": "pgbench", "jobs/s": 400},
        ],
        goals=[Goal("times a peer", 4, 2)],
        machine={"cores": 2, "commit": "abc"},
    )
    for one in (report, other, report):
        reports.write(one, tmp_path)

    page = (tmp_path / "report.html").read_text()
    whole = json.loads((tmp_path / "report.json").read_text())
    assert [one["name"] for one in whole["reports"]] == ["queues", "sums"]
    assert "2 of 3 goals are met" in page
    assert "ours is 4 times it" in page
    assert "class='limit'" in page
    assert "a &lt;peer&gt;" in page
    assert "commit abc" in page
    # The console shows each run by itself.
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "bench").symlink_to(tmp_path)
    assert {one["name"] for one in read_reports(tmp_path / "data")} == {"queues", "sums"}


def test_a_report_names_the_commit_that_was_measured() -> None:
    assert reports.machine()["commit"]
