"""Exactly-once effects for Python, on PostgreSQL and Redis.

    from fencepost import Fencepost, Job

    fp = Fencepost.from_env()

    @fp.job("mail", tries=5, lease=30, timeout=timedelta(seconds=10))
    async def welcome(job: Job, user_id: int) -> None:
        async with job.finish() as tx:  # fenced: a worker that lost the job writes nothing
            await tx.execute("update users set welcomed = true where id = %s", (user_id,))

    async with fp:
        async with fp.transaction() as tx:  # the key, your rows, the job and the message commit together
            claim = await fp.idempotency.claim(tx, "signup", request_id, response={"ok": True})
            if claim.claimed:
                submitted = await welcome.submit(tx, user_id=7)
                await fp.outbox.put(tx, "signups", {"user": 7}, key="user:7")
        await fp.jobs.result(submitted, within=60)
        async with fp.lease("nightly-report", ttl=60) as held:  # renewed by a thread until the block ends
            ...
        await fp.jobs.worker().run()  # or: fencepost worker module:fp
        await fp.flows.worker(flow).run()

`fp.sync()` is the same client for code without an event loop. `run` makes a kernel call on a connection that
you already have; a call is a value, made by a module of `fencepost.kernel`. Flows are in `fencepost.flows`.

Importing the package loads only the errors: the drivers are loaded by the first name that needs them.
"""

import typing

from fencepost._lazy_imports import on_first_use as _on_first_use
from fencepost.errors import (
    AlreadyFinished,
    Backpressure,
    Cancelled,
    Duplicate,
    FencepostError,
    IndeterminateCommit,
    InFlight,
    InvalidInput,
    LeaseExpired,
    MigrationFailed,
    Mismatch,
    NotFound,
    NotOwner,
    NotRunning,
    Refusal,
    RefusedTransaction,
    Rewound,
    SchemaError,
    SchemaMissing,
    SchemaTooNew,
    SchemaTooOld,
    ServerUnavailable,
    SettingsError,
    StaleAttempt,
    TooOld,
    WrongIsolation,
)

if typing.TYPE_CHECKING:
    from fencepost._durations import Duration
    from fencepost.client import Fencepost, SyncFencepost
    from fencepost.client._leases import HeldLease
    from fencepost.jobs._handler import Handler
    from fencepost.jobs._job_results import JobFailed, PolledJob
    from fencepost.jobs._options import Unique
    from fencepost.jobs.chunk import Chunk, ChunkMember
    from fencepost.jobs.hooks import Ended
    from fencepost.jobs.job import Job
    from fencepost.jobs.retry_policy import Bury, Cancel, PermanentError, Rate, Retry, Snooze, exponential
    from fencepost.jobs.settings import JobSettings
    from fencepost.kernel._batch import BatchResult
    from fencepost.kernel._lineage import ReadAge
    from fencepost.kernel.call import Call
    from fencepost.kernel.drivers import run
    from fencepost.kernel.idempotency import Claim, digest
    from fencepost.kernel.job import Submission, Submitted
    from fencepost.kernel.job_queries import FoundJob, JobOutcome
    from fencepost.kernel.lease import Lease, owner_name
    from fencepost.settings import Settings
    from fencepost.transaction import SyncTransaction, Transaction
    from fencepost.workflows._child_job import ChildJob
    from fencepost.workflows._errors import ChildJobFailed, EventTimeout, StepNameTaken
    from fencepost.workflows._graph import Graph, previous, task
    from fencepost.workflows._handler import WorkflowHandler
    from fencepost.workflows._sync_workflow import SyncWorkflow
    from fencepost.workflows._workflow import Workflow

