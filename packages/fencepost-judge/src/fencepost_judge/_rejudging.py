"""Calls about rejudging, implemented by `functions/judge_rejudge.sql`, which has the table of states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from fencepost.kernel.call import (
    Call,
    Json,
    column,
    document,
    each,
    nothing,
    optional_text,
    parsed,
    scalar,
    text,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Selects submissions: by their ids, or all of a problem or an author; the other fields narrow the
    selection."""

    submissions: Sequence[int] | None = None
    problem: str | None = None
    author: str | None = None
    language: str | None = None
    verdict: str | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    generation: int
    submissions: int


@dataclass(frozen=True, slots=True)
class Generation:
    generation: int
    state: str
    reason: str
    scope: Mapping[str, Json]
    made_at: datetime
    made_by: str
    settled_at: datetime | None
    settled_by: str | None
    submissions: int
    judged: int


@dataclass(frozen=True, slots=True)
class Change:
    """One submission: its standing result, and its new one. Not judged yet when `judged` is false."""

    submission_id: int
    slug: str
    author: str
    job_id: int
    verdict_before: str | None
    score_before: float | None
    verdict_after: str | None
    score_after: float | None
    judged: bool


def find(chosen: Filter, limit: int) -> Call[list[int]]:
    return Call(
        "select job_id from fencepost.judge_rejudge_find(%s::bigint[], %s::text, %s::text, %s::text,"
        " %s::text, %s::integer)",
        (
            None if chosen.submissions is None else list(chosen.submissions),
            optional_text("problem", chosen.problem),
            optional_text("author", chosen.author),
            optional_text("language", chosen.language),
            optional_text("verdict", chosen.verdict),
            limit,
        ),
        each(int),
    )


def open_generation(
    submissions: Sequence[int], job_ids: Sequence[int], chosen: Filter, reason: str, actor: str
) -> Call[int]:
    scope = {name: value for name, value in asdict(chosen).items() if value is not None}
    return Call(
        "select fencepost.judge_rejudge_open(%s::bigint[], %s::bigint[], %s::jsonb, %s::text, %s::text)",
        (
            list(submissions),
            list(job_ids),
            document("scope", scope),
            text("reason", reason),
            text("actor", actor),
        ),
        scalar,
    )


def apply(generation: int, actor: str) -> Call[int]:
    """Returns how many results were replaced."""
    return Call(
        "select fencepost.judge_rejudge_apply(%s::bigint, %s::text)",
        (generation, text("actor", actor)),
        scalar,
    )


def drop(generation: int, actor: str) -> Call[None]:
    return Call(
        "select fencepost.judge_rejudge_drop(%s::bigint, %s::text)",
        (generation, text("actor", actor)),
        nothing,
    )


def generations(
    *, one: int | None = None, before: int | None = None, limit: int = 50
) -> Call[list[Generation]]:
    return Call(
        "select generation, state, reason, scope::text, made_at, made_by, settled_at, settled_by,"
        " submissions, judged from fencepost.judge_rejudgings(%s::bigint, %s::bigint, %s::integer)",
        (one, before, limit),
        each(_generation),
    )


def changes(
    generation: int, *, changed: bool = True, after: int | None = None, limit: int = 1000
) -> Call[list[Change]]:
    """The submissions whose result changed, or all."""
    return Call(
        "select submission_id, slug, author, job_id, verdict_before, score_before, verdict_after,"
        " score_after, judged"
        " from fencepost.judge_rejudge_changes(%s::bigint, %s::boolean, %s::bigint, %s::integer)",
        (generation, changed, after, limit),
        each(Change),
    )


def contests_of(generation: int) -> Call[list[str]]:
    """The contests whose standings the generation may change."""
    return Call("select slug from fencepost.judge_rejudge_contests(%s::bigint)", (generation,), column)


def _generation(
    generation: int,
    state: str,
    reason: str,
    scope: str,
    made_at: datetime,
    made_by: str,
    settled_at: datetime | None,
    settled_by: str | None,
    submissions: int,
    judged: int,
) -> Generation:
    return Generation(
        generation,
        state,
        reason,
        parsed(scope),
        made_at,
        made_by,
        settled_at,
        settled_by,
        submissions,
        judged,
    )
