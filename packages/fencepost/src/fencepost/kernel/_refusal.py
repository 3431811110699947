"""Refusals and history: what was refused, how often, and the history of one subject."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from fencepost.errors import Refusal
from fencepost.kernel.call import (
    Call,
    Json,
    document,
    duration,
    each,
    nothing,
    optional_text,
    parsed,
    scalar,
    text,
)


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One transition or refusal in the history of a subject."""

    at: datetime
    event: str
    actor: str | None
    token: int | None
    detail: Mapping[str, Json]


def record(refusal: Refusal, actor: str | None) -> Call[None]:
    """Record a refusal that was raised: its own transaction was rolled back and could not."""
    return Call(
        "select fencepost.refusal_record(%s::text, %s::text, %s::text, %s::text, %s::jsonb, %s::jsonb)",
        (
            refusal.reason,
            refusal.noun,
            refusal.subject,
            optional_text("actor", actor),
            document("attempted", dict(refusal.attempted)),
            document("seen", dict(refusal.seen)),
        ),
        nothing,
    )


def counts() -> Call[dict[str, int]]:
    """How often each reason occurred."""
    return Call(
        "select reason, refused from fencepost.refusal_counts()",
        (),
        lambda rows: {str(reason): int(refused) for reason, refused in rows},
    )


def explain(subject: str) -> Call[list[HistoryEntry]]:
    """The history of job:ID, lease:RESOURCE, request:SCOPE/KEY, order:KEY and so on, oldest first."""
    return Call(
        "select at, event, actor, token, detail::text from fencepost.explain(%s::text)",
        (text("subject", subject),),
        each(_moment),
    )


def prune(keep_seconds: float, limit: int) -> Call[int]:
    """Delete events and recorded refusals older than the retention; returns how many."""
    return Call(
        "select fencepost.history_prune(%s::interval, %s::integer)",
        (duration("keep", keep_seconds), limit),
        scalar,
    )


def _moment(at: datetime, event: str, actor: str | None, token: int | None, detail: str) -> HistoryEntry:
    return HistoryEntry(at, event, actor, token, parsed(detail))
