"""What a run leaves for people and programs: one JSON file, and one self-contained page."""

from __future__ import annotations

import fcntl
import json
import math
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from fencepost._code_version import revision
from fencepost_torture._goals import GOALS
from fencepost_torture._page import page_of
from fencepost_torture._run import RunResult
from fencepost_torture._score import Score, told, yield_of

LAST = "last.json"
FAULTS_MAX = 2000
BREACHES_MAX = 200
LONG = {"schedule", "charged", "moments", "log", "rows", "goals", "not_available"}


def facts_of(outcome: RunResult, not_available: Mapping[str, str], goal: str | None = None) -> dict[str, Any]:
    """The whole run as plain values. The console reads `name`, `rows` and `goals`."""
    judgement, tally, plan = outcome.judgement, outcome.tally, outcome.plan
    facts: dict[str, Any] = {
        "name": f"torture, seed {plan.seed}",
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "verdict": judgement.verdict,
        "effects": sum(outcome.effects.values()),
        "lost": judgement.lost,
        "doubled": judgement.doubled,
        "faults": tally.hit.total(),
        "refusals": sum(outcome.refusals.values()),
        "ambiguous": outcome.hardness.ambiguous,
        "seed": plan.seed,
        "seconds": round(outcome.seconds, 1),
        "settled_after_seconds": round(outcome.settled_after, 1),
        "systems": list(plan.systems),
        "effects_by_system": dict(outcome.effects),
        "effects_under_faults": dict(outcome.hardness.effects),
        "faults_by_kind": dict(sorted(tally.hit.items())),
        "faults_scheduled": dict(sorted(tally.struck.items())),
        "crash_points": dict(sorted(tally.points.items())),
        "first_claim_seconds": [round(seconds, 2) for seconds in tally.first_claims],
        "refusals_by_reason": dict(outcome.refusals),
        "restarts": outcome.restarts,
        "ended_by_themselves": outcome.ended_by_themselves,
        "tries_charged": len(outcome.tries_charged),
        "charged": list(outcome.tries_charged[:BREACHES_MAX]),
        "violations": [
            {"system": system, "rule": breach.rule, "key": breach.key, "what": breach.what}
            for system, breach in judgement.breaches[:BREACHES_MAX]
        ],
        "void_because": list(judgement.too_easy),
        "not_available": dict(not_available),
        "replay": replay_command(outcome, goal),
        "machine": _machine(),
        "commit": revision(),
        "rows": _rows(outcome),
        "goals": _goals(outcome),
        "moments": [[round(moment.at, 1), sum(moment.effects.values())] for moment in outcome.moments],
        "schedule": [
            {"at": round(struck.at, 2), **struck.fault.facts()}
            for struck in tally.planned_faults[:FAULTS_MAX]
        ],
        "log": outcome.log,
    }
    if goal is None:
        return {**facts, "goal": None}
    return {**facts, "goal": {"name": goal, "sizes": told(GOALS[goal], yield_of(facts), facts)}}


def replay_command(outcome: RunResult, goal: str | None = None) -> str:
    plan = outcome.plan
    seconds = min(plan.seconds, math.ceil(outcome.seconds))
    command = f"fencepost torture --seed {plan.seed} --seconds {seconds:g}"
    return (
        command
        + (f" --goal {goal}" if goal else "")
        + f" --systems {','.join(plan.systems)} --faults {','.join(plan.kinds)}"
        + (f" --points {','.join(plan.points)}" if plan.points else "")
        + "".join(f" --setting {name}={value}" for name, value in plan.server_settings.items())
    )


def keep(facts: Mapping[str, Any], path: Path) -> None:
    """Write what is worth keeping for years: the figures, without the schedule and the log."""
    short = {name: value for name, value in facts.items() if name not in LONG}
    _put(path, json.dumps(short, indent=2) + "\n")


def read_score(name: str, path: Path | None) -> Score:
    """The runs of a goal that the file has. A file with something else is not overwritten."""
    if path is None or not path.exists():
        return Score(name, GOALS[name])
    kept = read_kept(path)
    if kept.get("goal") != name or "runs" not in kept:
        raise ValueError(f"{path} does not have the runs of the goal {name}.")
    score = Score(name, GOALS[name], kept["runs"])
    try:
        # Everything that is read from the runs must be there, before hours are spent on another run.
        score.facts()
        score.next_seed  # noqa: B018
    except (AttributeError, KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise ValueError(
            f"{path} has a run of the goal {name} that cannot be read ({type(error).__name__}: {error}). "
            "Restore the file, or begin a new one."
        ) from error
    return score


def read_kept(path: Path) -> Mapping[str, Any]:
    """The figures in a file that `keep` or `keep_score` wrote."""
    try:
        kept: Any = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        kept = None
    if isinstance(kept, dict):
        return cast("Mapping[str, Any]", kept)
    raise ValueError(f"{path} is not a torture result and would be overwritten. Name another file.")


def keep_run(name: str, facts: Mapping[str, Any], path: Path) -> None:
    """Add a run to those of its goal that the file has now: others may have ended while this one ran."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        keep_score(read_score(name, path).with_run(facts), path)


def keep_score(score: Score, path: Path) -> None:
    _put(path, json.dumps(score.facts(), indent=2) + "\n")


def write(facts: Mapping[str, Any], directory: Path, page: Path | None = None) -> Path:
    """`last.json` is of the newest run. Page and figures are beside it, or also at the given path."""
    text = json.dumps(facts, indent=2) + "\n"
    _put(directory / LAST, text)
    if page is not None:
        _put(page.with_suffix(".json"), text)
    page = page or directory / "last.html"
    _put(page, page_of(facts))
    return page


def _put(path: Path, text: str) -> None:
    """Replace the file atomically: a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def _rows(outcome: RunResult) -> list[dict[str, Any]]:
    broken = [system for system, _ in outcome.judgement.breaches]
    return [
        {
            "system": system,
            "effects": effects,
            "effects_per_second": round(effects / outcome.seconds, 1),
            "violations": broken.count(system),
        }
        for system, effects in outcome.effects.items()
    ]


def _goals(outcome: RunResult) -> list[dict[str, Any]]:
    floors, hard = outcome.plan.floors, outcome.hardness
    figures = (
        (
            "effects under faults",
            sum(hard.effects.values()),
            floors.effects_per_second * hard.seconds,
            False,
        ),
        ("faults that hit", hard.hits, floors.hits_per_second * hard.seconds, False),
        ("ambiguous outcomes", hard.ambiguous, floors.ambiguous_per_second * hard.seconds, False),
        ("violations", len(outcome.judgement.breaches), 0, True),
    )
    return [
        {
            "name": name,
            "measured": float(measured),
            "goal": round(float(goal), 1),
            "at_most": at_most,
            "met": measured <= goal if at_most else measured >= goal,
        }
        for name, measured, goal, at_most in figures
    ]


def _machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count() or 0,
        "load_1m": round(os.getloadavg()[0], 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
