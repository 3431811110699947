"""Schedules: one job for each tick. `functions/schedule.sql` says how each tick is taken once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from fencepost.kernel.call import (
    Call,
    column,
    document,
    duration,
    each,
    nothing,
    optional_text,
    scalar,
    text,
)
from fencepost.kernel.job import Submission, submission_terms

Missed = Literal["once", "all", "skip"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """When a schedule fires, and what each tick submits."""

    name: str
    expression: str
    zone: str
    missed: Missed
    grace_seconds: float
    job: Submission


@dataclass(frozen=True, slots=True)
class Due:
    """A schedule whose tick comes next, and the database's present time."""

    name: str
    expression: str
    zone: str
    missed: Missed
    grace: timedelta
    next_tick: datetime
    paused: bool
    now: datetime


@dataclass(frozen=True, slots=True)
class Fired:
    tick: datetime
    job_id: int
    created: bool


def declare(schedule: Declaration, next_tick: datetime) -> Call[None]:
    """Declare a schedule, or declare it again. Its next tick is kept unless the expression has changed."""
    job, options = schedule.job, schedule.job.options
    return Call(
        "select fencepost.schedule_declare(%s::text, %s::text, %s::text, %s::text, %s::interval,"
        " %s::timestamptz, %s::text, %s::text, %s::jsonb, %s::integer, %s::integer, %s::interval, %s::text,"
        " %s::text, %s::integer, %s::jsonb, %s::jsonb)",
        (
            text("name", schedule.name),
            text("expression", schedule.expression),
            text("zone", schedule.zone),
            schedule.missed,
            duration("grace", schedule.grace_seconds),
            next_tick,
            text("queue", job.queue),
            text("kind", job.kind),
            document("payload", job.payload),
            options.priority,
            options.tries,
            duration("lease", options.lease_seconds),
            optional_text("unique_key", job.unique_key),
            optional_text("concurrency_key", job.concurrency_key),
            job.concurrency_limit,
            document("headers", dict(job.headers)),
            document("terms", submission_terms(options)),
        ),
        nothing,
    )


def retire(kinds: Sequence[str], names: Sequence[str], actor: str) -> Call[list[str]]:
    """Delete the schedules of these kinds that are not among the names; returns which."""
    return Call(
        "select * from fencepost.schedule_retire(%s::text[], %s::text[], %s::text)",
        (list(kinds), list(names), text("actor", actor)),
        column,
    )


def clock() -> Call[datetime]:
    """The database's present time."""
    return Call("select fencepost.clock()", (), scalar)


def upcoming(limit: int) -> Call[list[Due]]:
    """The schedules whose ticks come next, soonest first."""
    return Call(
        "select name, expression, zone, missed, grace, next_tick, paused, now"
        " from fencepost.schedule_next(%s::integer)",
        (limit,),
        each(Due),
    )


def fire(name: str, expected: datetime, ticks: Sequence[datetime], next_tick: datetime) -> Call[list[Fired]]:
    """Take the ticks that are due. Returns nothing if another process has taken them."""
    return Call(
        "select tick, job_id, created from fencepost.schedule_fire"
        "(%s::text, %s::timestamptz, %s::timestamptz[], %s::timestamptz)",
        (text("name", name), expected, list(ticks), next_tick),
        each(Fired),
    )


def pause(name: str, actor: str) -> Call[None]:
    """While paused, its ticks pass without a job, and are not made up for."""
    return Call(
        "select fencepost.schedule_pause(%s::text, %s::text)",
        (text("name", name), text("actor", actor)),
        nothing,
    )


def resume(name: str, actor: str) -> Call[None]:
    return Call(
        "select fencepost.schedule_resume(%s::text, %s::text)",
        (text("name", name), text("actor", actor)),
        nothing,
    )


def prune(keep_seconds: float, limit: int) -> Call[int]:
    """Delete ticks that fired more than `keep_seconds` ago; returns how many."""
    return Call(
        "select fencepost.schedule_prune(%s::interval, %s::integer)",
        (duration("keep", keep_seconds), limit),
        scalar,
    )
