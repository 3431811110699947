"""Records the seed of a request that failed, so that its repeat draws the same. `functions/mutation.sql`.

Nothing is recorded for a request that takes effect, which is the usual case: its audit has the seed. Nor for
one whose node dies: no caller has seen its result.
"""

from __future__ import annotations

from fencepost.kernel.call import Call, duration, scalar, text
from fencepost_players.mutations.store import RequestContext


def written(seed: int) -> str:
    """As text: JSON numbers of that size lose their last digits in other languages."""
    return f"{seed:032x}"


def note(context: RequestContext, key: str, seed: int, keep_seconds: float) -> Call[str]:
    """Record the seed; returns the seed that was recorded first."""
    return Call(
        "select fencepost.mutation_seed_record(%s::text, %s::text, %s::text, %s::text, %s::interval)",
        (
            text("scope", context.scope),
            text("key", key),
            text("digest", context.digest),
            written(seed),
            duration("keep", keep_seconds),
        ),
        scalar,
    )


def clean(limit: int) -> Call[int]:
    """Delete expired seeds; returns how many."""
    return Call("select fencepost.mutation_seed_clean(%s::integer)", (limit,), scalar)
