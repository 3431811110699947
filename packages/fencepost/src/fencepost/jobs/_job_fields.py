"""How a job is named in a line of the log: the same fields, of the same types, everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fencepost.kernel.job import Reclaimed, Running


def job_fields(running: Running) -> dict[str, object]:
    return {
        "job_id": running.job_id,
        "kind": running.kind,
        "queue": running.queue,
        "attempt": running.attempt,
        "try": running.tries,
        "trace_id": trace_id_of(running),
    }


def lost_fields(job: Reclaimed) -> dict[str, object]:
    return {
        "job_id": job.job_id,
        "kind": job.kind,
        "queue": job.queue,
        "attempt": job.attempt,
        "trace_id": job.trace_id or _own_trace_id(job.job_id),
        "owner": job.owner,
        "state": job.state,
        "charged": job.charged,
    }


def trace_id_of(running: Running) -> str:
    """The trace id of a job: one that was submitted without a trace still has one id for all its tries."""
    given = running.headers.get("trace_id") if running.headers else None
    return str(given) if given else _own_trace_id(running.job_id)


def _own_trace_id(job_id: int) -> str:
    return f"{job_id:032x}"
