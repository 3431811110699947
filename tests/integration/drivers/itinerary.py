"""Every walk, by the module of the kernel that it goes through."""

from collections.abc import Callable, Mapping

from tests.integration.drivers import job_walks, walks
from tests.integration.drivers.walking import Ask

WALKS: Mapping[str, Callable[[Ask], None]] = {
    "lease": walks.walk_lease,
    "marker": walks.walk_marker,
    "outbox": walks.walk_outbox,
    "queue": walks.walk_queue,
    "checkpoint": walks.walk_checkpoint,
    "refusal": walks.walk_refusal,
    "wake": walks.walk_wake,
    "stream": walks.walk_stream,
    "job": job_walks.walk_job,
    "outcome": job_walks.walk_outcome,
    "batch": job_walks.walk_batch,
    "rate": job_walks.walk_rate,
    "schedule": job_walks.walk_schedule,
    "dead_letter": job_walks.walk_dead_letter,
}
