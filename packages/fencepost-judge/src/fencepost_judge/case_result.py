"""The result of one test of one submission."""

from __future__ import annotations

from dataclasses import dataclass

SKIPPED = "SK"
"""A test that was not run, because its group was lost already or another one was required."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """One test of one submission."""

    name: str
    verdict: str
    time_ms: int = 0
    mem_kb: int = 0
    message: str = ""
    share: float = 1.0
    """Of the test's worth, when its validator gives parts."""
    points: float | None = None
    """Instead of them, when its validator gives points."""
