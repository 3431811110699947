"""Queues: pause, resume, bound."""

from __future__ import annotations

from fencepost.kernel.call import Call, nothing, text


def pause(queue: str, actor: str) -> Call[None]:
    """Stop dispatching and claiming its jobs; running jobs continue."""
    return Call(
        "select fencepost.queue_pause(%s::text, %s::text)",
        (text("queue", queue), text("actor", actor)),
        nothing,
    )


def resume(queue: str, actor: str) -> Call[None]:
    """Let a paused queue be claimed from again."""
    return Call(
        "select fencepost.queue_resume(%s::text, %s::text)",
        (text("queue", queue), text("actor", actor)),
        nothing,
    )


def bound(queue: str, waiting_max: int | None, actor: str) -> Call[None]:
    """Refuse submissions past this many waiting jobs; None removes the bound."""
    return Call(
        "select fencepost.queue_bound(%s::text, %s::bigint, %s::text)",
        (text("queue", queue), waiting_max, text("actor", actor)),
        nothing,
    )


def count() -> Call[None]:
    """Count the waiting jobs of the queues that have a bound."""
    return Call("select fencepost.queue_count()", (), nothing)
