"""Every error that Fencepost raises.

    FencepostError
    ├── Refusal                 the database refused a write, and says why (SQLSTATE ZF0xx)
    │   ├── StaleAttempt        a later attempt or token exists: this holder is a zombie
    │   ├── AlreadyFinished     the thing has its one finishing write already
    │   ├── NotRunning          the job waits; no worker holds it
    │   ├── LeaseExpired        held, but past its lease: a takeover may happen at any moment
    │   ├── NotOwner            another owner holds it, or a later acquisition does
    │   ├── NotFound            there is no such thing
    │   ├── Cancelled           an operator cancelled it
    │   ├── Duplicate           it happened already, and no response was kept
    │   ├── Mismatch            the same key or state was expected with another content
    │   ├── InFlight            another transaction is doing it right now
    │   ├── TooOld              a time-ordered key older than what is remembered
    │   └── Rewound             the database lost commits: nothing is done on it until it was recovered
    ├── InvalidInput            an argument is wrong; `field` names it, nothing was written (ZF100)
    ├── WrongIsolation          called under REPEATABLE READ or SERIALIZABLE (ZF101)
    ├── Backpressure            a bound on waiting work was reached; nothing was written (ZF102)
    ├── IndeterminateCommit     the reply to COMMIT was lost: settle it by token before repeating
    ├── RefusedTransaction      a refusal was caught inside, so the transaction will not commit
    ├── SchemaError             the database's schema does not fit this code
    │   ├── SchemaMissing
    │   ├── SchemaTooOld
    │   └── SchemaTooNew
    ├── MigrationFailed         it was rolled back
    ├── SettingsError           a setting is wrong; names the variable and what is allowed
    └── ServerUnavailable       PostgreSQL or Redis cannot be found, started or reached

Errors of embedded servers derive from ServerUnavailable; `embedded/_errors.py` shows that branch.

A refusal is a result, not a malfunction: it carries the reason, and the row that the database saw at that
moment. Codes are stable; they are the rows of the table `fencepost.refusal_reason`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar, cast


class FencepostError(Exception):
    """The root of all errors raised by Fencepost."""


class Refusal(FencepostError):
    """The database refused the write. Nothing of this transaction may commit."""

    reason: ClassVar[str] = "refused"
    sqlstate: ClassVar[str] = "ZF000"

    def __init__(
        self,
        message: str,
        *,
        noun: str = "",
        subject: str = "",
        attempted: Mapping[str, Any] | None = None,
        seen: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.noun = noun
        self.subject = subject
        self.attempted: Mapping[str, Any] = attempted or {}
        self.seen: Mapping[str, Any] = seen or {}


class StaleAttempt(Refusal):
    """A later attempt exists. Stop: the result of this holder is discarded."""

    reason = "stale_attempt"
    sqlstate = "ZF001"


class AlreadyFinished(Refusal):
    """It is already finished. Read the stored result instead of writing another."""

    reason = "already_finished"
    sqlstate = "ZF002"


class NotRunning(Refusal):
    """The job waits; no worker holds it. Claim it first."""

    reason = "not_running"
    sqlstate = "ZF003"


class LeaseExpired(Refusal):
    """The lease expired before the write. Renew more often, or take a longer lease."""

    reason = "lease_expired"
    sqlstate = "ZF004"


class NotOwner(Refusal):
    """Another owner, or a later acquisition, holds it."""

    reason = "not_owner"
    sqlstate = "ZF005"


class NotFound(Refusal):
    """It does not exist: it was never created, or it was pruned."""

    reason = "not_found"
    sqlstate = "ZF006"


class Cancelled(Refusal):
    """An operator cancelled it. Stop working on it."""

    reason = "cancelled"
    sqlstate = "ZF007"


class Duplicate(Refusal):
    """It happened already and no response was kept. Read the present state; do not repeat the effect."""

    reason = "duplicate"
    sqlstate = "ZF008"


class Mismatch(Refusal):
    """The key was used with another content, or the state is not the one that the caller saw."""

    reason = "mismatch"
    sqlstate = "ZF009"


class InFlight(Refusal):
    """Another transaction is doing it right now. Ask again shortly."""

    reason = "in_flight"
    sqlstate = "ZF010"


class TooOld(Refusal):
    """The key's own time lies before what is remembered, so a repeat could not be recognised."""

    reason = "too_old"
    sqlstate = "ZF011"


