from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fencepost.cli._status_snapshot import Reason
from fencepost.cli._timeline import TimelineEntry, as_json, as_lines, subject_of
from fencepost.cli.exit_codes import ExitCode, UserError

ROOT = Path(__file__).parents[3]
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MOMENTS = (
    TimelineEntry(NOW, "submitted", None, None, {"queue": "mail"}),
    TimelineEntry(NOW + timedelta(seconds=90), "claimed", "worker-1", 1, {"tries": 1, "error": None}),
    TimelineEntry(
        NOW + timedelta(seconds=91),
        "refused:stale_attempt",
        "zombie",
        None,
        {"attempted": {"op": "finish", "attempt": 1}, "seen": {"attempt": 2, "note": "a\nb\x1b[31m"}},
    ),
)
REMEDIES = {"stale_attempt": Reason("stale_attempt", "ZF001", 1, "A later attempt exists.", "Stop.")}


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("7", "job:7"),
        ("job:7", "job:7"),
        ("lease:signer:0xabc", "lease:signer:0xabc"),
        ("request:player:7/req-9", "request:player:7/req-9"),
        ("outbox:42", "outbox:42"),
        ("schedule:nightly", "schedule:nightly"),
        ("webhook:audit", "webhook:audit"),
        ("kernel:recovery", "kernel:recovery"),
    ],
)
def test_a_bare_number_is_a_job(text: str, subject: str) -> None:
    assert subject_of(text) == subject


def shown() -> set[str]:
    """What pages and messages tell people to write behind `fencepost explain`."""
    files = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "packages").rglob("*.py")]
    found = {
        text
        for file in files
        for text in re.findall(r"fencepost explain ([a-z]+:[\w:/@-]+)", file.read_text())
    }
    return {re.sub(r"\bID\b", "7", text) for text in found}


def test_every_subject_that_is_shown_can_be_explained() -> None:
    assert "kernel:lineage" in shown()
    for text in shown():
        assert subject_of(text) == text


@pytest.mark.parametrize("text", ["", "seven", "job:", "job:x", "outbox:x", "planet:mars", ":7", "-7"])
def test_what_names_nothing_is_refused_with_the_forms_that_do(text: str) -> None:
    with pytest.raises(UserError, match=r"is not something that can be explained. Write job:123") as caught:
        subject_of(text)
    assert caught.value.code == ExitCode.USAGE


def test_the_timeline_tells_times_facts_and_reasons() -> None:
    assert list(as_lines("job:7", MOMENTS, REMEDIES)) == [
        "job:7",
        "  2026-03-01 12:00:00.000              submitted              queue=mail",
        "  2026-03-01 12:01:30.000  +1 min 30 s  claimed                token=1  by=worker-1  tries=1",
        "  2026-03-01 12:01:31.000      +1.0 s  refused:stale_attempt  by=zombie",
        "                                         A later attempt exists. Stop.",
        "                                         attempted: op=finish  attempt=1",
        "                                         seen: attempt=2  note=a b [31m",
    ]


def test_the_json_carries_meaning_and_remedy_beside_the_reason() -> None:
    shown = as_json("job:7", MOMENTS, REMEDIES)
    assert shown["subject"] == "job:7"
    assert shown["moments"][0]["at"] == "2026-03-01T12:00:00+00:00"
    assert "reason" not in shown["moments"][1]
    assert shown["moments"][2]["reason"] == "stale_attempt"
    assert shown["moments"][2]["remedy"] == "Stop."


def test_a_traceback_stands_below_its_try_line_by_line() -> None:
    detail = {"to": "pending", "traceback": "Traceback:\n  File \x1b[31m\nValueError: x\n"}
    lines = list(as_lines("job:7", [TimelineEntry(NOW, "failed", "w", 1, detail)], {}))
    indent = " " * 39
    assert lines[1].endswith("failed  token=1  by=w  to=pending")
    assert lines[2:] == [f"{indent}Traceback:", f"{indent}  File  [31m", f"{indent}ValueError: x"]
