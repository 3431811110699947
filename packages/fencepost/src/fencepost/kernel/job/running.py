"""Jobs that run: claimed under a new attempt, which fences what their owner does, until they leave him."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from fencepost.kernel.call import (
    Call,
    Json,
    Row,
    column,
    document,
    duration,
    each,
    nothing,
    one,
    optional_document,
    optional_duration,
    optional_text,
    parsed,
    scalar,
    text,
)


class Running(NamedTuple):
    """A claimed job. `attempt` is the fence: it goes with every write of its owner.

    A tuple, as all answers that come by the hundred: a frozen dataclass takes five times as long to make.
    """

    job_id: int
    attempt: int
    tries: int
    queue: str
    priority: int
    kind: str
    payload: Json
    headers: Mapping[str, Json]
    lease_seconds: float
    expires_at: datetime
    submitted_at: datetime


class ClaimAnswer(NamedTuple):
    """The answer for one of many: claimed (`running` is set), deferred, or refused with a reason."""

    job_id: int
    outcome: Literal["claimed", "deferred", "refused"]
    refusal: str | None
    running: Running | None


@dataclass(frozen=True, slots=True)
class Renewed:
    job_id: int
    expires_at: datetime | None
    cancel_requested: bool
    refusal: str | None


class Finish(NamedTuple):
    """What a finished job leaves: its final status and a small result."""

    job_id: int
    attempt: int
    final_status: str = "ok"
    result: Json = None


class Unfinished(NamedTuple):
    """One of many that was not finished, and why."""

    job_id: int
    refusal: str


Leaving = Literal["release", "retry", "bury"]


@dataclass(frozen=True, slots=True)
class Leave:
    """How a running job leaves its owner without being finished."""

    job_id: int
    attempt: int
    how: Leaving
    error: str | None = None
    delay_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Left:
    job_id: int
    state: str | None
    refusal: str | None


@dataclass(frozen=True, slots=True)
class Reclaimed:
    job_id: int
    attempt: int
    owner: str
    state: str


def claim(job_id: int, owner: str, *, lease_seconds: float | None = None) -> Call[Running]:
    """Claim one job under a new attempt."""
    return Call(
        "select job_id, attempt, tries, queue, priority, kind, payload::text, headers::text, lease,"
        " expires_at, submitted_at from fencepost.job_claim(%s::bigint, %s::text, %s::interval)",
        (job_id, text("owner", owner), optional_duration("lease", lease_seconds)),
        _claimed,
    )


def claim_many(
    job_ids: Sequence[int], owner: str, *, lease_seconds: float | None = None
) -> Call[list[ClaimAnswer]]:
    """Claim many; answers for each."""
    return Call(
        "select job_id, attempt, tries, queue, priority, kind, payload::text, headers::text, lease,"
        " expires_at, submitted_at, outcome, refusal"
        " from fencepost.job_claim_many(%s::bigint[], %s::text, %s::interval)",
        (list(job_ids), text("owner", owner), optional_duration("lease", lease_seconds)),
        _claim_answers,
    )


def claim_next(
    queue: str,
    priority: int,
    owner: str,
    limit: int,
    *,
    lease_seconds: float | None = None,
    dispatched: bool = False,
) -> Call[list[ClaimAnswer]]:
    """Claim due jobs of one priority straight from PostgreSQL; with `dispatched` also dispatched ones."""
    return Call(
        "select job_id, attempt, tries, queue, priority, kind, payload::text, headers::text, lease,"
        " expires_at, submitted_at, outcome, refusal from fencepost.job_claim_next"
        "(%s::text, %s::integer, %s::text, %s::integer, %s::interval, %s::boolean)",
        (
            text("queue", queue),
            priority,
            text("owner", owner),
            limit,
            optional_duration("lease", lease_seconds),
            dispatched,
        ),
        _claim_answers,
    )


def claim_by_priority(
    queue: str,
    owner: str,
    limit: int,
    *,
    lease_seconds: float | None = None,
    dispatched: bool = False,
    turn: int | None = None,
    since: Sequence[datetime | None] | None = None,
) -> Call[list[ClaimAnswer]]:
    """The same for all priorities of a queue, which share the limit. A caller that passes a counter of its
    calls as `turn` leaves no priority out for long. `since`, a time for each priority, skips jobs due before
    it."""
    return Call(
        "select job_id, attempt, tries, queue, priority, kind, payload::text, headers::text, lease,"
        " expires_at, submitted_at, outcome, refusal from fencepost.job_claim_by_priority"
        "(%s::text, %s::text, %s::integer, %s::interval, %s::boolean, %s::bigint, %s::timestamptz[])",
        (
            text("queue", queue),
            text("owner", owner),
            limit,
            optional_duration("lease", lease_seconds),
            dispatched,
            turn,
            None if since is None else list(since),
        ),
        _claim_answers,
    )


def renew(job_id: int, attempt: int, owner: str) -> Call[Renewed]:
    return Call(
        "select %s::bigint, expires_at, cancel_requested, null"
        " from fencepost.job_renew(%s::bigint, %s::bigint, %s::text)",
        (job_id, job_id, attempt, text("owner", owner)),
        one(Renewed),
    )


def renew_many(job_ids: Sequence[int], attempts: Sequence[int], owner: str) -> Call[list[Renewed]]:
    """Renew all jobs of one owner with one statement; in_flight means locked at this moment, not lost."""
    return Call(
        "select job_id, expires_at, cancel_requested, refusal"
        " from fencepost.job_renew_many(%s::bigint[], %s::bigint[], %s::text)",
        (list(job_ids), list(attempts), text("owner", owner)),
        each(Renewed),
    )


def progress(job_id: int, attempt: int, owner: str, value: Json) -> Call[None]:
    return Call(
        "select fencepost.job_progress(%s::bigint, %s::bigint, %s::text, %s::jsonb)",
        (job_id, attempt, text("owner", owner), document("progress", value)),
        nothing,
    )


def fence(job_id: int, attempt: int, owner: str) -> Call[None]:
    """From here to the end of the transaction nobody takes the job over."""
    return Call(
        "select fencepost.job_fence(%s::bigint, %s::bigint, %s::text)",
        (job_id, attempt, text("owner", owner)),
        nothing,
    )


def finish(done: Finish, owner: str) -> Call[None]:
    """The one finishing write."""
    return Call(
        "select fencepost.job_finish(%s::bigint, %s::bigint, %s::text, %s::text, %s::jsonb)",
        (
            done.job_id,
            done.attempt,
            text("owner", owner),
            text("final_status", done.final_status),
            optional_document("result", done.result),
        ),
        nothing,
    )


def finish_many(done: Sequence[Finish], owner: str) -> Call[list[Unfinished]]:
    """Finish many with one statement and one commit; answers those that were refused. All others are done."""
    # Most end well and leave nothing, which need not be said of each.
    is_plain = all(d.final_status == "ok" and d.result is None for d in done)
    return Call(
        "select job_id, refusal from fencepost.job_finish_many"
        "(%s::bigint[], %s::bigint[], %s::text, %s::text[], %s::jsonb[]) where refusal is not null",
        (
            [d.job_id for d in done],
            [d.attempt for d in done],
            text("owner", owner),
            None if is_plain else [text("final_status", d.final_status) for d in done],
            None if is_plain else [optional_document("result", d.result) for d in done],
        ),
        each(Unfinished),
    )


def release(job_id: int, attempt: int, owner: str, *, delay_seconds: float | None = None) -> Call[str]:
    """Give it back unfinished: the try is not counted. Answers its state now."""
    return Call(
        "select fencepost.job_release(%s::bigint, %s::bigint, %s::text, %s::interval)",
        (job_id, attempt, text("owner", owner), optional_duration("delay", delay_seconds)),
        scalar,
    )


def retry(job_id: int, attempt: int, owner: str, error: str, delay_seconds: float) -> Call[str]:
    """It failed: wait and try again, or dead when no tries are left. Answers its state now."""
    return Call(
        "select fencepost.job_retry(%s::bigint, %s::bigint, %s::text, %s::text, %s::interval)",
        (job_id, attempt, text("owner", owner), text("error", error), duration("delay", delay_seconds)),
        scalar,
    )


def bury(job_id: int, attempt: int, owner: str, error: str) -> Call[str]:
    """It cannot succeed: dead at once. Answers its state now."""
    return Call(
        "select fencepost.job_bury(%s::bigint, %s::bigint, %s::text, %s::text)",
        (job_id, attempt, text("owner", owner), text("error", error)),
        scalar,
    )


def leave_many(leaves: Sequence[Leave], owner: str) -> Call[list[Left]]:
    """Release, retry or bury many, each in its own way; answers for each."""
    return Call(
        "select job_id, state, refusal from fencepost.job_leave_many"
        "(%s::bigint[], %s::bigint[], %s::text, %s::text[], %s::text[], %s::interval[])",
        (
            [leave.job_id for leave in leaves],
            [leave.attempt for leave in leaves],
            text("owner", owner),
            [leave.how for leave in leaves],
            [optional_text("error", leave.error) for leave in leaves],
            [optional_duration("delay", leave.delay_seconds) for leave in leaves],
        ),
        each(Left),
    )


def reclaim(limit: int, *, grace_seconds: float = 0) -> Call[list[Reclaimed]]:
    """Put back what has been expired for the grace."""
    return Call(
        "select job_id, attempt, owner, state from fencepost.job_reclaim(%s::integer, %s::interval)",
        (limit, duration("grace", grace_seconds)),
        each(Reclaimed),
    )


def blocked(limit: int, *, grace_seconds: float = 0) -> Call[list[int]]:
    """Expired jobs whose old owner still has a fenced transaction open."""
    return Call(
        "select * from fencepost.job_blocked(%s::integer, %s::interval)",
        (limit, duration("grace", grace_seconds)),
        column,
    )


def _claimed(rows: Sequence[Row]) -> Running:
    [answer] = _claim_answers([(*rows[0], "claimed", None)])
    assert answer.running is not None, "it was claimed"
    return answer.running


def _claim_answers(rows: Sequence[Row]) -> list[ClaimAnswer]:
    """By place, and without a call for each: claims come by the hundred."""
    answers: list[ClaimAnswer] = []
    for (
        job_id,
        attempt,
        tries,
        queue,
        priority,
        kind,
        payload,
        headers,
        lease,
        until,
        since,
        how,
        why,
    ) in rows:
        running = None
        if how == "claimed":
            # Many have no arguments, most no headers, and reading none costs as much as reading some.
            given: Json = {} if payload == "{}" else parsed(payload)
            named: Mapping[str, Json] = {} if headers == "{}" else parsed(headers)
            seconds = lease.total_seconds()
            running = Running._make(
                (job_id, attempt, tries, queue, priority, kind, given, named, seconds, until, since)
            )
        answers.append(ClaimAnswer._make((job_id, how, why, running)))
    return answers