class Rewound(Refusal):
    """The database lost commits that clients were answered from: by a restored backup, or by a failover.

    Nothing is done on it until its tokens were raised: by `fencepost recover`, or with DATABASE_RECOVER=auto.
    """

    reason = "rewound"
    sqlstate = "ZF012"


class InvalidInput(FencepostError, ValueError):
    """An argument is wrong. Nothing was written."""

    sqlstate: ClassVar[str] = "ZF100"

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class WrongIsolation(FencepostError):
    """The kernel judges rows by their newest version, so it needs READ COMMITTED."""

    sqlstate: ClassVar[str] = "ZF101"


class Backpressure(FencepostError):
    """A bound on waiting work was reached. Nothing was written: slow down, or raise the bound.

    `retry_seconds` is when the same call is accepted, if that is known.
    """

    sqlstate: ClassVar[str] = "ZF102"

    def __init__(self, message: str, *, retry_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds


class IndeterminateCommit(FencepostError):
    """The connection broke during COMMIT: the commit may have happened. Or the server stopped waiting for its
    synchronous standbys: the commit has happened, and a failover may lose it.

    Settle it by token before repeating: claim the same idempotency key again, or query the job or the lease.
    """


class RefusedTransaction(FencepostError):
    """A refusal was caught inside the block; the transaction was rolled back nevertheless.

    A fence that was refused protects nothing, so what was written beside it must not commit.
    """


class SchemaError(FencepostError):
    """The database's schema and this code do not fit."""


class SchemaMissing(SchemaError):
    """There is no Fencepost schema. Run `fencepost migrate`."""


class SchemaTooOld(SchemaError):
    """The schema is behind this code. Run `fencepost migrate` before you start it."""


class SchemaTooNew(SchemaError):
    """The schema is more than one version ahead. Upgrade this process."""


class MigrationFailed(FencepostError):
    """A migration failed; the database is as it was before."""


class SettingsError(FencepostError, ValueError):
    """A setting is wrong. The message names the variable, its value and what is allowed."""


class ServerUnavailable(FencepostError):
    """PostgreSQL or Redis cannot be found, started or reached."""


REFUSALS: Mapping[str, type[Refusal]] = {
    refusal.reason: refusal
    for refusal in (
        StaleAttempt,
        AlreadyFinished,
        NotRunning,
        LeaseExpired,
        NotOwner,
        NotFound,
        Cancelled,
        Duplicate,
        Mismatch,
        InFlight,
        TooOld,
        Rewound,
    )
}
_BY_SQLSTATE: Mapping[str, type[Refusal]] = {refusal.sqlstate: refusal for refusal in REFUSALS.values()}


def from_sqlstate(sqlstate: str, message: str, detail: str | None) -> FencepostError | None:
    """The error for one of the kernel's SQLSTATEs, or None for any other SQLSTATE."""
    facts = _facts(detail)
    if sqlstate in _BY_SQLSTATE:
        return _BY_SQLSTATE[sqlstate](
            message,
            noun=facts.get("noun", ""),
            subject=facts.get("subject", ""),
            attempted=facts.get("attempted"),
            seen=facts.get("seen"),
        )
    match sqlstate:
        case InvalidInput.sqlstate:
            return InvalidInput(message, field=facts.get("field", ""))
        case WrongIsolation.sqlstate:
            return WrongIsolation(message)
        case Backpressure.sqlstate:
            return Backpressure(message, retry_seconds=facts.get("retry_seconds"))
        case _:
            return None


def _facts(detail: str | None) -> dict[str, Any]:
    try:
        facts: Any = json.loads(detail or "{}")
    except ValueError:
        return {}
    return cast("dict[str, Any]", facts) if isinstance(facts, dict) else {}
