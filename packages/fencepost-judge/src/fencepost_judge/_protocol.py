"""Judge protocol v1: what a box reports about one run, in one line of JSON. Strict: anything unclear is an
error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self

SCHEMA_VERSION = 1
LINE_BYTES_MAX = 65_536


class Verdict(StrEnum):
    """How a run ended, not whether its output is right."""

    OK = "OK"
    TLE = "TLE"
    MLE = "MLE"
    OLE = "OLE"
    RE = "RE"
    SE = "SE"


class ProtocolError(Exception):
    """The box did not print exactly one line of the protocol. `reason` has few values: it is a metric
    label."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """One run."""

    verdict: Verdict
    time_ms: int
    mem_kb: int
    exit_signal: int
    sandbox_error: str
    job_id: str
    attempt_id: int
    exit_code: int = 0
    wall_ms: int = 0
    error: str = ""

    def of(self, job_id: str, attempt_id: int) -> Self:
        """The same run, with the job and attempt that were claimed."""
        return replace(self, job_id=job_id, attempt_id=attempt_id)

    def line(self) -> str:
        """As the box would print it, with the fields that older parsers read."""
        names = {"OK": "Finished", "TLE": "Time Limit Exceeded", "MLE": "Memory Limit Exceeded"}
        names |= {"OLE": "Output Limit Exceeded", "RE": "Runtime Error", "SE": "System Error"}
        return json.dumps(
            {
                "schema_version": SCHEMA_VERSION,
                "job_id": self.job_id,
                "attempt_id": self.attempt_id,
                "verdict": self.verdict.value,
                "time_ms": self.time_ms,
                "mem_kb": self.mem_kb,
                "exit_signal": self.exit_signal,
                "sandbox_error": self.sandbox_error,
                "wall_ms": self.wall_ms,
                "status": names[self.verdict.value],
                "time_used": self.time_ms,
                "memory_used": self.mem_kb,
                "exit_code": self.exit_code,
                "error": self.error,
            },
            separators=(",", ":"),
        )


def sandbox_failure(reason: str) -> RunOutcome:
    """The outcome of a run that never started."""
    return RunOutcome(
        verdict=Verdict.SE,
        time_ms=0,
        mem_kb=0,
        exit_signal=0,
        sandbox_error=reason,
        job_id="",
        attempt_id=0,
        error=reason,
    )


def parse(line: bytes) -> RunOutcome:
    """Parse the answer. Unknown fields are ignored: the protocol may grow."""
    if len(line) > LINE_BYTES_MAX:
        raise ProtocolError("too_long", f"The answer has {len(line)} bytes; at most {LINE_BYTES_MAX}.")
    if not line.endswith(b"\n") or b"\n" in line[:-1]:
        raise ProtocolError("not_one_line", "The answer is not exactly one line.")
    fields = _document(line)
    if fields.get("schema_version") != SCHEMA_VERSION or isinstance(fields.get("schema_version"), bool):
        raise ProtocolError("schema_version", "The answer uses another protocol version.")
    verdict = _text(fields, "verdict")
    if verdict not in Verdict.__members__:
        raise ProtocolError("verdict", f"There is no verdict {verdict[:20]!r}.")
    outcome = RunOutcome(
        verdict=Verdict(verdict),
        time_ms=_number(fields, "time_ms"),
        mem_kb=_number(fields, "mem_kb"),
        exit_signal=_number(fields, "exit_signal"),
        sandbox_error=_text(fields, "sandbox_error"),
        job_id=_text(fields, "job_id"),
        attempt_id=_number(fields, "attempt_id"),
        exit_code=_number(fields, "exit_code", 0),
        wall_ms=_number(fields, "wall_ms", 0),
        error=_text(fields, "error", ""),
    )
    if (outcome.verdict is Verdict.SE) != bool(outcome.sandbox_error):
        raise ProtocolError("sandbox_error", "SE and sandbox_error go together, and only together.")
    return outcome


def _document(line: bytes) -> Mapping[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in pairs}) < len(pairs):
            raise ProtocolError("duplicate_field", "A field occurs twice.")
        return dict(pairs)

    try:
        fields: Any = json.loads(line, object_pairs_hook=once)
    except (ValueError, RecursionError):
        raise ProtocolError("not_json", "The answer is not JSON.") from None
    if not isinstance(fields, dict):
        raise ProtocolError("not_json", "The answer is not an object.")
    return fields  # pyright: ignore[reportUnknownVariableType]  # once() made it


def _number(fields: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = fields.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 53:
        raise ProtocolError("field", f"{name} is missing, or is not a valid number.")
    return value


def _text(fields: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = fields.get(name, default)
    if not isinstance(value, str):
        raise ProtocolError("field", f"{name} is missing, or no text.")
    return value
