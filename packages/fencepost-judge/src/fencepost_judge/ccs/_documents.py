"""The objects of the Contest API as JSON, with the names of its specification. Pure.

A property whose value is null is left out, which the specification allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import PurePath
from typing import Any

from fencepost_judge._contests import Clarification
from fencepost_judge._grading import SKIPPED
from fencepost_judge._language import LanguageSpec
from fencepost_judge._scoreboard import Contest, ScoreboardCell, ScoreboardRow, Scoring
from fencepost_judge._teams import (
    JudgedSubmission,
    Organization,
    ProblemFacts,
    Team,
    TeamAccount,
    TeamGroup,
)

Document = dict[str, Any]
VERSION = "2023-06"
VERSION_URL = "https://ccs-specs.icpc.io/2023-06/contest_api"

JUDGEMENT_TYPES: Sequence[tuple[str, str, bool, bool]] = (
    # Identifier, name, whether it costs penalty time, whether the problem is solved.
    ("AC", "Accepted", False, True),
    ("RE", "Partially accepted", True, False),
    ("WA", "Wrong answer", True, False),
    ("PE", "Presentation error", True, False),
    ("TLE", "Time limit exceeded", True, False),
    ("MLE", "Memory limit exceeded", True, False),
    ("OLE", "Output limit exceeded", True, False),
    ("RTE", "Run-time error", True, False),
    ("CE", "Compile error", False, False),
    ("JE", "Judging error", False, False),
)
_TYPE_OF = {"PA": "RE", "RE": "RTE", "SE": "JE"}
"""The identifiers of our verdicts, where they differ: RE is a rejection without a reason."""
LANGUAGE_IDS = {"python": "python3"}
"""The specification's identifiers of our languages, where they differ."""


