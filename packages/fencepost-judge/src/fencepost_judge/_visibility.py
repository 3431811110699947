"""What a visitor may see, decided in one place for the API and the pages. What it may not see is reported
as not found."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from fencepost.client import Fencepost
from fencepost.errors import NotFound
from fencepost_judge import _contests as contests
from fencepost_judge import _teams as teams
from fencepost_judge._contests import Clarification, SeenContest
from fencepost_judge._custom_runs import CustomRun, no_custom_run
from fencepost_judge._figures import Figures
from fencepost_judge._grading import SKIPPED
from fencepost_judge._judge_calls import PastSubmission, ProblemTitle, StoredProblem, SubmissionStanding
from fencepost_judge._problem import StatementFile, TestCase
from fencepost_judge._role import JudgeRole, JudgeVisitor
from fencepost_judge._scoreboard import Contest, Feedback, ScoreboardRow, scoreboard
from fencepost_judge._service import Judging, final_status
from fencepost_judge._submission_watch import no_submission

KEEP_ALIVE_LOOKS = 60
SAMPLE_BYTES_MAX = 4096
OVER = frozenset({"FINISHED", "DEAD", "CANCELLED"})
RECEIVED = "RECEIVED"
"""In the place of a verdict that its author is not told yet."""


@dataclass(frozen=True, slots=True)
class Sample:
    name: str
    input: str
    answer: str


@dataclass(frozen=True, slots=True)
class VisibleBoard:
    """A scoreboard as the visitor may see it at a moment."""

    seen: SeenContest
    moment: datetime
    lines: Sequence[ScoreboardRow]

    @property
    def contest(self) -> Contest:
        return self.seen.contest


async def problems(
    judging: Judging, who: JudgeVisitor, after: str | None, limit: int
) -> tuple[list[ProblemTitle], str | None]:
    """Problems by slug, without those of contests that have not begun; and where the list continues, or
    None."""
    found = await judging.problems(after, limit)
    slugs = [] if who.may(JudgeRole.JURY) else [one.slug for one in found]
    hidden = await judging.fp.run(contests.hidden(slugs))
    further = found[-1].slug if len(found) == limit else None
    return [one for one in found if one.slug not in hidden], further


async def problem(judging: Judging, who: JudgeVisitor, slug: str) -> StoredProblem:
    if not who.may(JudgeRole.JURY):
        await judging.check_shown(slug)
    return await judging.problem(slug)


async def samples(judging: Judging, found: StoredProblem) -> list[Sample]:
    """The samples, never the secret data. Empty for an interactive problem, whose input is what the
    validator knows."""
    if found.problem.interactive:
        return []
    cases = [case for case in found.problem.data.all_cases() if case.sample and not case.static]
    return [await asyncio.to_thread(_sample, judging, case) for case in cases]


async def attachment(judging: Judging, who: JudgeVisitor, slug: str, name: str) -> Response:
    """A file of the package, for every visitor that may see the problem. It is served as a download, never
    as a page."""
    found = await problem(judging, who, slug)
    if name not in found.problem.attachments:
        raise NotFound(f"{slug} has no attachment of this name.", noun="attachment", subject=slug)
    content = await asyncio.to_thread(judging.store.get, found.problem.attachments[name])
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "private, no-store",
    }
    return Response(content, media_type="application/octet-stream", headers=headers)


def statement_file(found: StoredProblem, name: str) -> StatementFile:
    """A statement of the problem by its name, such as `en.pdf`."""
    wanted = next((one for one in found.problem.statements if one.name == name), None)
    if wanted is None:
        raise NotFound(f"{found.slug} has no such statement.", noun="statement", subject=found.slug)
    return wanted


async def statement(judging: Judging, who: JudgeVisitor, slug: str, name: str) -> Response:
    """A statement as it was written. Only a PDF is shown by a browser; every other form is a download."""
    wanted = statement_file(await problem(judging, who, slug), name)
    content = await asyncio.to_thread(judging.store.get, wanted.content)
    is_pdf = wanted.format == "pdf"
    how = "inline" if is_pdf else "attachment"
    headers = {
        "Content-Disposition": f"{how}; filename*=UTF-8''{quote(name, safe='')}",
        "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "private, no-store",
    }
    return Response(
        content, media_type="application/pdf" if is_pdf else "application/octet-stream", headers=headers
    )


async def standing(judging: Judging, who: JudgeVisitor, job_id: int) -> SubmissionStanding:
    found = await judging.standing(job_id)
    if not who.sees(found.author):
        raise no_submission(job_id)
    return found


async def custom_run(judging: Judging, who: JudgeVisitor, job_id: int) -> CustomRun:
    found = await judging.custom_runs.get(job_id)
    if not who.sees(found.author):
        raise no_custom_run(job_id)
    return found


async def contest(fp: Fencepost, slug: str) -> SeenContest:
    found = await fp.run(contests.contests(one=slug, limit=1))
    if not found:
        raise no_contest(slug)
    return found[0]


def no_contest(slug: str) -> NotFound:
    return NotFound(f"There is no contest {slug}.", noun="contest", subject=slug)


async def board(
    fp: Fencepost, who: JudgeVisitor | None, slug: str, moment: datetime | None = None
) -> VisibleBoard:
    """The scoreboard, now or at an earlier moment. A jury also sees what the freeze hides; without a visitor
    only that of a public contest is there."""
    found = await contest(fp, slug)
    if who is None and not found.contest.is_public:
        raise no_contest(slug)
    at = min(moment or found.seen_at, found.seen_at)
    entrants = [one.entrant for one in await fp.run(teams.teams(slug))]
    entries = await fp.run(contests.entries(slug))
    sees_all = who is not None and who.may(JudgeRole.JURY)
    return VisibleBoard(found, at, scoreboard(found.contest, entrants, entries, at, sees_all=sees_all))


async def own_line(fp: Fencepost, who: JudgeVisitor, seen: SeenContest) -> ScoreboardRow | None:
    """The visitor's own line of the scoreboard: its team sees its own results during the freeze."""
    team = await fp.run(contests.team_of(seen.contest.slug, who.name))
    if team is None:
        return None
    found = await fp.run(teams.teams(seen.contest.slug, [team]))
    entries = [one for one in await fp.run(contests.entries(seen.contest.slug)) if one.team == team]
    told = seen.contest.feedback is not Feedback.NONE or seen.is_over
    lines = scoreboard(seen.contest, [one.entrant for one in found], entries, seen.seen_at, sees_all=told)
    return lines[0] if lines else None


