"""The calls to the judge's database functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Literal, Protocol

from fencepost.kernel.call import (
    Call,
    Json,
    document,
    duration,
    each,
    nothing,
    one,
    optional_text,
    parsed,
    scalar,
    text,
)
from fencepost_judge._case_result import CaseResult
from fencepost_judge._figures import Figures
from fencepost_judge._judging import Cause, Judgement
from fencepost_judge._problem import Problem
from fencepost_judge._scoreboard import Feedback
from fencepost_judge._settings import JudgeSettings

OUTPUTS_MAX = 3
"""Of so many failed tests the output is stored."""


class Holder(Protocol):
    """A job in the hands of its owner."""

    @property
    def id(self) -> int: ...

    @property
    def attempt(self) -> int: ...

    @property
    def owner(self) -> str: ...


@dataclass(frozen=True, slots=True)
class StoredProblem:
    slug: str
    version: int
    title: str
    problem: Problem


@dataclass(frozen=True, slots=True)
class ProblemTitle:
    slug: str
    version: int
    title: str


@dataclass(frozen=True, slots=True)
class JudgingTask:
    """What a worker judges."""

    language: str
    sources: Mapping[str, str]
    problem: Problem


@dataclass(frozen=True, slots=True)
class SubmissionStanding:
    """The state of a submission."""

    job_id: int
    slug: str
    version: int
    language: str
    author: str
    submitted_at: datetime
    job: Mapping[str, Json]
    progress: Json
    result: Json
    figures: Figures = Figures.SHOWN
    feedback: Feedback = Feedback.FULL
    """What its author is told of the result."""
    contest: str | None = None


@dataclass(frozen=True, slots=True)
class PastSubmission:
    job_id: int
    slug: str
    language: str
    submitted_at: datetime
    verdict: str | None
    score: float | None
    time_ms: int | None
    mem_kb: int | None
    status: str | None = None
    figures: Figures = Figures.SHOWN
    feedback: Feedback = Feedback.FULL
    contest: str | None = None


@dataclass(frozen=True, slots=True)
class Stands:
    """A summary of a submission's standing result."""

    verdict: str
    score: float | None
    time_ms: int
    mem_kb: int


@dataclass(frozen=True, slots=True)
class RecentSubmission:
    """One of the recent submissions of all authors."""

    job_id: int
    slug: str
    author: str
    language: str
    submitted_at: datetime
    verdict: str | None
    score: float | None
    time_ms: int | None
    mem_kb: int | None
    status: str | None = None


def put_problem(problem: Problem) -> Call[int]:
    """Import a problem; returns the version."""
    return Call(
        "select fencepost.judge_problem_put(%s::text, %s::text, %s::jsonb)",
        (problem.slug, text("title", problem.title), document("spec", problem.model_dump(mode="json"))),
        scalar,
    )


def get_problem(slug: str) -> Call[list[StoredProblem]]:
    return Call(
        "select slug, version, title, spec::text from fencepost.judge_problem_get(%s::text)",
        (text("problem", slug),),
        each(_stored),
    )


def languages(slug: str, language: str) -> Call[list[str]]:
    """The languages that judging a program of `language` takes: its own, the validators' and the grader's."""
    return Call(
        "select fencepost.judge_languages(%s::text, %s::text)",
        (text("problem", slug), text("language", language)),
        scalar,
    )


def submission_languages(job_ids: Sequence[int]) -> Call[dict[int, tuple[str, ...]]]:
    """The same for submissions."""
    return Call(
        "select job_id, languages from fencepost.judge_submission_languages(%s::bigint[])",
        (list(job_ids),),
        lambda rows: {job_id: tuple(languages) for job_id, languages in rows},
    )


def list_problems(after: str | None, limit: int) -> Call[list[ProblemTitle]]:
    return Call(
        "select slug, version, title from fencepost.judge_problem_list(%s::text, %s::integer)",
        (optional_text("after", after), limit),
        each(ProblemTitle),
    )


