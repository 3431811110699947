"""Rate limits: how fast jobs may start. `functions/rate.sql` says where tokens are taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fencepost.kernel.call import Call, nothing, scalar, text


@dataclass(frozen=True, slots=True)
class Limit:
    """A token bucket: `per_second` on average, and at most `burst` at once."""

    per_second: float
    burst: float


def declare(limits: Mapping[str, Limit | None]) -> Call[None]:
    """Set how fast jobs of each kind may start; None for no limit."""
    return Call(
        "select fencepost.rate_declare(%s::text[], %s::double precision[], %s::double precision[])",
        (
            [text("kind", kind) for kind in limits],
            # psycopg refuses a list that mixes integers and floats.
            [limit and float(limit.per_second) for limit in limits.values()],
            [limit and float(limit.burst) for limit in limits.values()],
        ),
        nothing,
    )


def limit_queue(queue: str, limit: Limit | None, actor: str) -> Call[None]:
    """Set how fast all jobs of a queue together may start; None removes the limit."""
    return Call(
        "select fencepost.queue_rate(%s::text, %s::double precision, %s::double precision, %s::text)",
        (
            text("queue", queue),
            limit and limit.per_second,
            limit and limit.burst,
            text("actor", actor),
        ),
        nothing,
    )


def prune(limit: int) -> Call[int]:
    """Delete buckets that are full again; returns how many."""
    return Call("select fencepost.rate_prune(%s::integer)", (limit,), scalar)
