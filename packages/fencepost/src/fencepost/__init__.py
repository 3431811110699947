"""Exactly-once effects for Python, on PostgreSQL and Redis.

`Fencepost` holds the pools and declares jobs; `run` makes a kernel call on a connection that you already
have. A call is a value, made by a module of `fencepost.kernel`: lease, idempotency, outbox, job, checkpoint.

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
    from fencepost.app import Fencepost, SyncFencepost
    from fencepost.jobs.handler import Handler
    from fencepost.jobs.job import Job
    from fencepost.jobs.job_results import JobFailed
    from fencepost.jobs.retry_policy import Bury, PermanentError, Rate, Retry, exponential
    from fencepost.kernel.call import Call
    from fencepost.kernel.drivers import run
    from fencepost.kernel.idempotency import Claim, digest
    from fencepost.kernel.lease import Lease, owner_name
    from fencepost.transaction import SyncTransaction, Transaction
    from fencepost.workflows.child_job import ChildJob
    from fencepost.workflows.errors import ChildJobFailed, EventTimeout, StepNameTaken
    from fencepost.workflows.handler import WorkflowHandler
    from fencepost.workflows.sync_workflow import SyncWorkflow
    from fencepost.workflows.workflow import Workflow

__all__ = [
    "AlreadyFinished",
    "Backpressure",
    "Bury",
    "Call",
    "Cancelled",
    "ChildJob",
    "ChildJobFailed",
    "Claim",
    "Duplicate",
    "EventTimeout",
    "Fencepost",
    "FencepostError",
    "Handler",
    "InFlight",
    "IndeterminateCommit",
    "InvalidInput",
    "Job",
    "JobFailed",
    "Lease",
    "LeaseExpired",
    "MigrationFailed",
    "Mismatch",
    "NotFound",
    "NotOwner",
    "NotRunning",
    "PermanentError",
    "Rate",
    "Refusal",
    "RefusedTransaction",
    "Retry",
    "SchemaError",
    "SchemaMissing",
    "SchemaTooNew",
    "SchemaTooOld",
    "ServerUnavailable",
    "SettingsError",
    "StaleAttempt",
    "StepNameTaken",
    "SyncFencepost",
    "SyncTransaction",
    "SyncWorkflow",
    "TooOld",
    "Transaction",
    "Workflow",
    "WorkflowHandler",
    "WrongIsolation",
    "digest",
    "exponential",
    "owner_name",
    "run",
]

_HOMES = {
    "Bury": "fencepost.jobs.retry_policy",
    "Call": "fencepost.kernel.call",
    "ChildJob": "fencepost.workflows.child_job",
    "ChildJobFailed": "fencepost.workflows.errors",
    "Claim": "fencepost.kernel.idempotency",
    "EventTimeout": "fencepost.workflows.errors",
    "Fencepost": "fencepost.app",
    "Handler": "fencepost.jobs.handler",
    "Job": "fencepost.jobs.job",
    "JobFailed": "fencepost.jobs.job_results",
    "Lease": "fencepost.kernel.lease",
    "PermanentError": "fencepost.jobs.retry_policy",
    "Rate": "fencepost.jobs.retry_policy",
    "Retry": "fencepost.jobs.retry_policy",
    "StepNameTaken": "fencepost.workflows.errors",
    "SyncFencepost": "fencepost.app",
    "SyncTransaction": "fencepost.transaction",
    "SyncWorkflow": "fencepost.workflows.sync_workflow",
    "Transaction": "fencepost.transaction",
    "Workflow": "fencepost.workflows.workflow",
    "WorkflowHandler": "fencepost.workflows.handler",
    "digest": "fencepost.kernel.idempotency",
    "exponential": "fencepost.jobs.retry_policy",
    "owner_name": "fencepost.kernel.lease",
    "run": "fencepost.kernel.drivers",
}
"""The modules that define the other names. Type checkers read the imports above; a test compares the two."""


if not typing.TYPE_CHECKING:  # A type checker that sees `__getattr__` accepts every name.
    __getattr__ = _on_first_use(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
