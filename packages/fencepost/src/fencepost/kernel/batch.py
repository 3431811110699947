"""Batches: many jobs, and one that is called when the last of them has ended."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.kernel.call import Call, duration, optional_text, scalar


def make(job_ids: Sequence[int], *, callback_id: int | None = None, name: str | None = None) -> Call[int]:
    """Make a batch of jobs that wait, in the transaction that submitted them; answers its id."""
    return Call(
        "select fencepost.batch_make(%s::bigint[], %s::bigint, %s::text)",
        (list(job_ids), callback_id, optional_text("name", name)),
        scalar,
    )


def prune(keep_seconds: float, limit: int) -> Call[int]:
    """Forget batches that were complete that long ago; answers how many."""
    return Call(
        "select fencepost.batch_prune(%s::interval, %s::integer)",
        (duration("keep", keep_seconds), limit),
        scalar,
    )
