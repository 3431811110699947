"""How a job is named in a line of the log: the same fields, of the same types, everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fencepost.kernel.job import Running


def job_fields(running: Running) -> dict[str, object]:
    return {
        "job_id": running.job_id,
        "kind": running.kind,
        "queue": running.queue,
        "attempt": running.attempt,
        "try": running.tries,
        "trace_id": trace_id_of(running),
    }


def trace_id_of(running: Running) -> str:
    """The trace id of a job: one that was submitted without a trace still has one id for all its tries."""
    given = running.headers.get("trace_id") if running.headers else None
    return str(given) if given else f"{running.job_id:032x}"
