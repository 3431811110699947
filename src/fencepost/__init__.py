"""Exactly-once effects for Python, on PostgreSQL and Redis.

`Fencepost` carries the pools and declares jobs; `run` makes a kernel call on a connection that you already
have. The calls are values, made by the modules of `fencepost.kernel`: lease, marker, outbox, job, checkpoint.
"""

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
from fencepost.house import Fencepost, SyncFencepost
from fencepost.jobs.handler import Handler
from fencepost.jobs.job import Job
from fencepost.jobs.policy import Bury, PermanentError, Rate, Retry, exponential
from fencepost.jobs.results import JobFailed
from fencepost.kernel.call import Call
from fencepost.kernel.drivers import run
from fencepost.kernel.lease import Lease, owner_name
from fencepost.kernel.marker import Claim, digest
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
