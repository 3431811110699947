"""The findings of `doctor`: the values, the verdict on them, and their text and JSON forms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import groupby
from typing import Any


class FindingState(StrEnum):
    OK = "ok"
    DEGRADED = "degraded"
    LACKING = "lacking"


@dataclass(frozen=True, slots=True)
class Finding:
    """One item that is present, missing or degraded; with the remedy when it is not OK."""

    area: str
    name: str
    state: FindingState
    detail: str
    remedy: str = ""
    required: bool = False

    def __post_init__(self) -> None:
        assert self.state is FindingState.OK or self.remedy, f"{self.name}: a missing item needs a remedy"


def is_healthy(findings: Iterable[Finding]) -> bool:
    """Whether nothing required is missing."""
    return not any(finding.required and finding.state is FindingState.LACKING for finding in findings)


def as_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """The findings as JSON: `ok`, and each finding with its fields."""
    return {"ok": is_healthy(findings), "findings": [asdict(finding) for finding in findings]}


def as_text(findings: Sequence[Finding]) -> str:
    """One line per finding, with its remedy below; the missing required items are named again at the end."""
    width = max((len(finding.name) for finding in findings), default=0)
    lines: list[str] = []
    for area, members in groupby(findings, key=lambda finding: finding.area):
        lines.append(f"{area}")
        for finding in members:
            lines.append(f"  {_MARKS[finding.state]} {finding.name:<{width}}  {finding.detail}")
            if finding.remedy and finding.state is not FindingState.OK:
                lines.append(f"    {'':<{width}}  → {finding.remedy}")
    return "\n".join([*lines, "", verdict(findings)])


def verdict(findings: Sequence[Finding]) -> str:
    """One sentence: what is required and lacking, and how much of the optional is."""
    missing = [f.name for f in findings if f.required and f.state is FindingState.LACKING]
    optional = sum(not f.required and f.state is FindingState.LACKING for f in findings)
    if missing:
        return f"Required and lacking: {', '.join(missing)}."
    return "Everything required is present." + (f" Optional and lacking: {optional}." if optional else "")


_MARKS = {FindingState.OK: "✓", FindingState.DEGRADED: "~", FindingState.LACKING: "✗"}
