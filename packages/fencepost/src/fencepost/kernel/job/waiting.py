"""Jobs that wait: submitted in the caller's transaction, driven to Redis, driven again when lost there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from fencepost.kernel.call import (
    Call,
    Json,
    Row,
    document,
    duration,
    each,
    one,
    optional_duration,
    optional_text,
    scalar,
    text,
)


class Submitted(NamedTuple):
    """The job of a submission. Not `created` when a live job holds the unique key already."""

    job_id: int
    created: bool


@dataclass(frozen=True, slots=True)
class Dispatchable:
    """A pending job that is locked for dispatch. Its payload stays where the truth is."""

    job_id: int
    attempt: int
    dispatches: int


@dataclass(frozen=True, slots=True)
class Driven:
    """A dispatched job and where its entry lies."""

    job_id: int
    dispatched_at: datetime
    entry_id: str
    incarnation: str


def submit(
    queue: str,
    kind: str,
    payload: Json,
    *,
    priority: int = 1,
    run_at: datetime | None = None,
    delay_seconds: float | None = None,
    tries_max: int = 5,
    lease_seconds: float = 60,
    unique_key: str | None = None,
    concurrency_key: str | None = None,
    concurrency_limit: int | None = None,
    headers: Mapping[str, Json] | None = None,
) -> Call[Submitted]:
    """Submit one job: the job and its waiting row, or neither. A delay counts on the database's clock."""
    return Call(
        "select job_id, created from fencepost.job_submit(%s::text, %s::text, %s::jsonb, %s::integer,"
        " coalesce(%s::timestamptz, fencepost.clock() + %s::interval), %s::integer, %s::interval, %s::text,"
        " %s::text, %s::integer, %s::jsonb)",
        (
            text("queue", queue),
            text("kind", kind),
            document("payload", payload),
            priority,
            run_at,
            optional_duration("delay", delay_seconds),
            tries_max,
            duration("lease", lease_seconds),
            optional_text("unique_key", unique_key),
            optional_text("concurrency_key", concurrency_key),
            concurrency_limit,
            document("headers", dict(headers or {})),
        ),
        one(Submitted),
    )


def submit_many(
    queue: str,
    kind: str,
    payloads: Sequence[Json],
    *,
    priority: int = 1,
    run_at: datetime | None = None,
    delay_seconds: float | None = None,
    tries_max: int = 5,
    lease_seconds: float = 60,
    unique_keys: Sequence[str | None] | None = None,
    concurrency_keys: Sequence[str | None] | None = None,
    concurrency_limit: int | None = None,
    headers: Sequence[Mapping[str, Json]] | None = None,
) -> Call[list[Submitted]]:
    """Submit many jobs of one kind with one statement; answers in the order of the payloads."""
    return Call(
        "select job_id, created from fencepost.job_submit_many(%s::text, %s::text, %s::jsonb[], %s::integer,"
        " coalesce(%s::timestamptz, fencepost.clock() + %s::interval), %s::integer, %s::interval,"
        " %s::text[], %s::text[], %s::integer, %s::jsonb[])",
        (
            text("queue", queue),
            text("kind", kind),
            [document("payload", payload) for payload in payloads],
            priority,
            run_at,
            optional_duration("delay", delay_seconds),
            tries_max,
            duration("lease", lease_seconds),
            None if unique_keys is None else [optional_text("unique_key", k) for k in unique_keys],
            None
            if concurrency_keys is None
            else [optional_text("concurrency_key", k) for k in concurrency_keys],
            concurrency_limit,
            None if headers is None else [document("headers", dict(h)) for h in headers],
        ),
        each(Submitted),
    )


def dispatch(
    queue: str, priority: int, limit: int, *, patience_seconds: float = 30
) -> Call[list[Dispatchable]]:
    """The due jobs of one priority, locked for this transaction: write entries, then record them in it."""
    return Call(
        "select job_id, attempt, dispatches"
        " from fencepost.job_dispatch(%s::text, %s::integer, %s::integer, %s::interval)",
        (text("queue", queue), priority, limit, duration("patience", patience_seconds)),
        each(Dispatchable),
    )


def dispatch_by_priority(
    queue: str, limit: int, *, patience_seconds: float = 30
) -> Call[dict[int, list[int]]]:
    """The due jobs of every priority that has some, at most `limit` of each, locked as by `dispatch`."""
    return Call(
        "select priority, job_id"
        " from fencepost.job_dispatch_by_priority(%s::text, %s::integer, %s::interval)",
        (text("queue", queue), limit, duration("patience", patience_seconds)),
        _by_priority,
    )


def dispatched(job_ids: Sequence[int], entry_ids: Sequence[str], incarnation: str) -> Call[int]:
    """Record where the entries lie, and in which life of Redis."""
    return Call(
        "select fencepost.job_dispatched(%s::bigint[], %s::text[], %s::text)",
        (list(job_ids), list(entry_ids), text("incarnation", incarnation)),
        scalar,
    )


def dispatch_failed(job_ids: Sequence[int], error: str, delay_seconds: float) -> Call[int]:
    """The entries could not be written: count the attempt and keep its error; pending for the delay."""
    return Call(
        "select fencepost.job_dispatch_failed(%s::bigint[], %s::text, %s::interval)",
        (list(job_ids), text("error", error), duration("delay", delay_seconds)),
        scalar,
    )


def driven(
    queue: str, priority: int, *, age_seconds: float, after: Driven | None = None, limit: int = 1000
) -> Call[list[Driven]]:
    """Dispatched jobs whose entries are older than `age_seconds`, oldest first, after the given one."""
    return Call(
        "select job_id, dispatched_at, entry_id, incarnation from fencepost.job_driven"
        "(%s::text, %s::integer, %s::interval, %s::timestamptz, %s::bigint, %s::integer)",
        (
            text("queue", queue),
            priority,
            duration("age", age_seconds),
            after and after.dispatched_at,
            after and after.job_id,
            limit,
        ),
        each(Driven),
    )


def recall(job_ids: Sequence[int], entry_ids: Sequence[str]) -> Call[int]:
    """Drive jobs again whose entries are lost; guarded by the entry that was judged lost."""
    return Call(
        "select fencepost.job_recall(%s::bigint[], %s::text[])", (list(job_ids), list(entry_ids)), scalar
    )


def next_due(queue: str) -> Call[datetime | None]:
    """When the next pending job of the queue is due: how long a loop may sleep."""
    return Call("select fencepost.job_next_due(%s::text)", (text("queue", queue),), scalar)


def seconds_until_due(queue: str) -> Call[float | None]:
    """`next_due` by the database's clock: the machine of the loop may have another opinion of the time."""
    return Call(
        "select extract(epoch from fencepost.job_next_due(%s::text) - fencepost.clock())::double precision",
        (text("queue", queue),),
        scalar,
    )


def _by_priority(rows: Sequence[Row]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for priority, job_id in rows:
        found.setdefault(priority, []).append(job_id)
    return found