def when(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def span(length: timedelta) -> str:
    """A time relative to another one: h:mm:ss.uuu, with a sign if it is negative."""
    total_ms = round(length / timedelta(milliseconds=1))
    seconds, ms = divmod(abs(total_ms), 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{'-' if total_ms < 0 else ''}{hours}:{minutes:02}:{seconds:02}.{ms:03}"


def without_nulls(document: Mapping[str, Any]) -> Document:
    return {name: value for name, value in document.items() if value is not None}


def language_id(name: str) -> str:
    return LANGUAGE_IDS.get(name, name)


def language_of(identifier: str) -> str:
    """Our name of a language by the specification's identifier."""
    return next((ours for ours, theirs in LANGUAGE_IDS.items() if theirs == identifier), identifier)


def contest(one: Contest) -> Document:
    pass_fail = one.scoring is Scoring.ICPC
    return without_nulls(
        {
            "id": one.slug,
            "name": one.title,
            "formal_name": one.title,
            "start_time": when(one.starts_at),
            "duration": span(one.elapsed(one.ends_at)),
            "scoreboard_freeze_duration": None
            if one.freeze_at is None
            else span(one.elapsed(one.ends_at) - one.elapsed(one.freeze_at)),
            "scoreboard_thaw_time": None if one.unfrozen_at is None else when(one.unfrozen_at),
            "scoreboard_type": "pass-fail" if pass_fail else "score",
            "penalty_time": one.penalty_minutes if pass_fail else None,
        }
    )


def state(one: Contest, moment: datetime) -> Document:
    """What has happened by the moment; each of its times, or null."""

    def reached(at: datetime | None) -> str | None:
        return when(at) if at is not None and at <= moment else None

    thawed = one.unfrozen_at if one.freeze_at is not None else None
    final = one.finalized_at
    is_over = final is not None and (one.freeze_at is None or thawed is not None)
    return {
        "started": reached(one.starts_at),
        "frozen": reached(one.freeze_at),
        "ended": reached(one.over_at),
        "thawed": reached(thawed),
        "finalized": reached(final),
        "end_of_updates": reached(max(final, thawed or final)) if is_over and final is not None else None,
    }


def judgement_types(one: Contest) -> list[Document]:
    pass_fail = one.scoring is Scoring.ICPC
    return [
        without_nulls({"id": key, "name": name, "penalty": penalty if pass_fail else None, "solved": solved})
        for key, name, penalty, solved in JUDGEMENT_TYPES
    ]


def language(spec: LanguageSpec, versions: Mapping[str, str]) -> Document:
    version = versions.get(spec.name)
    words = spec.compile or spec.run
    command = {"command": words[0].strip("{}"), "args": _args(words), "version": version}
    return {
        "id": language_id(spec.name),
        "name": spec.title,
        "entry_point_required": False,
        "extensions": [one.removeprefix(".") for one in spec.extensions or [PurePath(spec.source).suffix]],
        "compiler" if spec.compile else "runner": without_nulls(command),
    }


def _args(words: Sequence[str]) -> str:
    """As people read it: the names of files in the place of ours."""
    return " ".join("{files}" if one.startswith("{sources:") else one for one in words[1:])


def problem(one: ProblemFacts, contest: Contest) -> Document:
    return without_nulls(
        {
            "id": one.slug,
            "label": one.label,
            "name": one.title,
            "ordinal": one.ordinal,
            "rgb": one.rgb,
            "color": one.color,
            "time_limit": one.time_ms / 1000,
            "test_data_count": one.tests,
            "max_score": 100 if contest.scoring is Scoring.IOI else None,
        }
    )


def group(one: TeamGroup) -> Document:
    return without_nulls({"id": one.id, "icpc_id": one.icpc_id, "name": one.name, "type": one.type})


def organization(one: Organization) -> Document:
    return without_nulls(
        {
            "id": one.id,
            "icpc_id": one.icpc_id,
            "name": one.name,
            "formal_name": one.formal_name,
            "country": one.country,
        }
    )


def team(one: Team) -> Document:
    """`hidden` excludes from the scoreboard of this API: observers are not ranked."""
    return without_nulls(
        {
            "id": one.id,
            "icpc_id": one.icpc_id,
            "name": one.name,
            "label": one.label or one.id,
            "display_name": one.display_name,
            "organization_id": one.organization,
            "group_ids": list(one.groups),
            "hidden": one.kind.value != "participants",
        }
    )


def persons(teams: Iterable[Team]) -> list[Document]:
    return [
        {"id": f"{one.id}.{place}", "name": name, "role": "contestant", "team_ids": [one.id]}
        for one in teams
        for place, name in enumerate(one.members, 1)
    ]


def account(one: TeamAccount) -> Document:
    return {"id": one.name, "username": one.name, "type": "team", "team_id": one.team}


def submission(one: JudgedSubmission, contest: Contest, *, with_files: bool) -> Document:
    href = f"contests/{contest.slug}/submissions/{one.job_id}/files"
    archive = {"href": href, "filename": "files.zip", "mime": "application/zip"}
    found: Document = {
        "id": str(one.job_id),
        "language_id": language_id(one.language),
        "problem_id": one.slug,
        "team_id": one.team,
        "time": when(one.submitted_at),
        "contest_time": span(contest.elapsed(one.submitted_at, one.team)),
        # No language needs one: the judge finds the program's entry.
        "entry_point": None,
    }
    return {**found, "files": [archive]} if with_files else found


def judgement_id(one: JudgedSubmission) -> str:
    return f"{one.job_id}-{one.generation}" if one.generation else str(one.job_id)


def judgement(one: JudgedSubmission, contest: Contest) -> Document | None:
    """None while it has no result."""
    if one.verdict is None or one.started_at is None or one.judged_at is None:
        return None
    scoring = contest.scoring is Scoring.IOI
    whole = 100.0 if one.verdict == "AC" else 0.0
    return without_nulls(
        {
            "id": judgement_id(one),
            "submission_id": str(one.job_id),
            "judgement_type_id": judgement_type(one.verdict),
            "score": (whole if one.score is None else one.score) if scoring else None,
            "start_time": when(one.started_at),
            "start_contest_time": span(contest.elapsed(one.started_at, one.team)),
            "end_time": when(one.judged_at),
            "end_contest_time": span(contest.elapsed(one.judged_at, one.team)),
            "max_run_time": (one.time_ms or 0) / 1000,
        }
    )


def judgement_type(verdict: str) -> str:
    return _TYPE_OF.get(verdict, verdict)


def runs(one: JudgedSubmission, contest: Contest) -> list[Document]:
    """The tests that were run. When each ended is not kept: it is the time of the judgement."""
    if one.judged_at is None:
        return []
    return [
        {
            "id": f"{judgement_id(one)}.{place}",
            "judgement_id": judgement_id(one),
            "ordinal": place,
            "judgement_type_id": judgement_type(case["verdict"]),
            "time": when(one.judged_at),
            "contest_time": span(contest.elapsed(one.judged_at, one.team)),
            "run_time": case["time_ms"] / 1000,
        }
        for place, case in enumerate(one.cases, 1)
        if case["verdict"] != SKIPPED
    ]


def clarifications(one: Clarification, contest: Contest, teams: Mapping[str, str]) -> list[Document]:
    """A question and its answer are two objects; an announcement is one. `teams` has the team of each
    user."""
    asker = teams.get(one.author)
    slug = next((problem.slug for problem in contest.problems if problem.label == one.label), None)

    def message(key: str, said: str, at: datetime, **more: Any) -> Document:
        return without_nulls(
            {
                "id": key,
                **more,
                "problem_id": slug,
                "text": said,
                "time": when(at),
                "contest_time": span(contest.elapsed(at, asker)),
            }
        )

    key = str(one.clarification_id)
    if not one.question:
        assert one.answer is not None
        assert one.answered_at is not None
        return [message(key, one.answer, one.answered_at)]
    found = [message(key, one.question, one.asked_at, from_team_id=asker)]
    if one.answer is not None and one.answered_at is not None:
        to = None if one.to_all else asker
        found.append(message(f"{key}-answer", one.answer, one.answered_at, to_team_id=to, reply_to_id=key))
    return found


def scoreboard(
    one: Contest, lines: Iterable[ScoreboardRow], moment: datetime, *, group: str | None = None
) -> Document:
    """Ranked teams; those of one group are ranked among themselves by the caller."""
    return {
        "time": when(moment),
        "contest_time": span(one.elapsed(moment)),
        "state": state(one, moment),
        "rows": [
            _row(one, line)
            for line in lines
            if line.rank is not None and (group is None or group in line.groups)
        ],
    }


def _row(one: Contest, line: ScoreboardRow) -> Document:
    last = max(
        (cell.solved_minute for cell in line.cells.values() if cell.solved_minute is not None), default=None
    )
    if one.scoring is Scoring.ICPC:
        score: Document = {"num_solved": line.solved, "total_time": line.penalty, "time": last}
    else:
        score = {"score": line.points or 0}
    return {
        "rank": line.rank,
        "team_id": line.team_id,
        "score": without_nulls(score),
        "problems": [_cell(one, problem.slug, line.cells[problem.label]) for problem in one.problems],
    }


def _cell(one: Contest, slug: str, cell: ScoreboardCell) -> Document:
    found: Document = {"problem_id": slug, "num_judged": cell.judged, "num_pending": cell.pending}
    if one.scoring is Scoring.ICPC:
        found |= {"solved": cell.solved_minute is not None}
    else:
        found |= {"score": cell.points or 0}
    return found if cell.solved_minute is None else found | {"time": cell.solved_minute}


def awards(one: Contest, lines: Sequence[ScoreboardRow], groups: Iterable[TeamGroup]) -> list[Document]:
    """As if the contest ended now: the winner, the medals by rank, the first to solve each problem, and the
    best of each group. A team without a solution gets none."""
    ranked = [line for line in lines if line.rank is not None and _has_scored(line)]
    gold, silver, bronze = one.medals
    bounds = (
        ("gold-medal", "Gold medal winner", 0, gold),
        ("silver-medal", "Silver medal winner", gold, gold + silver),
        ("bronze-medal", "Bronze medal winner", gold + silver, gold + silver + bronze),
    )
    found = [("winner", "Contest winner", [line.team_id for line in ranked if line.rank == 1])]
    found += [
        (key, citation, [line.team_id for line in ranked if low < (line.rank or 0) <= high])
        for key, citation, low, high in bounds
        if high > low
    ]
    for problem in one.problems:
        first = [line.team_id for line in ranked if line.cells[problem.label].first]
        found.append((f"first-to-solve-{problem.slug}", f"First to solve problem {problem.label}", first))
    for group in groups:
        within = [line for line in ranked if group.id in line.groups]
        best = min((line.rank or 0 for line in within), default=0)
        winners = [line.team_id for line in within if line.rank == best]
        found.append((f"group-winner-{group.id}", f"Winner of {group.name}", winners))
    return [{"id": key, "citation": citation, "team_ids": teams} for key, citation, teams in found]


def _has_scored(line: ScoreboardRow) -> bool:
    return line.solved > 0 or bool(line.points)
