"""Batches: many jobs, and one callback job that runs when the last of them has ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from fencepost.kernel.call import Call, Json, Row, duration, optional_text, parsed, scalar


def make(job_ids: Sequence[int], *, callback_id: int | None = None, name: str | None = None) -> Call[int]:
    """Make a batch of waiting jobs, in the transaction that submitted them; returns its id."""
    return Call(
        "select fencepost.batch_make(%s::bigint[], %s::bigint, %s::text)",
        (list(job_ids), callback_id, optional_text("name", name)),
        scalar,
    )


class BatchResult(NamedTuple):
    """How one job of a batch ended. `state` is None for a job that was pruned."""

    job_id: int
    state: Literal["finished", "dead", "cancelled"] | None
    final_status: str | None
    result: Json
    error: str | None


def results(batch_id: int, *, after: int | None = None, limit: int = 1000) -> Call[list[BatchResult]]:
    """The outcomes of the jobs of a batch, in order of id, after the given job."""
    return Call(
        "select job_id, state, final_status, result::text, error"
        " from fencepost.batch_results(%s::bigint, %s::bigint, %s::integer)",
        (batch_id, after, limit),
        _results,
    )


def _results(rows: Sequence[Row]) -> list[BatchResult]:
    return [
        BatchResult(job_id, state, final_status, parsed(result), error)
        for job_id, state, final_status, result, error in rows
    ]


def prune(keep_seconds: float, limit: int) -> Call[int]:
    """Delete batches that completed more than `keep_seconds` ago; returns how many."""
    return Call(
        "select fencepost.batch_prune(%s::interval, %s::integer)",
        (duration("keep", keep_seconds), limit),
        scalar,
    )
