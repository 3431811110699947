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
    from fencepost.client import Fencepost, SyncFencepost
    from fencepost.jobs.handler import Handler
    from fencepost.jobs.job import Job
    from fencepost.jobs.job_results import JobFailed
    from fencepost.jobs.retry_policy import Bury, PermanentError, Rate, Retry, exponential
    from fencepost.kernel.call import Call
    from fencepost.kernel.drivers import run
    from fencepost.kernel.idempotency import Claim, digest
    from fencepost.kernel.lease import Lease, owner_name
    from fencepost.transaction import SyncTransaction, Transaction

__all__ = [
    "AlreadyFinished",
    "Backpressure",
    "Bury",
    "Call",
    "Cancelled",
    "Claim",
    "Duplicate",
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
    "SyncFencepost",
    "SyncTransaction",
    "TooOld",
    "Transaction",
    "WrongIsolation",
    "digest",
    "exponential",
    "owner_name",
    "run",
]

_HOMES = {
    "Bury": "fencepost.jobs.retry_policy",
    "Call": "fencepost.kernel.call",
    "Claim": "fencepost.kernel.idempotency",
    "Fencepost": "fencepost.client",
    "Handler": "fencepost.jobs.handler",
    "Job": "fencepost.jobs.job",
    "JobFailed": "fencepost.jobs.job_results",
    "Lease": "fencepost.kernel.lease",
    "PermanentError": "fencepost.jobs.retry_policy",
    "Rate": "fencepost.jobs.retry_policy",
    "Retry": "fencepost.jobs.retry_policy",
    "SyncFencepost": "fencepost.client",
    "SyncTransaction": "fencepost.transaction",
    "Transaction": "fencepost.transaction",
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
