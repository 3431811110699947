"""The protocol's line: what is accepted, and by which reason everything else is refused."""

import json
from typing import Any

import pytest

from fencepost_judge._protocol import ProtocolError, RunOutcome, Verdict, parse

GOOD: dict[str, Any] = {
    "schema_version": 1,
    "job_id": "job_123",
    "attempt_id": 0,
    "verdict": "OK",
    "time_ms": 12,
    "mem_kb": 2048,
    "exit_signal": 0,
    "sandbox_error": "",
}


def line(**changes: Any) -> bytes:
    return json.dumps(GOOD | changes).encode() + b"\n"


def test_a_line_is_read() -> None:
    outcome = parse(line(status="Finished", time_used=12, memory_used=2048, exit_code=0))

    assert outcome == RunOutcome(
        verdict=Verdict.OK,
        time_ms=12,
        mem_kb=2048,
        exit_signal=0,
        sandbox_error="",
        job_id="job_123",
        attempt_id=0,
    )


def test_what_is_said_is_understood_again() -> None:
    outcome = parse(line(verdict="SE", sandbox_error="no_report", error="no_report", wall_ms=7))

    assert parse(outcome.line().encode() + b"\n") == outcome


def test_an_unknown_field_is_left_alone() -> None:
    assert parse(line(colour="green")).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "not_one_line"),
        (b"{}", "not_one_line"),
        (line() + line(), "not_one_line"),
        (b"hello " + line(), "not_json"),
        (b"[]\n", "not_json"),
        (b"[" * 30_000 + b"\n", "not_json"),
        (b"\xff\xfe\n", "not_json"),
        (b"{}\n", "schema_version"),
        (line(schema_version=2), "schema_version"),
        (line(schema_version=True), "schema_version"),
        (line(verdict="AC"), "verdict"),
        (line(verdict="ok"), "verdict"),
        (line(time_ms=-1), "field"),
        (line(time_ms=1.5), "field"),
        (line(time_ms="1"), "field"),
        (line(mem_kb=None), "field"),
        (line(mem_kb=1 << 60), "field"),
        (line(attempt_id=True), "field"),
        (line(job_id=7), "field"),
        (line(sandbox_error="broken"), "sandbox_error"),
        (line(verdict="SE"), "sandbox_error"),
        (b'{"schema_version":1,"schema_version":1}\n', "duplicate_field"),
        (b" " * 70_000 + b"\n", "too_long"),
    ],
)
def test_anything_else_is_refused_by_its_reason(text: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError) as raised:
        parse(text)

    assert raised.value.reason == reason


@pytest.mark.parametrize("field", GOOD)
def test_no_field_may_be_missing(field: str) -> None:
    with pytest.raises(ProtocolError):
        parse(json.dumps({name: value for name, value in GOOD.items() if name != field}).encode() + b"\n")
