"""The result of one test of one submission."""

from __future__ import annotations

from dataclasses import dataclass

SKIPPED = "SK"
"""A test that was not run, because its group had already failed or a required group was not solved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """One test of one submission."""

    name: str
    verdict: str
    time_ms: int = 0
    mem_kb: int = 0
    message: str = ""
    output: str = ""
    """The beginning of an output that is not right; of the first few tests only, and for juries."""
    share: float = 1.0
    """The fraction of the test's score that its validator awarded."""
    points: float | None = None
    """The points that the validator awarded, in place of a fraction."""
    errors: str = ""
    """The beginning of what the program wrote to its stderr."""
