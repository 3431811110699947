"""Reserving and settling nonces: thin calls. `functions/nonce_*.sql` say what each of them promises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from fencepost.errors import InvalidInput
from fencepost.kernel.call import Call, column, duration, each, nothing, one, optional_text, scalar, text
from fencepost.kernel.lease import Lease
from fencepost_nonces.signer import Signer

Status = Literal["HELD", "SIGNING", "SIGNED", "BROADCAST", "CONSUMED", "RELEASED"]
End = Literal["used", "recyclable"]
URL_BEGINS = ("http://", "https://")
REQUEST_ID_BYTES_MAX = 200
# Prefixes of request ids: of managed transactions, and of nonces that a recovery holds for outside callers.
OUR_REQUESTS = ("tx:", "recovered:")


@dataclass(frozen=True, slots=True)
class Acquired:
    """The result of acquiring a signer: the present lease, whichever node has it."""

    owner: str
    token: int
    outcome: Literal["acquired", "renewed", "not_owner"]
    acquired_at: datetime
    renewed_at: datetime
    expires_at: datetime
    released: int
    adopted: int

    def lease(self, signer: Signer) -> Lease:
        return Lease(
            signer.resource, self.owner, self.token, self.acquired_at, self.renewed_at, self.expires_at
        )


@dataclass(frozen=True, slots=True)
class Reservation:
    """One request's nonce. `hold` identifies this reservation in every later call."""

    request_id: str
    nonce: int
    hold: int
    status: Status
    fencing_token: int
    locked_until: datetime | None
    tx_hash: str | None


@dataclass(frozen=True, slots=True)
class NonceEnding:
    """How one reservation ended."""

    nonce: int
    hold: int
    event: End
    tx_hash: str | None = None


@dataclass(frozen=True, slots=True)
class NonceAnswer:
    nonce: int
    refusal: str | None


@dataclass(frozen=True, slots=True)
class Floor:
    next_nonce: int
    consumed: int


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where a recovered signer goes on, and how many nonces below that belong to outside callers."""

    next_nonce: int
    outside: int


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node that is alive, by the lease it keeps on its own address."""

    address: str
    owner: str
    expires_at: datetime

    @property
    def reachable(self) -> bool:
        """Whether other nodes can reach it: a node without an address has its name as address."""
        return self.address.startswith(URL_BEGINS)


def acquire(signer: Signer, owner: str, ttl_seconds: float, *, first_nonce: int = 0) -> Call[Acquired]:
    """Acquire or renew the signer, and settle what its last owner left. No error if another node has it."""
    return Call(
        "select owner, token, outcome, acquired_at, renewed_at, expires_at, released, adopted"
        " from fencepost.nonce_acquire(%s::bigint, %s::text, %s::text, %s::interval, %s::bigint)",
        (signer.chain_id, signer.name, text("owner", owner), duration("ttl", ttl_seconds), first_nonce),
        one(Acquired),
    )


def hand_over(signer: Signer, lease: Lease) -> Call[None]:
    """Free the signer at once, and notify the nodes that wait for it."""
    return Call(
        "select fencepost.nonce_hand_over(%s::bigint, %s::text, %s::text, %s::bigint)",
        (signer.chain_id, signer.name, lease.owner, lease.token),
        nothing,
    )


def want(signer: Signer) -> Call[None]:
    """Ask the owner to hand over when it can."""
    return Call("select fencepost.nonce_want(%s::bigint, %s::text)", (signer.chain_id, signer.name), nothing)


def nodes() -> Call[list[NodeSeen]]:
    return Call("select address, owner, expires_at from fencepost.nonce_nodes()", (), each(NodeSeen))


def reserve(
    signer: Signer,
    lease: Lease,
    request_ids: Sequence[str],
    *,
    locked_seconds: float = 60,
    caller_signs: bool = True,
) -> Call[list[Reservation]]:
    """A nonce for each request, in their order; a repeated request gets the same again."""
    return Call(
        "select request_id, nonce, hold, status, fencing_token, locked_until, tx_hash"
        " from fencepost.nonce_reserve"
        "(%s::bigint, %s::text, %s::text, %s::bigint, %s::text[], %s::interval, %s::boolean)",
        (
            *_fence(signer, lease),
            [text("request_id", request_id) for request_id in request_ids],
            duration("locked_for", locked_seconds),
            caller_signs,
        ),
        each(Reservation),
    )


def check_request_id(given: str) -> None:
    """The database's own check, made earlier: an id that it refuses must not fail a batch with others."""
    size = len(text("request_id", given).encode())
    if not 0 < size <= REQUEST_ID_BYTES_MAX:
        raise InvalidInput(
            f"request_id has {size} bytes; allowed: 1 to {REQUEST_ID_BYTES_MAX}.", field="request_id"
        )
    if given.startswith(OUR_REQUESTS):
        raise InvalidInput(
            f"request_id begins with {' or '.join(OUR_REQUESTS)}, which is reserved for this "
            "service's own requests.",
            field="request_id",
        )


