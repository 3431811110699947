"""Leases: one owner at a time for a resource. `functions/lease.sql` defines what each call guarantees."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from fencepost.kernel.call import Call, duration, each, nothing, one, text


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease that is held. The token is the fence: every write carries it."""

    resource: str
    owner: str
    token: int
    acquired_at: datetime
    renewed_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Acquisition:
    """The outcome for one of many: the present lease, and the reason if this owner did not get it."""

    resource: str
    owner: str | None
    token: int
    acquired: bool
    acquired_at: datetime
    renewed_at: datetime
    expires_at: datetime
    refusal: str | None


@dataclass(frozen=True, slots=True)
class Renewal:
    resource: str
    token: int
    expires_at: datetime | None
    refusal: str | None


@dataclass(frozen=True, slots=True)
class Release:
    resource: str
    token: int
    refusal: str | None


def owner_name(role: str) -> str:
    """A name for this process that no other process has had: role, host, process id and a boot id.

    Without the boot id a restart under the same name would renew the dead process's token, and its late write
    would pass.
    """
    return f"{role}@{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(6)}"


def acquire(resource: str, owner: str, ttl_seconds: float) -> Call[Lease]:
    """Acquire the resource, or renew it if `owner` holds it. not_owner while another owner holds it."""
    return Call(
        "select resource, owner, token, acquired_at, renewed_at, expires_at"
        " from fencepost.lease_acquire(%s::text, %s::text, %s::interval)",
        (text("resource", resource), text("owner", owner), duration("ttl", ttl_seconds)),
        one(Lease),
    )


def acquire_many(resources: Sequence[str], owner: str, ttl_seconds: float) -> Call[list[Acquisition]]:
    """Acquire many leases in one statement; answers for each resource and raises for none."""
    return Call(
        "select resource, owner, token, acquired, acquired_at, renewed_at, expires_at, refusal"
        " from fencepost.lease_acquire_many(%s::text[], %s::text, %s::interval)",
        ([text("resource", r) for r in resources], text("owner", owner), duration("ttl", ttl_seconds)),
        each(Acquisition),
    )


def renew(lease: Lease, ttl_seconds: float) -> Call[Lease]:
    """Renew under the token; keeps the token and `acquired_at`."""
    return Call(
        "select resource, owner, token, acquired_at, renewed_at, expires_at"
        " from fencepost.lease_renew(%s::text, %s::text, %s::bigint, %s::interval)",
        (lease.resource, lease.owner, lease.token, duration("ttl", ttl_seconds)),
        one(Lease),
    )


def renew_many(leases: Sequence[Lease], owner: str, ttl_seconds: float) -> Call[list[Renewal]]:
    """Extend many leases in one statement; answers for each and raises for none."""
    return Call(
        "select resource, token, expires_at, refusal"
        " from fencepost.lease_renew_many(%s::text[], %s::text, %s::bigint[], %s::interval)",
        (
            [lease.resource for lease in leases],
            text("owner", owner),
            [lease.token for lease in leases],
            duration("ttl", ttl_seconds),
        ),
        each(Renewal),
    )


def release(lease: Lease) -> Call[None]:
    """Release the resource. The token is kept in the row, so that it is never issued again."""
    return Call(
        "select fencepost.lease_release(%s::text, %s::text, %s::bigint)",
        (lease.resource, lease.owner, lease.token),
        nothing,
    )


def release_many(leases: Sequence[Lease], owner: str) -> Call[list[Release]]:
    """The same for many, in one statement: for a holder that shuts down."""
    return Call(
        "select resource, token, refusal"
        " from fencepost.lease_release_many(%s::text[], %s::text, %s::bigint[])",
        ([lease.resource for lease in leases], text("owner", owner), [lease.token for lease in leases]),
        each(Release),
    )


def fence(resource: str, token: int) -> Call[None]:
    """Prevents a takeover of the resource from here to the end of the transaction."""
    return Call(
        "select fencepost.lease_fence(%s::text, %s::bigint)", (text("resource", resource), token), nothing
    )
