"""Queries for the outcome of a job, and for pages of jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from fencepost.kernel.call import (
    Call,
    Json,
    Row,
    column,
    document,
    duration,
    nothing,
    optional_text,
    parsed,
    scalar,
    text,
)

State = Literal["pending", "dispatched", "running", "finished", "dead", "cancelled"]
FINAL = frozenset({"finished", "dead", "cancelled"})


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The state of a job; when it is final, its result or its error."""

    state: State
    final_status: str | None
    attempt: int
    tries: int
    result: Json
    error: str | None

    @property
    def is_final(self) -> bool:
        """Whether this state never changes again."""
        return self.state in FINAL


def look(job_id: int) -> Call[JobOutcome | None]:
    """The job's outcome so far; None if there is no such job."""
    return Call(
        "select state, final_status, attempt, tries, result::text, error"
        " from fencepost.job_outcome(%s::bigint)",
        (job_id,),
        _outcome,
    )


def topic(job_id: int) -> str:
    """The topic that is notified when the job has ended, if a process sleeps on it."""
    return f"result:{job_id}"


def page(
    *,
    state: str | None = None,
    queue: str | None = None,
    kind: str | None = None,
    before_id: int | None = None,
    limit: int = 50,
) -> Call[list[int]]:
    """The ids of one page of jobs, newest first, below the given id."""
    return Call(
        "select * from fencepost.job_page(%s::text, %s::text, %s::text, %s::bigint, %s::integer)",
        (
            optional_text("state", state),
            optional_text("queue", queue),
            optional_text("kind", kind),
            before_id,
            limit,
        ),
        column,
    )


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job that a search has found."""

    job_id: int
    queue: str
    kind: str
    state: State
    tries: int
    arguments: Json
    tags: list[str]
    submitted_at: datetime
    run_at: datetime | None
    finished_at: datetime | None
    error: str | None


def search_ids(
    *,
    tags: Sequence[str] = (),
    arguments: Mapping[str, Json] | None = None,
    state: str | None = None,
    queue: str | None = None,
    kind: str | None = None,
    before_id: int | None = None,
    limit: int = 50,
) -> Call[list[int]]:
    """The ids of one page of the jobs that have all these tags and arguments, newest first."""
    return Call(
        "select * from fencepost.job_search"
        "(%s::text[], %s::jsonb, %s::text, %s::text, %s::text, %s::bigint, %s::integer)",
        (
            [text("tag", tag) for tag in tags],
            document("arguments", dict(arguments or {})),
            optional_text("state", state),
            optional_text("queue", queue),
            optional_text("kind", kind),
            before_id,
            limit,
        ),
        column,
    )


def found(job_ids: Sequence[int]) -> Call[list[FoundJob]]:
    """The jobs with these ids, newest first."""
    return Call(
        "select job_id, queue, kind, state, tries, payload::text, tags, submitted_at, run_at, finished_at,"
        " error from fencepost.jobs where job_id = any (%s::bigint[]) order by job_id desc",
        (list(job_ids),),
        _found,
    )


def waiting_for_time(job_ids: Sequence[int]) -> Call[list[int]]:
    """Those of the jobs that wait for a time that has not come, in order of id. Not the callbacks of open
    batches, which wait for no time."""
    return Call(
        "select job_id from fencepost.jobs where job_id = any (%s::bigint[]) and run_at > fencepost.clock()"
        " and run_at < '9999-12-31' order by job_id",
        (list(job_ids),),
        column,
    )


def hurry(job_id: int, actor: str) -> Call[None]:
    """Make a waiting job due now."""
    return Call("select fencepost.job_hurry(%s::bigint, %s::text)", (job_id, text("actor", actor)), nothing)


def prune_excess(keep: int, limit: int) -> Call[int]:
    """Delete finished and cancelled jobs past the newest `keep`; returns how many."""
    return Call("select fencepost.job_prune_excess(%s::bigint, %s::integer)", (keep, limit), scalar)


def prune_waiters(keep_seconds: float) -> Call[int]:
    """Delete the entries of result waiters that were killed before they could remove them."""
    return Call("select fencepost.result_prune(%s::interval)", (duration("keep", keep_seconds),), scalar)


def _found(rows: Sequence[Row]) -> list[FoundJob]:
    return [
        FoundJob(job_id, queue, kind, state, tries, parsed(payload), *rest)
        for job_id, queue, kind, state, tries, payload, *rest in rows
    ]


def _outcome(rows: Sequence[Row]) -> JobOutcome | None:
    if not rows:
        return None
    state, final_status, attempt, tries, result, error = rows[0]
    return JobOutcome(state, final_status, attempt, tries, parsed(result), error)
