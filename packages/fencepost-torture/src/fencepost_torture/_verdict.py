"""The verdict on a run: nothing broken, something broken, or not hard enough to tell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fencepost.testing import Breach
from fencepost_torture._effects import DOUBLED, LOST, UNDECIDED

Verdict = Literal["passed", "violated", "void"]


@dataclass(frozen=True, slots=True)
class Floors:
    """Below these a run proves nothing. They are for each second of it, and low: a laptop passes them."""

    effects_per_second: float = 5.0
    hits_per_second: float = 0.25
    ambiguous_per_second: float = 0.05


@dataclass(frozen=True, slots=True)
class Hardness:
    """How hard the run was."""

    seconds: float
    effects: Mapping[str, int]
    """By system."""
    hits: int
    ambiguous: int


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """The verdict, and its reasons."""

    verdict: Verdict
    breaches: Sequence[tuple[str, Breach]]
    """Each breach with its system."""
    too_easy: Sequence[str]

    @property
    def lost(self) -> int:
        return self._count(LOST)

    @property
    def doubled(self) -> int:
        return self._count(DOUBLED)

    def _count(self, rule: str) -> int:
        return sum(breach.rule == rule for _, breach in self.breaches)


def judge(breaches: Sequence[tuple[str, Breach]], hardness: Hardness, floors: Floors) -> RunVerdict:
    """A violation counts however easy the run was; a pass counts only if the run was hard enough."""
    broken = [found for found in breaches if found[1].rule != UNDECIDED]
    undecided = [f"{system}: {breach}" for system, breach in breaches if breach.rule == UNDECIDED]
    too_easy = [*_below(hardness, floors), *undecided]
    if broken:
        return RunVerdict("violated", broken, too_easy)
    return RunVerdict("void" if too_easy else "passed", broken, too_easy)


def _below(hardness: Hardness, floors: Floors) -> Sequence[str]:
    effects = sum(hardness.effects.values())
    idle = [f"{system} made no effect" for system, count in hardness.effects.items() if count == 0]
    figures = (
        ("effects", effects, floors.effects_per_second),
        ("faults that hit", hardness.hits, floors.hits_per_second),
        ("ambiguous outcomes", hardness.ambiguous, floors.ambiguous_per_second),
    )
    return idle + [
        f"{found} {what}, at least {math.ceil(floor * hardness.seconds)} were needed"
        for what, found, floor in figures
        if found < floor * hardness.seconds
    ]