async def clarifications(
    fp: Fencepost, who: JudgeVisitor, slug: str, after: int | None = None
) -> list[Clarification]:
    """The visitor's own questions and everything that was sent to all, without the names of others; for a
    jury, everything."""
    if who.may(JudgeRole.JURY):
        return await fp.run(contests.clarifications(slug, seen_by=None, after=after))
    found = await fp.run(contests.clarifications(slug, seen_by=who.name, after=after))
    return [one if one.author == who.name or not one.question else replace(one, author="") for one in found]


async def history(
    judging: Judging, who: JudgeVisitor, author: str, before: int | None, limit: int
) -> list[PastSubmission]:
    """The submissions of an author, newest first."""
    found = await judging.history(author, before, limit)
    if who.may(JudgeRole.JURY):
        return list(found)
    return [_past(one) for one in found]


def _past(one: PastSubmission) -> PastSubmission:
    if one.feedback is Feedback.NONE and one.verdict not in (None, "CE"):
        return replace(one, verdict=RECEIVED, score=None, time_ms=None, mem_kb=None)
    return replace(one, time_ms=one.figures.time_ms(one.time_ms), mem_kb=one.figures.mem_kb(one.mem_kb))


def as_json(found: SubmissionStanding, who: JudgeVisitor) -> dict[str, Any]:
    """The document of one submission, with the field names of the protocol."""
    result: dict[str, Any] = dict(found.result or {})
    progress = found.progress
    if not who.may(JudgeRole.JURY):
        result = _fed_back(_without_secrets(result, found.figures), found.feedback) if result else result
        progress = _told_progress(progress, found.figures, found.feedback)
    # A job that is gone and left no recorded end was pruned before ends were kept: it had no verdict.
    state, ended_as = str(found.job.get("state", "cancelled")).upper(), found.job.get("final_status")
    return {
        "job_id": found.job_id,
        "problem_id": found.slug,
        "problem_version": found.version,
        "language": found.language,
        "author": found.author,
        "submitted_at": found.submitted_at.isoformat(),
        "status": "FINISHED" if result else state,
        "attempt_id": result.get("attempt", found.job.get("attempt")),
        "final_status": final_status(result["verdict"]) if result else ended_as,
        "progress": progress,
        "result": result or None,
    }


