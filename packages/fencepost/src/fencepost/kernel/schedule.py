"""Schedules: one job for each tick. `functions/schedule.sql` says how each tick is taken once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

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
from fencepost.kernel.job import Submission, Submitted, submission_terms

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

    def definition(self) -> dict[str, Json]:
        """What a release declares, by column."""
        job, options = self.job, self.job.options
        return {
            "expression": self.expression,
            "zone": self.zone,
            "missed": self.missed,
            "grace": _interval(self.grace_seconds),
            "queue": job.queue,
            "kind": job.kind,
            "payload": job.payload,
            "priority": options.priority,
            "tries_max": options.tries,
            "lease": _interval(options.lease_seconds),
            "unique_key": job.unique_key,
            "concurrency_key": job.concurrency_key,
            "concurrency_limit": job.concurrency_limit,
            "headers": dict(job.headers),
            "terms": submission_terms(options),
        }


@dataclass(frozen=True, slots=True)
class Changed:
    """What a declaration has changed: a schedule was declared, revived or retired."""

    name: str
    event: str


@dataclass(frozen=True, slots=True)
class ScheduleStatus:
    """A schedule as it is stored, retired or not."""

    name: str
    expression: str
    zone: str
    missed: Missed
    grace: timedelta
    queue: str
    kind: str
    payload: Json
    next_tick: datetime
    last_tick: datetime | None
    last_job_id: int | None
    paused_at: datetime | None
    paused_by: str | None
    origin: Literal["code", "run time"]
    changes: Json
    changed_at: datetime | None
    changed_by: str | None
    retired_at: datetime | None
    has_keys: bool
    """Its jobs have a unique or concurrency key, which the handler makes of the arguments."""

    @property
    def state(self) -> Literal["active", "paused", "retired"]:
        """Active, paused, or retired."""
        return "retired" if self.retired_at else "paused" if self.paused_at else "active"


@dataclass(frozen=True, slots=True)
class ScheduledRun:
    """A job that a schedule submitted: of a tick, or when `actor` asked for it."""

    tick: datetime
    fired_at: datetime
    job_id: int
    actor: str | None
    state: str | None
    """None when the job was pruned."""
    final_status: str | None


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


def release(
    name: str,
    schedules: Mapping[str, Json],
    next_ticks: Mapping[str, datetime],
    ttl_seconds: float,
    actor: str,
) -> Call[list[Changed]]:
    """Declare what a release declares, or renew it. Retires schedules that no live release declares."""
    return Call(
        "select name, event from fencepost.schedule_release"
        "(%s::text, %s::jsonb, %s::jsonb, %s::interval, %s::text)",
        (
            text("release", name),
            document("schedules", dict(schedules)),
            document("next_ticks", {known: tick.isoformat() for known, tick in next_ticks.items()}),
            duration("ttl", ttl_seconds),
            text("actor", actor),
        ),
        each(Changed),
    )


def add(schedule: Declaration, next_tick: datetime, actor: str) -> Call[None]:
    """Add a schedule at run time; it stays until it is removed. Refused when there is one of its name."""
    job, options = schedule.job, schedule.job.options
    return Call(
        "select fencepost.schedule_add(%s::text, %s::text, %s::text, %s::text, %s::interval,"
        " %s::timestamptz, %s::text, %s::text, %s::jsonb, %s::integer, %s::integer, %s::interval, %s::text,"
        " %s::text, %s::integer, %s::jsonb, %s::text, %s::jsonb)",
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
            text("actor", actor),
            document("terms", submission_terms(options)),
        ),
        nothing,
    )


def change(name: str, changes: Mapping[str, Json], next_tick: datetime | None, actor: str) -> Call[None]:
    """Set what a schedule does, by column, until `reset`: it has precedence over what the code declares."""
    sent = {column: _interval(value) if column == "grace" else value for column, value in changes.items()}
    return Call(
        "select fencepost.schedule_change(%s::text, %s::jsonb, %s::timestamptz, %s::text)",
        (text("name", name), document("changes", sent), next_tick, text("actor", actor)),
        nothing,
    )


def reset(name: str, actor: str) -> Call[None]:
    """Undo the changes of run time. Refused when no live worker declares the schedule."""
    return Call(
        "select fencepost.schedule_reset(%s::text, %s::text)",
        (text("name", name), text("actor", actor)),
        nothing,
    )


def remove(name: str, actor: str) -> Call[None]:
    """Remove a schedule. Refused while a live worker declares it."""
    return Call(
        "select fencepost.schedule_remove(%s::text, %s::text)",
        (text("name", name), text("actor", actor)),
        nothing,
    )


def revive(name: str, actor: str) -> Call[None]:
    """Bring a retired schedule back, although no live worker declares it."""
    return Call(
        "select fencepost.schedule_revive(%s::text, %s::text)",
        (text("name", name), text("actor", actor)),
        nothing,
    )


def run_now(name: str, actor: str) -> Call[Submitted]:
    """Submit the schedule's job now. Its ticks go on as they were."""
    return Call(
        "select job_id, created from fencepost.schedule_run(%s::text, %s::text)",
        (text("name", name), text("actor", actor)),
        one(Submitted),
    )


def history(name: str, before: datetime | None, limit: int) -> Call[list[ScheduledRun]]:
    """The schedule's jobs, newest first."""
    return Call(
        "select tick, fired_at, job_id, actor, state, final_status"
        " from fencepost.schedule_history(%s::text, %s::timestamptz, %s::integer)",
        (text("name", name), before, limit),
        each(ScheduledRun),
    )


def look(name: str | None = None) -> Call[list[ScheduleStatus]]:
    """The schedules, retired ones too, by name; or the one of this name."""
    return Call(
        "select name, expression, zone, missed, grace, queue, kind, payload::text, next_tick, last_tick,"
        " last_job_id, paused_at, paused_by, origin, changes::text, changed_at, changed_by, retired_at,"
        " unique_key is not null or concurrency_key is not null"
        " from fencepost.schedule_list(%s::text)",
        (optional_text("name", name),),
        each(_status),
    )


def _status(*row: Any) -> ScheduleStatus:
    columns = [parsed(value) if place in (7, 14) else value for place, value in enumerate(row)]
    return ScheduleStatus(*columns)


def _interval(seconds: float) -> str:
    """An interval in a document."""
    return f"{seconds:.6f} seconds"


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
    """Let a paused schedule submit jobs again."""
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