def get_titles(slugs: Sequence[str]) -> Call[list[ProblemTitle]]:
    return Call(
        "select slug, version, title from fencepost.judge_problem_titles(%s::text[])",
        ([text("problem", slug) for slug in slugs],),
        each(ProblemTitle),
    )


def withdraw(job_id: int, actor: str, scope: str, key: str | None) -> Call[None]:
    """Remove a submission that was not delivered, with its job and its idempotency key. Refused when its job
    is no longer pending."""
    return Call(
        "select fencepost.judge_withdraw(%s::bigint, %s::text, %s::text, %s::text)",
        (job_id, text("actor", actor), text("scope", scope), key),
        nothing,
    )


def put_submission(
    job_id: int,
    slug: str,
    language: str,
    author: str,
    sources: Mapping[str, str],
    contest: str | None = None,
) -> Call[None]:
    return Call(
        "select fencepost.judge_submission_put(%s::bigint, %s::text, %s::text, %s::text, %s::jsonb,"
        " %s::text)",
        (
            job_id,
            text("problem", slug),
            language,
            text("author", author),
            document("sources", dict(sources)),
            optional_text("contest", contest),
        ),
        nothing,
    )


def get_task(job_id: int) -> Call[list[JudgingTask]]:
    return Call(
        "select language, sources::text, spec::text from fencepost.judge_case(%s::bigint)",
        (job_id,),
        each(_task),
    )


def put_result(job_id: int, attempt: int, owner: str, judgement: Judgement) -> Call[bool]:
    """Store a result; refused unless the caller holds this attempt. Returns whether the result was kept."""
    return Call(
        "select fencepost.judge_result_put(%s::bigint, %s::bigint, %s::text, %s::text, %s::double precision,"
        " %s::bigint, %s::bigint, %s::text, %s::jsonb, %s::jsonb)",
        (
            job_id,
            attempt,
            owner,
            judgement.verdict,
            judgement.score,
            judgement.time_ms,
            judgement.mem_kb,
            text("message", judgement.message.replace("\0", "")),
            document("cases", _cases(judgement.cases)),
            document("points", dict(judgement.points)),
        ),
        scalar,
    )


def _cases(cases: Sequence[CaseResult]) -> list[Json]:
    """The tests as they are stored: with the outputs of the first few that failed."""
    kept = list[Json]()
    outputs = OUTPUTS_MAX
    for case in cases:
        told = asdict(case)
        if told["output"] and outputs == 0:
            told["output"] = ""
        outputs -= bool(told["output"])
        kept.append(told if told["output"] else {name: told[name] for name in told if name != "output"})
    return kept


def get_standing(job_id: int) -> Call[list[Stands]]:
    """The standing result of a job's submission, locked until the end of the transaction; nothing for a
    rejudging job."""
    return Call(
        "select verdict, score, time_ms, mem_kb from fencepost.judge_standing(%s::bigint)",
        (job_id,),
        each(Stands),
    )


def store_away(job_id: int, attempt: int, owner: str) -> Call[timedelta]:
    """Record that the job's test data cannot be reached. Returns for how long that has been so."""
    return Call(
        "select fencepost.judge_store_away(%s::bigint, %s::bigint, %s::text)",
        (job_id, attempt, owner),
        scalar,
    )


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """What the database made of a system error."""

    outcome: Literal["repeated", "exhausted"]
    judge: str
    blamed: bool
    disabled_for: str | None
    """Why the judge is out of service from now on; None when it is not."""
    others: int
    """How many other judges are in service."""


