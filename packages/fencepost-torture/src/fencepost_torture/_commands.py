"""`fencepost torture`: run the systems under seeded faults, and give a verdict."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.exit_codes import ExitCode, UserError
from fencepost.cli.shutdown import interrupted_by_all
from fencepost.cli.terminal import JsonOption, answer, answer_json, logs_json, remark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fencepost_torture._disk import Disk
    from fencepost_torture._goals import Goal
    from fencepost_torture._plan import RunPlan
    from fencepost_torture._run import RunResult
    from fencepost_torture._score import Score

SHOWN_MAX = 20
EXITS = {"passed": ExitCode.OK, "violated": ExitCode.PROBLEM, "void": ExitCode.VOID}


def torture(
    seed: Annotated[
        int, typer.Option("--seed", help="The schedule of faults; the same seed, the same faults.")
    ] = 1,
    minutes: Annotated[float | None, typer.Option("--minutes", min=0, help="Duration of the faults.")] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            min=1,
            help="The duration in seconds.",
            show_default="60; a goal, until it is reached",
        ),
    ] = None,
    faults: Annotated[
        str, typer.Option("--faults", help="Families or kinds, with commas.", show_default="all")
    ] = "",
    systems: Annotated[
        str,
        typer.Option(
            "--systems",
            help="Systems, with commas; module:class for your own.",
            show_default="the first six",
        ),
    ] = "",
    points: Annotated[
        str, typer.Option("--points", help="Crash points, with commas.", show_default="all")
    ] = "",
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--setting", help="A setting of PostgreSQL, as in synchronous_commit=off; several times."
        ),
    ] = None,
    goal: Annotated[
        str | None,
        typer.Option("--goal", help="A predefined goal: its systems, faults and pace."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report", help="The file for the report page.", show_default=".fencepost/torture/last.html"
        ),
    ] = None,
    result: Annotated[
        Path | None,
        typer.Option("--result", help="Also write the figures as JSON; runs of a goal accumulate in it."),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Run the real processes under faults, and check every effect.

    \b
    Faults:   process (kill crash pause stall)      postgres redis (kill restart freeze, wipe)
              network (delay cut half-open ...)     clock     disk     power, restore (only by name)
    Systems:  leases jobs orders players nonces flows; only by name: odd-jobs sinks transactions judge
              workflows bulk-nonces bulk-flows steady-flows
    Goals:    crashes further-crashes workflows pauses servers network power failover nonces streams

    \b
    It starts a PostgreSQL and a Valkey of its own, and touches no other. The results are in
    .fencepost/torture/last.json, with the command that repeats the same faults.

    \b
    Exit codes: 0 no guarantee was broken; 1 one was; 8 the run had too few faults to prove anything.
    """
    from fencepost.private_folder import make_private  # noqa: PLC0415
    from fencepost.settings import Settings  # noqa: PLC0415
    from fencepost_torture._report import facts_of, keep, keep_run, write  # noqa: PLC0415 - Slow to load.
    from fencepost_torture._schedule import unavailable  # noqa: PLC0415

    wanted = _goal(goal)
    plan, disk, faketime = _plan(
        seed,
        _seconds(minutes, seconds, math.inf if wanted else 60.0),
        _names(faults) or (wanted.faults if wanted else ()),
        _names(systems) or (wanted.systems if wanted else ()),
        _names(points),
        _settings(setting or []),
    )
    # With other systems, faults or settings the run has the goal's pace, but does not count towards it.
    is_part = not (faults or systems or points or setting)
    score = _score(goal, result, seed, is_part=is_part) if goal else None
    if wanted and score:
        plan = replace(
            plan,
            gap_seconds=wanted.gap_seconds,
            lease_seconds=wanted.lease_seconds,
            floors=wanted.floors,
            pace=wanted.pace,
        )
        if math.isinf(plan.seconds):
            if score.is_complete:
                raise UserError(
                    f"{result} has all of {goal}. With --seconds or --minutes another run is added to it.",
                    ExitCode.USAGE,
                )
            plan = replace(plan, enough=score.enough())
    outcome = _run(plan, disk, faketime)
    facts = facts_of(outcome, unavailable(plan.kinds), goal)
    make_private(Settings.load().data_directory)
    page = write(facts, Settings.load().data_directory / "torture", report)
    if result is not None and score and is_part:
        keep_run(score.name, facts, result)
    elif result is not None:
        keep(facts, result)
    if json_output or logs_json():
        answer_json(facts, indent=None if logs_json() else 2)
    else:
        _tell(outcome, page)
    raise typer.Exit(EXITS[outcome.judgement.verdict])