def mark_used(
    signer: Signer, lease: Lease, nonce: int, hold: int, *, tx_hash: str | None = None
) -> Call[None]:
    """The nonce was used."""
    return Call(
        "select fencepost.nonce_mark_used"
        "(%s::bigint, %s::text, %s::text, %s::bigint, %s::bigint, %s::bigint, %s::text)",
        (*_fence(signer, lease), nonce, hold, optional_text("tx_hash", tx_hash)),
        nothing,
    )


def mark_recyclable(signer: Signer, lease: Lease, nonce: int, hold: int) -> Call[None]:
    """The nonce was not used and not signed."""
    return Call(
        "select fencepost.nonce_mark_recyclable"
        "(%s::bigint, %s::text, %s::text, %s::bigint, %s::bigint, %s::bigint)",
        (*_fence(signer, lease), nonce, hold),
        nothing,
    )


def mark_signing(signer: Signer, lease: Lease, nonce: int, hold: int) -> Call[None]:
    """Signing is about to begin: from here on the nonce is never given back."""
    return Call(
        "select fencepost.nonce_mark_signing"
        "(%s::bigint, %s::text, %s::text, %s::bigint, %s::bigint, %s::bigint)",
        (*_fence(signer, lease), nonce, hold),
        nothing,
    )


def mark_signed(
    signer: Signer, lease: Lease, nonce: int, hold: int, tx_hash: str, raw: bytes, *, purpose: str = "send"
) -> Call[None]:
    """Store the signed bytes before they are sent."""
    return Call(
        "select fencepost.nonce_mark_signed(%s::bigint, %s::text, %s::text, %s::bigint, %s::bigint,"
        " %s::bigint, %s::text, %s::bytea, %s::text)",
        (*_fence(signer, lease), nonce, hold, text("tx_hash", tx_hash), raw, purpose),
        nothing,
    )


def mark_broadcast(signer: Signer, lease: Lease, nonce: int, hold: int) -> Call[None]:
    """The bytes were handed to a node of the chain."""
    return Call(
        "select fencepost.nonce_mark_broadcast"
        "(%s::bigint, %s::text, %s::text, %s::bigint, %s::bigint, %s::bigint)",
        (*_fence(signer, lease), nonce, hold),
        nothing,
    )


def mark_many(signer: Signer, lease: Lease, endings: Sequence[NonceEnding]) -> Call[list[NonceAnswer]]:
    """Mark many nonces with one statement; returns a result for each."""
    return Call(
        "select nonce, refusal from fencepost.nonce_mark_many"
        "(%s::bigint, %s::text, %s::text, %s::bigint, %s::bigint[], %s::bigint[], %s::text[], %s::text[])",
        (
            *_fence(signer, lease),
            [ending.nonce for ending in endings],
            [ending.hold for ending in endings],
            [ending.event for ending in endings],
            [optional_text("tx_hash", ending.tx_hash) for ending in endings],
        ),
        each(NonceAnswer),
    )


def recycle(signer: Signer, lease: Lease, limit: int = 1000) -> Call[list[int]]:
    """Give back nonces that were reserved for managed transactions and not signed in time."""
    return Call(
        "select * from fencepost.nonce_recycle(%s::bigint, %s::text, %s::text, %s::bigint, %s::integer)",
        (*_fence(signer, lease), limit),
        column,
    )


def floor(signer: Signer, lease: Lease, final_count: int, latest_count: int = 0) -> Call[Floor]:
    """Raise the sequence to the chain's count, and settle the nonces below its final count."""
    return Call(
        "select next_nonce, consumed from fencepost.nonce_floor"
        "(%s::bigint, %s::text, %s::text, %s::bigint, %s::bigint, %s::bigint)",
        (*_fence(signer, lease), final_count, latest_count),
        one(Floor),
    )


def resume(signer: Signer, lease: Lease, latest_count: int, next_nonce: int) -> Call[Resumed]:
    """After a recovery: the sequence goes on at `next_nonce`, or where it is if that is higher."""
    return Call(
        "select next_nonce, outside from fencepost.nonce_resume"
        "(%s::bigint, %s::text, %s::text, %s::bigint, %s::bigint, %s::bigint)",
        (*_fence(signer, lease), latest_count, next_nonce),
        one(Resumed),
    )


def close_recovery() -> Call[None]:
    """End the recovery: every signer of the backup goes on, and a signer first seen from now on is new."""
    return Call("select fencepost.nonce_recovery_close()", (), nothing)


def prune(keep_seconds: float, limit: int) -> Call[int]:
    """Delete expired signed bytes and data, but no nonce or key; returns how many."""
    return Call(
        "select fencepost.nonce_prune(%s::interval, %s::integer)",
        (duration("keep", keep_seconds), limit),
        scalar,
    )


def _fence(signer: Signer, lease: Lease) -> tuple[int, str, str, int]:
    return signer.chain_id, signer.name, lease.owner, lease.token
