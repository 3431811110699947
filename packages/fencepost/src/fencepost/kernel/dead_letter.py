"""Dead letters: replay or discard, one or many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from fencepost.kernel.call import Call, column, each, optional_text, scalar, text

Settling = Literal["replay", "discard"]


@dataclass(frozen=True, slots=True)
class Filter:
    """Selects dead letters. Jobs that died after `before` are excluded, so a repeat takes nothing twice."""

    queue: str | None = None
    kind: str | None = None
    cause: str | None = None
    before: datetime | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """The outcome for one dead letter: replayed or discarded, or the reason why not."""

    job_id: int
    outcome: str


def count(wanted: Filter) -> Call[int]:
    """How many dead letters the filter finds."""
    return Call(
        "select fencepost.dead_count(%s::text, %s::text, %s::text, %s::timestamptz)",
        _terms(wanted),
        scalar,
    )


def page(wanted: Filter, *, after_id: int | None = None, limit: int = 100) -> Call[list[int]]:
    """The ids that match the filter, in order, after the given one."""
    return Call(
        "select * from fencepost.dead_ids(%s::text, %s::text, %s::text, %s::timestamptz, %s::bigint,"
        " %s::integer)",
        (*_terms(wanted), after_id, limit),
        column,
    )


def settle(job_ids: Sequence[int], how: Settling, actor: str) -> Call[list[Settled]]:
    """Replay or discard many; returns an outcome for each."""
    return Call(
        "select job_id, outcome from fencepost.dead_settle(%s::bigint[], %s::text, %s::text)",
        (list(job_ids), how, text("actor", actor)),
        each(Settled),
    )


def _terms(wanted: Filter) -> tuple[str | None, str | None, str | None, datetime | None]:
    return (
        optional_text("queue", wanted.queue),
        optional_text("kind", wanted.kind),
        optional_text("cause", wanted.cause),
        wanted.before,
    )
