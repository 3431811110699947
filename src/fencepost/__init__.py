"""Exactly-once effects for Python, on PostgreSQL and Redis.

`Fencepost` carries the pools; `run` makes a kernel call on a connection that you already have. The calls are
values, made by the modules of `fencepost.kernel`: lease, marker, outbox, job, checkpoint.
"""

from fencepost.client import Fencepost, SyncFencepost
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
from fencepost.kernel.call import Call
from fencepost.kernel.drivers import run
from fencepost.kernel.lease import Lease, owner_name
from fencepost.kernel.marker import Claim, digest
from fencepost.transaction import SyncTransaction, Transaction

__all__ = [
    "AlreadyFinished",
    "Backpressure",
    "Call",
    "Cancelled",
    "Claim",
    "Duplicate",
    "Fencepost",
    "FencepostError",
    "InFlight",
    "IndeterminateCommit",
    "InvalidInput",
    "Lease",
    "LeaseExpired",
    "MigrationFailed",
    "Mismatch",
    "NotFound",
    "NotOwner",
    "NotRunning",
    "Refusal",
    "RefusedTransaction",
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
    "owner_name",
    "run",
]
