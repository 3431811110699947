"""Managed transactions in the database: thin calls. `functions/nonce_tx.sql` says what each guarantees."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, LiteralString

from fencepost.errors import InvalidInput
from fencepost.kernel.call import Call, Json, Row, document, each, nothing, one, optional_text, scalar, text
from fencepost.kernel.lease import Lease
from fencepost_nonces._nonce_calls import Status
from fencepost_nonces.sending._fees import Fees
from fencepost_nonces.signer import Signer

State = Literal["QUEUED", "BOUND", "MINED", "CONFIRMED", "CANCELLED", "REJECTED"]
VALUE_MAX = 2**256 - 1
GAS_MIN = 21_000
# The keys of no-ops that fill gaps. A caller's own transaction under one would keep its gap open forever.
FILLS = "fill:"


@dataclass(frozen=True, slots=True)
class TransactionRequest:
    """The transaction to send. `to` is None for the creation of a contract."""

    to: str | None
    value: int
    data: bytes
    gas: int

    def check(self, gas_max: int) -> None:
        """Refuse what no block would accept, or the gas cap forbids, before anything is reserved."""
        if not 0 <= self.value <= VALUE_MAX:
            raise InvalidInput("value must be an integer from 0 to 2^256 - 1.", field="value")
        if not GAS_MIN <= self.gas <= gas_max:
            raise InvalidInput(
                f"gas is {self.gas}; allowed: from {GAS_MIN} to {gas_max} (NONCES_GAS_MAX).", field="gas"
            )
        if self.to is None and not self.data:
            raise InvalidInput("Without `to` a contract is created, and that needs data.", field="to")

    def digest(self, signer: Signer) -> str:
        """The digest of the content: the same key with another digest is refused."""
        content = [signer.chain_id, signer.name, self.to, str(self.value), self.data.hex(), self.gas]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Submitted:
    transaction_id: int
    state: State
    repeated: bool


@dataclass(frozen=True, slots=True)
class WaitingTransaction:
    """A signer with transactions to advance, and for how long no node has held it nevertheless."""

    chain_id: int
    name: str
    free_seconds: float

    @property
    def signer(self) -> Signer:
        return Signer(self.chain_id, self.name)


@dataclass(frozen=True, slots=True)
class Open:
    """A transaction that has its nonce, and how far it has come."""

    transaction_id: int
    state: State
    nonce: int
    hold: int
    status: Status
    order: TransactionRequest
    fees: Fees | None
    block_hash: str | None
    raw: bytes | None
    hashes: Sequence[str]
    signed_seconds: float
    cancelling: bool
    rejected: bool
    purpose: Literal["send", "cancel"] | None
    error: str | None
    block_number: int | None = None
    in_doubt: bool = False
    unproved: bool = False


def submit(
    signer: Signer, key: str, order: TransactionRequest, *, webhook: str | None = None
) -> Call[Submitted]:
    """Accept a transaction; the same key again returns the existing one."""
    if key.startswith(FILLS):
        raise InvalidInput(
            f"Keys that begin with {FILLS} are reserved for this service.", field="idempotency_key"
        )
    return _submit(signer, key, order, webhook)


def fill(signer: Signer, nonce: int, hold: int, order: TransactionRequest) -> Call[Submitted]:
    """Submit a no-op for a gap, once for each time that the nonce was given back."""
    return _submit(signer, f"{FILLS}{signer.resource}:{nonce}:{hold}", order, None)


def _submit(signer: Signer, key: str, order: TransactionRequest, webhook: str | None) -> Call[Submitted]:
    return Call(
        "select transaction_id, state, repeated from fencepost.nonce_tx_submit(%s::bigint, %s::text,"
        " %s::text, %s::text, %s::text, %s::numeric, %s::bytea, %s::bigint, %s::text)",
        (
            signer.chain_id,
            signer.name,
            text("idempotency_key", key),
            order.digest(signer),
            order.to,
            str(order.value),
            order.data,
            order.gas,
            optional_text("webhook", webhook),
        ),
        one(Submitted),
    )


def take(signer: Signer, lease: Lease, limit: int, open_max: int, locked_seconds: float) -> Call[int]:
    """Bind the transactions that wait longest to nonces; returns how many."""
    return Call(
        "select fencepost.nonce_tx_take(%s::bigint, %s::text, %s::text, %s::bigint, %s::integer, %s::integer,"
        " make_interval(secs => %s::float8))",
        (*_fence(signer, lease), limit, open_max, locked_seconds),
        scalar,
    )


def open_of(signer: Signer, limit: int) -> Call[list[Open]]:
    """The transactions under way, in order of nonce."""
    return Call(
        "select transaction_id, state, nonce, hold, status, recipient, value, data, gas_limit, max_fee,"
        " max_priority, block_hash, raw, signed_hashes,"
        " coalesce(extract(epoch from fencepost.clock() - signed_at), 0)::float8, cancelling, rejected,"
        " purpose, error, block_number, in_doubt, unproved"
        " from fencepost.nonce_tx_open(%s::bigint, %s::text, %s::integer)",
        (signer.chain_id, signer.name, limit),
        each(_open),
    )


def signers() -> Call[list[WaitingTransaction]]:
    """The signers that have transactions to advance."""
    return Call(
        "select chain_id, signer, free_seconds from fencepost.nonce_tx_signers()",
        (),
        each(WaitingTransaction),
    )


def signing(signer: Signer, lease: Lease, tx: Open, fees: Fees) -> Call[None]:
    return Call(
        "select fencepost.nonce_tx_signing(%s::bigint, %s::text, %s::text, %s::bigint, %s::bigint,"
        " %s::bigint, %s::numeric, %s::numeric)",
        (*_fence(signer, lease), tx.transaction_id, tx.hold, str(fees.max_fee), _maybe(fees.max_priority)),
        nothing,
    )


def signed(
    signer: Signer, lease: Lease, tx: Open, tx_hash: str, raw: bytes, *, purpose: str = "send"
) -> Call[None]:
    """Store its signed bytes before they are sent."""
    return Call(
        "select fencepost.nonce_tx_signed(%s::bigint, %s::text, %s::text, %s::bigint, %s::bigint,"
        " %s::bigint, %s::text, %s::bytea, %s::text)",
        (*_fence(signer, lease), tx.transaction_id, tx.hold, text("tx_hash", tx_hash), raw, purpose),
        nothing,
    )


def broadcast(signer: Signer, lease: Lease, tx: Open) -> Call[None]:
    """Its bytes were handed to a node of the chain."""
    return Call(
        "select fencepost.nonce_tx_broadcast"
        "(%s::bigint, %s::text, %s::text, %s::bigint, %s::bigint, %s::bigint)",
        (*_fence(signer, lease), tx.transaction_id, tx.hold),
        nothing,
    )


def mined(
    signer: Signer,
    lease: Lease,
    tx: Open,
    tx_hash: str | None,
    block_number: int | None,
    block_hash: str | None,
) -> Call[None]:
    """A block contains it; without a block, a reorganisation removed it."""
    return Call(
        "select fencepost.nonce_tx_mined(%s::bigint, %s::text, %s::text, %s::bigint, %s::bigint, %s::text,"
        " %s::bigint, %s::text)",
        (*_fence(signer, lease), tx.transaction_id, tx_hash, block_number, block_hash),
        nothing,
    )


def confirm(signer: Signer, lease: Lease, tx: Open, tx_hash: str, receipt: Json) -> Call[State]:
    """Its block is deep enough: the transaction ends."""
    return Call(
        "select fencepost.nonce_tx_confirm(%s::bigint, %s::text, %s::text, %s::bigint, %s::bigint, %s::text,"
        " %s::jsonb)",
        (*_fence(signer, lease), tx.transaction_id, tx_hash, document("receipt", receipt)),
        scalar,
    )


def lost(
    signer: Signer, lease: Lease, tx: Open, used_by: str, block_number: int, block_hash: str
) -> Call[None]:
    """A foreign transaction with the same key has finally used its nonce: it takes another one."""
    return Call(
        "select fencepost.nonce_tx_lost(%s::bigint, %s::text, %s::text, %s::bigint, %s::bigint, %s::text,"
        " %s::bigint, %s::text)",
        (*_fence(signer, lease), tx.transaction_id, text("used_by", used_by), block_number, block_hash),
        nothing,
    )


def unproved(signer: Signer, lease: Lease, tx: Open, why: str) -> Call[None]:
    """Its nonce is used, and nothing proves by which transaction: it keeps it, and needs attention."""
    return Call(
        "select fencepost.nonce_tx_unproved"
        "(%s::bigint, %s::text, %s::text, %s::bigint, %s::bigint, %s::text)",
        (*_fence(signer, lease), tx.transaction_id, text("error", why)),
        nothing,
    )


def reject(
    signer: Signer, lease: Lease, tx: Open, state: Literal["REJECTED", "CANCELLED"], why: str
) -> Call[None]:
    """It must not be sent. Unsigned, it ends at once; signed, a no-op takes its nonce first."""
    return Call(
        "select fencepost.nonce_tx_reject(%s::bigint, %s::text, %s::text, %s::bigint, %s::bigint, %s::text,"
        " %s::text)",
        (*_fence(signer, lease), tx.transaction_id, state, text("error", why)),
        nothing,
    )


def note(signer: Signer, lease: Lease, tx: Open, why: str | None) -> Call[None]:
    """Record what blocks it at present, or None."""
    return Call(
        "select fencepost.nonce_tx_note(%s::bigint, %s::text, %s::text, %s::bigint, %s::bigint, %s::text)",
        (*_fence(signer, lease), tx.transaction_id, optional_text("error", why)),
        nothing,
    )


def vouch(signer: Signer, lease: Lease, transaction_id: int) -> Call[None]:
    """An operator states that nothing of it was mined. It may take a nonce again."""
    return Call(
        "select fencepost.nonce_tx_vouch(%s::bigint, %s::text, %s::text, %s::bigint, %s::bigint)",
        (*_fence(signer, lease), transaction_id),
        nothing,
    )


def close(signer: Signer, lease: Lease, transaction_id: int, tx_hash: str, receipt: Json) -> Call[None]:
    """An operator states that it was mined, with this hash."""
    return Call(
        "select fencepost.nonce_tx_close(%s::bigint, %s::text, %s::text, %s::bigint, %s::bigint, %s::text,"
        " %s::jsonb)",
        (*_fence(signer, lease), transaction_id, text("tx_hash", tx_hash), document("receipt", receipt)),
        nothing,
    )


def cancel(transaction_id: int) -> Call[State]:
    """Cancel it now, or mark it for its owner, which replaces it with a no-op."""
    return Call("select fencepost.nonce_tx_cancel(%s::bigint)", (transaction_id,), scalar)


_COLUMNS: tuple[str, ...] = (
    "transaction_id", "chain_id", "signer", "idempotency_key", "state", "nonce_status", "nonce", "to",
    "value", "gas", "max_fee", "max_priority", "tx_hash", "block_number", "receipt", "error",
    "cancel_requested_at", "created_at", "updated_at", "in_doubt_since", "unproved_since",
)  # fmt: skip
_SELECT: LiteralString = (
    "select transaction_id, chain_id, signer, idempotency_key, state, nonce_status, nonce, recipient,"
    " value::text, gas_limit, max_fee::text, max_priority::text, tx_hash, block_number, receipt::text, error,"
    " cancel_requested_at, created_at, updated_at, in_doubt_since, unproved_since"
    " from fencepost.managed_transaction"
)


def find(transaction_id: int) -> Call[list[dict[str, Any]]]:
    return Call(_SELECT + " where transaction_id = %s", (transaction_id,), _facts)


def find_by_key(key: str) -> Call[list[dict[str, Any]]]:
    return Call(_SELECT + " where idempotency_key = %s", (key,), _facts)


def newest(limit: int, below: int | None = None) -> Call[list[dict[str, Any]]]:
    return Call(
        _SELECT + " where transaction_id < coalesce(%s::bigint, 9223372036854775807)"
        " order by transaction_id desc limit %s",
        (below, limit),
        _facts,
    )


def _facts(rows: Sequence[Row]) -> list[dict[str, Any]]:
    found = [dict(zip(_COLUMNS, row, strict=True)) for row in rows]
    for fact in found:
        fact["receipt"] = fact["receipt"] and json.loads(fact["receipt"])
    return found


def _open(
    transaction_id: int,
    state: State,
    nonce: int,
    hold: int,
    status: Status,
    recipient: str | None,
    value: str,
    data: bytes,
    gas: int,
    max_fee: str | None,
    max_priority: str | None,
    block_hash: str | None,
    raw: bytes | None,
    hashes: Sequence[str],
    signed_seconds: float,
    cancelling: bool,
    rejected: bool,
    purpose: Literal["send", "cancel"] | None,
    error: str | None,
    block_number: int | None,
    in_doubt: bool,
    unproved: bool,
) -> Open:
    tip = None if max_priority is None else int(max_priority)
    fees = None if max_fee is None else Fees(int(max_fee), tip)
    order = TransactionRequest(recipient, int(value), bytes(data), gas)
    return Open(
        transaction_id, state, nonce, hold, status, order, fees, block_hash,
        None if raw is None else bytes(raw), hashes, signed_seconds, cancelling, rejected, purpose, error,
        block_number, in_doubt, unproved,
    )  # fmt: skip


def _maybe(wei: int | None) -> str | None:
    return None if wei is None else str(wei)


def _fence(signer: Signer, lease: Lease) -> tuple[int, str, str, int]:
    return signer.chain_id, signer.name, lease.owner, lease.token