def _plan(
    seed: int,
    seconds: float,
    faults: Sequence[str],
    systems: Sequence[str],
    points: Sequence[str],
    settings: Mapping[str, str],
) -> tuple[RunPlan, Disk | None, Path | None]:
    from fencepost_torture._disk import choose_disk  # noqa: PLC0415
    from fencepost_torture._plan import RunPlan  # noqa: PLC0415
    from fencepost_torture._schedule import chosen_kinds  # noqa: PLC0415
    from fencepost_torture._wall_clocks import choose_clocks  # noqa: PLC0415
    from fencepost_torture.systems import PLACES, system_of  # noqa: PLC0415

    # As with `python -m`, modules in the current directory can be imported, by the fork server too.
    sys.path.insert(0, str(Path.cwd()))
    try:
        kinds = chosen_kinds(faults)
        names = list(systems) or list(PLACES)
        known = {point for name in names for point in system_of(name).points}
    except (ValueError, ImportError, AttributeError) as error:
        raise UserError(str(error), ExitCode.USAGE) from error
    strange = [point for point in points if point not in known]
    if strange:
        raise UserError(
            f"{', '.join(names)} have no crash point {', '.join(strange)}; "
            f"allowed: {', '.join(sorted(known)) or 'none'}.",
            ExitCode.USAGE,
        )
    disk, kinds = choose_disk(kinds, seconds)
    faketime, kinds = choose_clocks(kinds)
    return RunPlan(seed, seconds, names, kinds, points, server_settings=settings), disk, faketime


def _goal(name: str | None) -> Goal | None:
    from fencepost_torture._goals import GOALS  # noqa: PLC0415

    if name is not None and name not in GOALS:
        raise UserError(f"There is no goal {name}; allowed: {', '.join(GOALS)}.", ExitCode.USAGE)
    return GOALS[name] if name else None


def _score(goal: str, result: Path | None, seed: int, *, is_part: bool) -> Score:
    """The score of the previous runs."""
    from fencepost_torture._report import read_kept, read_score  # noqa: PLC0415

    try:
        is_anothers = not is_part and result is not None and result.exists() and "runs" in read_kept(result)
        score = read_score(goal, result if is_part else None)
    except ValueError as error:
        raise UserError(str(error), ExitCode.USAGE) from error
    if is_anothers:
        raise UserError(f"{result} has the runs of a goal, and this is not one of them.", ExitCode.USAGE)
    if is_part and score.has_seed(seed):
        raise UserError(
            f"{result} has a run with seed {seed}: the same faults do not count twice. "
            f"The next seed is {score.next_seed}.",
            ExitCode.USAGE,
        )
    return score


def _run(plan: RunPlan, disk: Disk | None, faketime: Path | None) -> RunResult:
    from rich.console import Console  # noqa: PLC0415

    from fencepost_torture._run import TortureRun  # noqa: PLC0415
    from fencepost_torture._screen import live_screen  # noqa: PLC0415

    length = f"for {plan.seconds:g} s" if math.isfinite(plan.seconds) else "until the goal is reached"
    remark(f"Torture of {', '.join(plan.systems)} {length}, seed {plan.seed}.")
    with interrupted_by_all(), live_screen(plan, Console(stderr=True)) as watch:
        return TortureRun(plan, disk, faketime, watch).run()


def _tell(outcome: RunResult, page: Path) -> None:
    judgement = outcome.judgement
    answer(
        f"{judgement.verdict}: {sum(outcome.effects.values()):,} effects, {judgement.lost} lost, "
        f"{judgement.doubled} doubled; {outcome.tally.hit.total()} faults hit, "
        f"{sum(outcome.refusals.values()):,} writes were refused."
    )
    for system, breach in judgement.breaches[:SHOWN_MAX]:
        answer(f"  {system}: {breach}")
    for reason in judgement.too_easy:
        answer(f"  too easy: {reason}")
    answer(f"Report: {page}")


def _seconds(minutes: float | None, seconds: float | None, otherwise: float) -> float:
    if minutes is not None and seconds is not None:
        raise UserError("Say --minutes or --seconds, not both.", ExitCode.USAGE)
    if minutes is not None:
        return minutes * 60
    return otherwise if seconds is None else seconds


def _names(given: str) -> list[str]:
    return [name.strip() for name in given.split(",") if name.strip()]


def _settings(given: Sequence[str]) -> dict[str, str]:
    wrong = [setting for setting in given if "=" not in setting]
    if wrong:
        raise UserError(f"--setting {wrong[0]} has no value; write NAME=VALUE.", ExitCode.USAGE)
    return dict(setting.split("=", 1) for setting in given)
