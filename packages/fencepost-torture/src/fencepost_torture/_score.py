"""How much of a goal its runs have reached together.

A full size takes hours, so it is reached by many runs: each is added to the file of its goal, and counts with
those before it. A void run adds nothing. One with the seed of a run that counted adds nothing either: its
faults are the same. A run with a violation makes the whole score violated, until a new file is started.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from fencepost_torture._goals import Goal, Size, Yield
from fencepost_torture._tally import Tally
from fencepost_torture._verdict import Verdict

Run = Mapping[str, Any]
"""The facts of a run; the keys are those of `report.facts_of`."""
KEPT = (
    "at",
    "seed",
    "seconds",
    "verdict",
    "effects",
    "lost",
    "doubled",
    "faults",
    "refusals",
    "ambiguous",
    "effects_under_faults",
    "faults_by_kind",
    "crash_points",
    "first_claim_seconds",
    "refusals_by_reason",
    "settled_after_seconds",
    "restarts",
    "ended_by_themselves",
    "tries_charged",
    "violations",
    "void_because",
    "replay",
    "machine",
    "commit",
)


@dataclass(frozen=True, slots=True)
class Score:
    """The runs of one goal, oldest first."""

    name: str
    goal: Goal
    runs: Sequence[Run] = ()

    def with_run(self, facts: Run) -> Score:
        run = {name: facts[name] for name in KEPT}
        return Score(self.name, self.goal, [*self.runs, run])

    def has_seed(self, seed: int) -> bool:
        """Whether the faults of this seed were injected already; a void run may be repeated."""
        return any(run["seed"] == seed and run["verdict"] != "void" for run in self.runs)

    @property
    def next_seed(self) -> int:
        return max((int(run["seed"]) for run in self.runs), default=100) + 1

    @property
    def verdict(self) -> Verdict:
        verdicts = {run["verdict"] for run in self.runs}
        if "violated" in verdicts:
            return "violated"
        return "passed" if "passed" in verdicts else "void"

    @property
    def counted(self) -> list[Run]:
        """The first run of each seed that passed."""
        found: dict[int, Run] = {}
        for run in self.runs:
            if run["verdict"] == "passed":
                found.setdefault(run["seed"], run)
        return list(found.values())

    @property
    def brought(self) -> Yield:
        return reduce(Yield.__add__, map(yield_of, self.counted), Yield())

    @property
    def is_complete(self) -> bool:
        return _is_enough(self.goal.sizes, self.brought, self.goal.points())

    def enough(self) -> Callable[[Tally, Mapping[str, int]], bool]:
        """Ends a run when it has contributed what is missing."""
        before, sizes, points = self.brought, self.goal.sizes, self.goal.points()

        def enough(tally: Tally, effects: Mapping[str, int]) -> bool:
            brought = Yield(tally.hit, tally.points, sum(effects.values()))
            return _is_enough(sizes, before + brought, points)

        return enough

    def facts(self) -> dict[str, Any]:
        """The content of the file."""
        counted = self.counted
        return {
            "goal": self.name,
            "verdict": self.verdict,
            "complete": self.is_complete,
            "runs_counted": len(counted),
            "seconds": round(sum(run["seconds"] for run in counted), 1),
            "effects": sum(run["effects"] for run in counted),
            "lost": sum(run["lost"] for run in self.runs),
            "doubled": sum(run["doubled"] for run in self.runs),
            **first_claims(counted),
            "sizes": told(self.goal, self.brought, counted[-1] if counted else None),
            "runs": list(self.runs),
        }


def yield_of(run: Run) -> Yield:
    return Yield(
        Counter(run["faults_by_kind"]),
        Counter(run["crash_points"]),
        sum(run["effects_under_faults"].values()),
    )


def first_claims(runs: Iterable[Run]) -> dict[str, float]:
    """How long after a promotion the first claim came, where standbys were promoted."""
    found = sorted(float(seconds) for run in runs for seconds in run.get("first_claim_seconds") or ())
    if not found:
        return {}
    return {
        "first_claim_p50_seconds": found[len(found) // 2],
        "first_claim_p95_seconds": found[int(len(found) * 0.95)],
    }


def told(goal: Goal, brought: Yield, newest: Run | None) -> list[dict[str, Any]]:
    """How much of each size is reached, and how long the rest takes at the pace of the newest run."""
    points = goal.points()
    return [
        {
            "what": size.what,
            "wanted": size.count,
            "reached": size.reached(brought, points),
            "hours_left": hours_left(size, brought, newest, points) if newest else None,
        }
        for size in goal.sizes
    ]


def hours_left(size: Size, brought: Yield, newest: Run, points: Sequence[str]) -> float | None:
    """At the pace of the newest run; None when that run contributed nothing to a size that is missing."""
    pace = size.amounts(yield_of(newest), points)
    missing = {
        name: size.count - amount
        for name, amount in size.amounts(brought, points).items()
        if amount < size.count
    }
    if not all(pace[name] for name in missing):
        return None
    seconds = max((left / pace[name] * newest["seconds"] for name, left in missing.items()), default=0.0)
    return round(seconds / 3600, 2)


def _is_enough(sizes: Iterable[Size], brought: Yield, points: Sequence[str]) -> bool:
    return all(size.reached(brought, points) >= size.count for size in sizes)