def system_error(
    job: Holder, error: str, cause: Cause, *, delay_seconds: float, settings: JudgeSettings
) -> Call[ErrorAnswer]:
    """Record that judging failed here, and put the job back while it has tries left. May disable this judge,
    in the same transaction."""
    return Call(
        "select outcome, judge, blamed, disabled_for, others from fencepost.judge_system_error(%s::bigint,"
        " %s::bigint, %s::text, %s::text, %s::text, %s::interval, %s::integer, %s::integer,"
        " %s::double precision)",
        (
            job.id,
            job.attempt,
            job.owner,
            text("error", error.replace("\0", "")[:5000] or "no message"),
            cause,
            duration("delay", delay_seconds),
            settings.errors_in_a_row,
            settings.errors_window,
            settings.errors_share,
        ),
        one(ErrorAnswer),
    )


def leave_to_others(job: Holder) -> Call[bool]:
    """Whether this judge has failed at the job, and another one can judge it."""
    return Call("select fencepost.judge_leave_to_others(%s::bigint, %s::text)", (job.id, job.owner), scalar)


def prune_system_errors(keep_seconds: float, limit: int) -> Call[int]:
    return Call(
        "select fencepost.judge_system_error_prune(%s::interval, %s::integer)",
        (duration("keep", keep_seconds), limit),
        scalar,
    )


def get_standings(job_ids: Sequence[int]) -> Call[list[SubmissionStanding]]:
    """The states of those submissions that exist, in no particular order."""
    return Call(
        "select s.job_id, s.slug, s.version, s.language, s.author, s.submitted_at, s.job::text,"
        " s.progress::text, s.result::text, s.figures, s.feedback, s.contest"
        " from unnest(%s::bigint[]) i cross join lateral fencepost.judge_status(i) s",
        (list(job_ids),),
        each(_standing),
    )


def get_history(author: str, before: int | None, limit: int) -> Call[list[PastSubmission]]:
    return Call(
        "select job_id, slug, language, submitted_at, verdict, score, time_ms, mem_kb, status, figures,"
        " feedback, contest"
        " from fencepost.judge_history(%s::text, %s::bigint, %s::integer)",
        (text("author", author), before, limit),
        each(_past),
    )


def get_recent(before: int | None, limit: int) -> Call[list[RecentSubmission]]:
    return Call(
        "select job_id, slug, author, language, submitted_at, verdict, score, time_ms, mem_kb, status"
        " from fencepost.judge_recent(%s::bigint, %s::integer)",
        (before, limit),
        each(RecentSubmission),
    )


def admit(name: str, per_minute: float, burst: int) -> Call[None]:
    """Count one submission of a user. Raises Backpressure when the user exceeds the rate limit."""
    return Call(
        "select fencepost.judge_admit(%s::text, %s::double precision, %s::integer)",
        (text("name", name), per_minute, burst),
        nothing,
    )


def _stored(slug: str, version: int, title: str, spec: str) -> StoredProblem:
    return StoredProblem(slug, version, title, Problem.model_validate_json(spec))


def _task(language: str, sources: str, spec: str) -> JudgingTask:
    return JudgingTask(language, parsed(sources), Problem.model_validate_json(spec))


def _standing(
    job_id: int,
    slug: str,
    version: int,
    language: str,
    author: str,
    submitted_at: datetime,
    job: str,
    progress: str | None,
    result: str | None,
    figures: str,
    feedback: str,
    contest: str | None,
) -> SubmissionStanding:
    return SubmissionStanding(
        job_id,
        slug,
        version,
        language,
        author,
        submitted_at,
        parsed(job),
        parsed(progress),
        parsed(result),
        Figures(figures),
        Feedback(feedback),
        contest,
    )


def _past(
    job_id: int,
    slug: str,
    language: str,
    submitted_at: datetime,
    verdict: str | None,
    score: float | None,
    time_ms: int | None,
    mem_kb: int | None,
    status: str | None,
    figures: str,
    feedback: str,
    contest: str | None,
) -> PastSubmission:
    return PastSubmission(
        job_id,
        slug,
        language,
        submitted_at,
        verdict,
        score,
        time_ms,
        mem_kb,
        status,
        Figures(figures),
        Feedback(feedback),
        contest,
    )
