"""What the console reads of the files that runs leave, whichever program wrote them."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from fencepost_server.console._reports import COUNTS_MAX, read_page, read_reports, shown
from fencepost_server.console.page_data import as_json

WRONG: list[Any] = [None, True, -1, 1e308, math.nan, math.inf, "", "\ud800\0", [], {}, [[]], [{}], {"a": {}}]
FACTS = (
    *("at", "quick", "machine", "rows", "goals", "verdict", "void_because", "violations", "replay"),
    *("faults_by_kind", "refusals_by_reason", "crash_points", "log", "schedule"),
)


def leave(folder: Path, text: str | bytes, name: str = "last.json") -> Path:
    path = folder / "torture" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_what_was_counted_is_told_by_kind_the_most_frequent_first() -> None:
    counted = shown(
        {
            "name": "x",
            "faults_by_kind": {"kill": 3, "crash": 9},
            "refusals_by_reason": {"stale_attempt": 2},
            "crash_points": {"jobs.ack.before": 9, "jobs.ack.after": 9},
        }
    )["counts"]

    assert [(row["of"], row["name"], row["count"]) for row in counted] == [
        ("fault that hit", "crash", 9),
        ("fault that hit", "kill", 3),
        ("refusal", "stale_attempt", 2),
        ("hit of a crash point", "jobs.ack.after", 9),
        ("hit of a crash point", "jobs.ack.before", 9),
    ]


def test_a_count_that_is_none_is_left_out_and_there_is_an_end_of_them() -> None:
    faults = {"a": True, "b": "3", "c": None, "d": math.nan, "e": 10**400, "f": [1], "g": 4}
    many = {str(number): number for number in range(COUNTS_MAX * 2)}
    counted = shown({"faults_by_kind": faults, "crash_points": many})["counts"]

    assert [row["name"] for row in counted if row["of"] == "fault that hit"] == ["g"]
    assert len(counted) == COUNTS_MAX + 1


@pytest.mark.parametrize("fact", FACTS)
def test_a_fact_that_is_none_of_ours_can_be_told_all_the_same(fact: str) -> None:
    for value in WRONG:
        for one in (value, [value], {"a": value}):
            report = {"name": "x", fact: one}
            told = as_json(shown(report))
            assert json.loads(told.encode())["name"] == "x"


def test_a_report_that_is_too_deep_is_cut() -> None:
    deep: Any = "end"
    for _ in range(400):
        deep = [deep]

    assert "end" not in as_json(shown({"name": "x", "log": deep}))


def test_files_that_are_no_reports_are_passed_over(tmp_path: Path) -> None:
    leave(tmp_path, '{"name": "good"}', "good.json")
    bad: list[str | bytes] = ["", "[]", "{}", '{"name": 7}', "[" * 100_000, b"\xff\xfe{", "null"]
    for number, text in enumerate(bad):
        leave(tmp_path, text, f"bad{number}.json")
    torture = tmp_path / "torture"
    (torture / "folder.json").mkdir()
    (torture / "nowhere.json").symlink_to(torture / "gone")
    # Reading it waits for ever.
    os.mkfifo(torture / "pipe.json")

    assert [report["name"] for report in read_reports(tmp_path)] == ["good"]


def test_a_page_is_offered_if_it_is_of_the_same_run(tmp_path: Path) -> None:
    figures = leave(tmp_path, '{"name": "x"}')
    assert [report["page"] for report in read_reports(tmp_path)] == [None]

    page = leave(tmp_path, "<p>x</p>", "last.html")
    os.utime(figures, (1000, 1000))
    os.utime(page, (1000, 1000))
    assert [report["page"] for report in read_reports(tmp_path)] == ["last"]
    # The run after it put its page elsewhere.
    os.utime(figures, (2000, 2000))
    assert [report["page"] for report in read_reports(tmp_path)] == [None]


def test_no_name_leads_out_of_the_folder(tmp_path: Path) -> None:
    leave(tmp_path, "<p>x</p>", "last.html")
    (tmp_path / "outside.html").write_text("secret")

    assert read_page(tmp_path, "last") == b"<p>x</p>"
    outside = ("../outside", "../torture/last", str(tmp_path / "outside"))
    for name in (*outside, "..", "", "*", "last.html", "\0"):
        assert read_page(tmp_path, name) is None, name
