"""What an operator does with a job. He holds no attempt: the state that he saw guards his writes."""

from __future__ import annotations

from typing import Literal

from fencepost.kernel.call import Call, duration, nothing, optional_text, scalar, text


def cancel(job_id: int, actor: str, *, expected: str | None = None) -> Call[str]:
    """Answers cancelled, or requested for a job that runs."""
    return Call(
        "select fencepost.job_cancel(%s::bigint, %s::text, %s::text)",
        (job_id, text("actor", actor), optional_text("expected", expected)),
        scalar,
    )


def replay(job_id: int, actor: str, *, expected: Literal["dead", "cancelled"] = "dead") -> Call[None]:
    return Call(
        "select fencepost.job_replay(%s::bigint, %s::text, %s::text)",
        (job_id, text("actor", actor), expected),
        nothing,
    )


def discard(job_id: int, actor: str) -> Call[None]:
    return Call("select fencepost.job_discard(%s::bigint, %s::text)", (job_id, text("actor", actor)), nothing)


def prune(keep_seconds: float, limit: int, *, dead: bool = False) -> Call[int]:
    return Call(
        "select fencepost.job_prune(%s::interval, %s::integer, %s::boolean)",
        (duration("keep", keep_seconds), limit, dead),
        scalar,
    )