def _without_secrets(result: Mapping[str, Any], figures: Figures) -> dict[str, Any]:
    """Removes what reveals the input or answer of a secret test: its name, messages of the validator and of
    the comparison, and how the program ended, since a program can choose that. Messages of the compiler and
    about samples stay."""
    failed = next((case for case in result["cases"] if case["verdict"] not in ("AC", SKIPPED)), None)
    told = failed is None or _is_sample(failed)
    cases, number = list[Mapping[str, Any]](), 0
    for one in result["cases"]:
        number += not _is_sample(one)
        cases.append(one if _is_sample(one) else _secret(one, number, figures))
    return {
        **_measured(result, figures),
        "cases": cases,
        "message": result["message"] if told else "",
        "points": {f"subtask {place}": had for place, had in enumerate(result["points"].values(), 1)},
    }


def _fed_back(result: Mapping[str, Any], feedback: Feedback) -> dict[str, Any]:
    """What the contest tells of a result before it is over. That a program does not compile is always
    told."""
    if feedback is Feedback.FULL or result["verdict"] == "CE":
        return dict(result)
    samples = [one for one in result["cases"] if _is_sample(one)]
    little = {**result, "cases": samples, "time_ms": None, "mem_kb": None}
    if feedback is Feedback.POINTS:
        return little
    failed = next((one for one in samples if one["verdict"] != "AC"), None)
    message = failed["message"] if failed is not None else ""
    return {**little, "verdict": RECEIVED, "score": None, "points": {}, "message": message}


def _secret(case: Mapping[str, Any], number: int | None, figures: Figures) -> dict[str, Any]:
    """A test under a neutral name: its own tells the trap."""
    told = {name: value for name, value in _measured(case, figures).items() if name != "output"}
    # The program knows the input: what it writes to its stderr is as secret, unless the contest is open.
    errors = case.get("errors", "") if figures is Figures.OPEN else ""
    return {**told, "name": f"test {number}" if number else "test", "message": "", "errors": errors}


def _told_progress(progress: Any, figures: Figures, feedback: Feedback) -> Any:
    if not progress:
        return progress
    latest = progress.get("latest", ())
    if feedback is not Feedback.FULL:
        # How many tests are done says which one failed, where the rest is skipped.
        return {"done": 0, "total": progress["total"], "latest": [one for one in latest if _is_sample(one)]}
    told = [one if _is_sample(one) else _secret(one, one.get("number"), figures) for one in latest]
    names = ("name", "verdict", "time_ms", "mem_kb")
    return {**progress, "latest": [{name: one[name] for name in names if name in one} for one in told]}


def _measured(told: Mapping[str, Any], figures: Figures) -> dict[str, Any]:
    return {
        **told,
        "time_ms": figures.time_ms(told.get("time_ms")),
        "mem_kb": figures.mem_kb(told.get("mem_kb")),
    }


def _is_sample(case: Mapping[str, Any]) -> bool:
    return str(case["name"]).startswith("sample/")


async def at_last(
    judging: Judging, who: JudgeVisitor, job_id: int, *, within_seconds: float
) -> dict[str, Any]:
    """The state of a submission when it is over, or after so long. Counts as a stream: the waiting are
    bounded."""
    until = time.monotonic() + within_seconds
    end = judging.streams.begin(who.name if who.is_user else "")
    try:
        seen = as_json(await judging.standing(job_id), who)
        while seen["status"] not in OVER and time.monotonic() < until:
            seen = as_json(await judging.submission_watch.next(job_id), who)
        return seen
    finally:
        end()


async def events(
    judging: Judging, who: JudgeVisitor, job_id: int, *, lifetime_seconds: float = math.inf
) -> AsyncGenerator[str]:
    """Events found by polling, with one query for all watchers: the next query finds a change that was
    missed, so no state has to be kept."""
    told, still, until = "", 0, time.monotonic() + lifetime_seconds
    seen = await judging.standing(job_id)
    while time.monotonic() < until:
        document = as_json(seen, who)
        line = json.dumps(document, default=str)
        if line != told:
            told, still = line, 0
            yield f"event: status\ndata: {line}\n\n"
        if document["status"] in OVER:
            return
        still += 1
        if still % KEEP_ALIVE_LOOKS == 0:
            yield ": still here\n\n"
        seen = await judging.submission_watch.next(job_id)


def _sample(judging: Judging, case: TestCase) -> Sample:
    def shown(digest: str) -> str:
        return judging.store.get(digest)[:SAMPLE_BYTES_MAX].decode("utf-8", "replace")

    return Sample(case.name, shown(case.input), shown(case.answer))
