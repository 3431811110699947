"""Events that workflows await. The first emission of a name stays; it commits with the caller's writes."""

from __future__ import annotations

from fencepost.kernel.call import Call, Json, duration, optional_document, optional_text, scalar, text


def emit(event: str, payload: Json = None, *, actor: str | None = None) -> Call[bool]:
    """Emit an event in the caller's transaction; False when it was emitted before."""
    return Call(
        "select fencepost.event_emit(%s::text, %s::jsonb, %s::text)",
        (text("event", event), optional_document("payload", payload), optional_text("actor", actor)),
        scalar,
    )


def prune(keep_seconds: float, limit: int) -> Call[int]:
    """Delete events older than `keep_seconds` that no workflow waits for; returns how many."""
    return Call(
        "select fencepost.event_prune(%s::interval, %s::integer)",
        (duration("keep", keep_seconds), limit),
        scalar,
    )
