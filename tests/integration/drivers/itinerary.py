"""Every walk, by the module of the kernel that it goes through."""

from collections.abc import Callable, Mapping

from tests.integration.drivers import job_walks, walks, workflow_walks
from tests.integration.drivers.walking import Ask

WALKS: Mapping[str, Callable[[Ask], None]] = {
    "lease": walks.walk_lease,
    "idempotency": walks.walk_idempotency,
    "outbox": walks.walk_outbox,
    "queue": walks.walk_queue,
    "checkpoint": walks.walk_checkpoint,
    "refusal": walks.walk_refusal,
    "lineage": walks.walk_lineage,
    "notify": walks.walk_notify,
    "poison_entries": walks.walk_poison_entries,
    "job": job_walks.walk_job,
    "job_need": job_walks.walk_job_need,
    "job_queries": job_walks.walk_job_queries,
    "batch": job_walks.walk_batch,
    "rate": job_walks.walk_rate,
    "schedule": job_walks.walk_schedule,
    "dead_letter": job_walks.walk_dead_letter,
    "worker": job_walks.walk_worker,
    "workflow": workflow_walks.walk_workflow,
    "event": workflow_walks.walk_event,
    "workflow_operator": workflow_walks.walk_workflow_operator,
}
