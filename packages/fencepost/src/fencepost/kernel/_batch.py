"""Batches: many jobs, and one callback job that runs when the last of them has ended."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.kernel.call import Call, duration, optional_text, scalar


def make(job_ids: Sequence[int], *, callback_id: int | None = None, name: str | None = None) -> Call[int]:
    """Make a batch of waiting jobs, in the transaction that submitted them; returns its id."""
    return Call(
        "select fencepost.batch_make(%s::bigint[], %s::bigint, %s::text)",
        (list(job_ids), callback_id, optional_text("name", name)),
        scalar,
    )


def prune(keep_seconds: float, limit: int) -> Call[int]:
    """Delete batches that completed more than `keep_seconds` ago; returns how many."""
    return Call(
        "select fencepost.batch_prune(%s::interval, %s::integer)",
        (duration("keep", keep_seconds), limit),
        scalar,
    )