__all__ = [
    "AlreadyFinished",
    "Backpressure",
    "BatchResult",
    "Bury",
    "Call",
    "Cancel",
    "Cancelled",
    "ChildJob",
    "ChildJobFailed",
    "Chunk",
    "ChunkMember",
    "Claim",
    "Duplicate",
    "Duration",
    "Ended",
    "EventTimeout",
    "Fencepost",
    "FencepostError",
    "FoundJob",
    "Graph",
    "Handler",
    "HeldLease",
    "InFlight",
    "IndeterminateCommit",
    "InvalidInput",
    "Job",
    "JobFailed",
    "JobOutcome",
    "JobSettings",
    "Lease",
    "LeaseExpired",
    "MigrationFailed",
    "Mismatch",
    "NotFound",
    "NotOwner",
    "NotRunning",
    "PermanentError",
    "PolledJob",
    "Rate",
    "ReadAge",
    "Refusal",
    "RefusedTransaction",
    "Retry",
    "Rewound",
    "SchemaError",
    "SchemaMissing",
    "SchemaTooNew",
    "SchemaTooOld",
    "ServerUnavailable",
    "Settings",
    "SettingsError",
    "Snooze",
    "StaleAttempt",
    "StepNameTaken",
    "Submission",
    "Submitted",
    "SyncFencepost",
    "SyncTransaction",
    "SyncWorkflow",
    "TooOld",
    "Transaction",
    "Unique",
    "Workflow",
    "WorkflowHandler",
    "WrongIsolation",
    "digest",
    "exponential",
    "owner_name",
    "previous",
    "run",
    "task",
]

_HOMES = {
    "BatchResult": "fencepost.kernel._batch",
    "Bury": "fencepost.jobs.retry_policy",
    "Call": "fencepost.kernel.call",
    "Cancel": "fencepost.jobs.retry_policy",
    "ChildJob": "fencepost.workflows._child_job",
    "ChildJobFailed": "fencepost.workflows._errors",
    "Chunk": "fencepost.jobs.chunk",
    "ChunkMember": "fencepost.jobs.chunk",
    "Claim": "fencepost.kernel.idempotency",
    "Duration": "fencepost._durations",
    "Fencepost": "fencepost.client",
    "Ended": "fencepost.jobs.hooks",
    "EventTimeout": "fencepost.workflows._errors",
    "FoundJob": "fencepost.kernel.job_queries",
    "Graph": "fencepost.workflows._graph",
    "Handler": "fencepost.jobs._handler",
    "HeldLease": "fencepost.client._leases",
    "Job": "fencepost.jobs.job",
    "JobFailed": "fencepost.jobs._job_results",
    "JobOutcome": "fencepost.kernel.job_queries",
    "JobSettings": "fencepost.jobs.settings",
    "Lease": "fencepost.kernel.lease",
    "PermanentError": "fencepost.jobs.retry_policy",
    "Rate": "fencepost.jobs.retry_policy",
    "PolledJob": "fencepost.jobs._job_results",
    "ReadAge": "fencepost.kernel._lineage",
    "Retry": "fencepost.jobs.retry_policy",
    "Settings": "fencepost.settings",
    "Snooze": "fencepost.jobs.retry_policy",
    "Submission": "fencepost.kernel.job",
    "Submitted": "fencepost.kernel.job",
    "SyncFencepost": "fencepost.client",
    "StepNameTaken": "fencepost.workflows._errors",
    "SyncTransaction": "fencepost.transaction",
    "SyncWorkflow": "fencepost.workflows._sync_workflow",
    "Transaction": "fencepost.transaction",
    "Unique": "fencepost.jobs._options",
    "Workflow": "fencepost.workflows._workflow",
    "WorkflowHandler": "fencepost.workflows._handler",
    "digest": "fencepost.kernel.idempotency",
    "exponential": "fencepost.jobs.retry_policy",
    "owner_name": "fencepost.kernel.lease",
    "previous": "fencepost.workflows._graph",
    "run": "fencepost.kernel.drivers",
    "task": "fencepost.workflows._graph",
}
"""The modules that define the other names. Type checkers read the imports above; a test compares the two."""


if not typing.TYPE_CHECKING:  # A type checker that sees `__getattr__` accepts every name.
    __getattr__ = _on_first_use(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
