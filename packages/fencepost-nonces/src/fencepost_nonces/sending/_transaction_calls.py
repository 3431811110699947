"""Managed transactions in the database: thin calls. `functions/nonce_tx.sql` says what each guarantees."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, LiteralString, cast, get_args

from fencepost.errors import InvalidInput
from fencepost.kernel.call import Call, Json, Row, document, each, nothing, one, optional_text, scalar, text
from fencepost.kernel.lease import Lease
from fencepost_nonces._nonce_calls import Status
from fencepost_nonces.sending._fees import Fees, Speed
from fencepost_nonces.signer import Signer

State = Literal["QUEUED", "BOUND", "MINED", "CONFIRMED", "CANCELLED", "REJECTED"]
STATES: Sequence[str] = get_args(State)
VALUE_MAX = 2**256 - 1
BATCH_MAX = 500
GAS_MIN = 21_000
# The keys of no-ops that fill gaps. A caller's own transaction under one would keep its gap open forever.
FILLS = "fill:"


@dataclass(frozen=True, slots=True)
class TransactionRequest:
    """The transaction to send. `to` is None for the creation of a contract; `gas` is None to estimate it."""

    to: str | None
    value: int
    data: bytes
    gas: int | None

    def check(self, gas_max: int) -> None:
        """Refuse what no block would accept, or the gas cap forbids, before anything is reserved."""
        if not 0 <= self.value <= VALUE_MAX:
            raise InvalidInput("value must be an integer from 0 to 2^256 - 1.", field="value")
        if self.gas is not None and not GAS_MIN <= self.gas <= gas_max:
            raise InvalidInput(
                f"gas is {self.gas}; allowed: from {GAS_MIN} to {gas_max} (NONCES_GAS_MAX).", field="gas"
            )
        if self.to is None and not self.data:
            raise InvalidInput("Without `to` a contract is created, and that needs data.", field="to")


@dataclass(frozen=True, slots=True)
class FeePolicy:
    """How fast it should be mined, what it may offer for a unit of gas, in wei, and until when."""

    speed: Speed = "standard"
    fee_cap: int | None = None
    deadline: datetime | None = None

    def check(self) -> None:
        if self.fee_cap is not None and not 1 <= self.fee_cap <= VALUE_MAX:
            raise InvalidInput("fee_cap must be an integer from 1 to 2^256 - 1.", field="fee_cap")
        if self.deadline is not None and self.deadline.tzinfo is None:
            raise InvalidInput("deadline needs a time zone: 2026-05-01T12:00:00Z.", field="deadline")


USUAL = FeePolicy()


@dataclass(frozen=True, slots=True)
class Submission:
    """A transaction as a caller asks for it, under its key."""

    signer: Signer
    key: str
    order: TransactionRequest
    policy: FeePolicy = USUAL
    webhook: str | None = None

    def digest(self) -> str:
        """The digest of the content: the same key with another digest is refused.

        An estimated gas is not part of it: a repeat must not depend on what the chain estimates by then.
        """
        order, policy = self.order, self.policy
        content: list[object] = [
            self.signer.chain_id, self.signer.name, order.to, str(order.value), order.data.hex(), order.gas,
        ]  # fmt: skip
        if policy != USUAL:
            until = None if policy.deadline is None else policy.deadline.timestamp()
            content += [policy.speed, _maybe(policy.fee_cap), until]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Submitted:
    transaction_id: int
    state: State
    repeated: bool


@dataclass(frozen=True, slots=True)
class SubmittedItem:
    """The answer to one transaction of a batch: the transaction, or why its key was refused."""

    key: str
    transaction_id: int | None
    state: State | None
    repeated: bool | None
    refusal: str | None


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
    speed: Speed = "standard"
    fee_cap: int | None = None
    has_deadline: bool = False


def submit(
    signer: Signer,
    key: str,
    order: TransactionRequest,
    *,
    policy: FeePolicy = USUAL,
    webhook: str | None = None,
    gas: int | None = None,
) -> Call[Submitted]:
    """Accept a transaction; the same key again returns the existing one. `gas` is the estimate for an order
    that names none."""
    return _submit(Submission(signer, check_key(key), order, policy, webhook), gas)


def fill(signer: Signer, nonce: int, hold: int, order: TransactionRequest, gas: int) -> Call[Submitted]:
    """Submit a no-op for a gap, once for each time that the nonce was given back."""
    return _submit(Submission(signer, f"{FILLS}{signer.resource}:{nonce}:{hold}", order), gas)


def check_key(key: str) -> str:
    if key.startswith(FILLS):
        raise InvalidInput(
            f"Keys that begin with {FILLS} are reserved for this service.", field="idempotency_key"
        )
    return text("idempotency_key", key)


def _submit(asked: Submission, gas: int | None) -> Call[Submitted]:
    return Call(
        "select transaction_id, state, repeated from fencepost.nonce_tx_submit(%s::bigint, %s::text,"
        " %s::text, %s::text, %s::text, %s::numeric, %s::bytea, %s::bigint, %s::text, %s::text, %s::numeric,"
        " %s::timestamptz)",
        _row(asked, gas),
        one(Submitted),
    )


def submit_many(asked: Sequence[tuple[Submission, int | None]]) -> Call[list[SubmittedItem]]:
    """Accept many at once, each with its estimated gas; answers for each, in their order."""
    columns = zip(*(_row(submission, gas) for submission, gas in asked), strict=True)
    return Call(
        "select idempotency_key, transaction_id, state, repeated, refusal from"
        " fencepost.nonce_tx_submit_many(%s::bigint[], %s::text[], %s::text[], %s::text[], %s::text[],"
        " %s::numeric[], %s::bytea[], %s::bigint[], %s::text[], %s::text[], %s::numeric[],"
        " %s::timestamptz[])",
        tuple(map(list, columns)),
        each(SubmittedItem),
    )


def _row(asked: Submission, gas: int | None) -> tuple[Any, ...]:
    order, policy = asked.order, asked.policy
    return (
        asked.signer.chain_id,
        asked.signer.name,
        asked.key,
        asked.digest(),
        order.to,
        str(order.value),
        order.data,
        order.gas or gas,
        optional_text("webhook", asked.webhook),
        policy.speed,
        _maybe(policy.fee_cap),
        policy.deadline,
    )


def expire(signer: Signer, lease: Lease, limit: int) -> Call[int]:
    """Act on the deadlines that have passed; returns how many transactions that ended."""
    return Call(
        "select fencepost.nonce_tx_expire(%s::bigint, %s::text, %s::text, %s::bigint, %s::integer)",
        (*_fence(signer, lease), limit),
        scalar,
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
        " purpose, error, block_number, in_doubt, unproved, speed, fee_cap, has_deadline"
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
    "speed", "fee_cap", "deadline", "expired_at",
)  # fmt: skip
_SELECT: LiteralString = (
    "select transaction_id, chain_id, signer, idempotency_key, state, nonce_status, nonce, recipient,"
    " value::text, gas_limit, max_fee::text, max_priority::text, tx_hash, block_number, receipt::text, error,"
    " cancel_requested_at, created_at, updated_at, in_doubt_since, unproved_since,"
    " speed, fee_cap::text, deadline, expired_at from fencepost.managed_transaction"
)


def find(transaction_id: int) -> Call[list[dict[str, Any]]]:
    return Call(_SELECT + " where transaction_id = %s", (transaction_id,), _facts)


def find_by_key(key: str) -> Call[list[dict[str, Any]]]:
    return Call(_SELECT + " where idempotency_key = %s", (key,), _facts)


@dataclass(frozen=True, slots=True)
class Filters:
    """Which transactions a list has: all of them, unless something is named. `until` itself is left out."""

    signer: Signer | None = None
    states: Sequence[State] | None = None
    created_from: datetime | None = None
    created_until: datetime | None = None


ALL = Filters()


def states_of(words: Sequence[str]) -> list[State] | None:
    """The states of a list; None for all. Raises InvalidInput for a word that is no state."""
    for word in words:
        if word not in STATES:
            raise InvalidInput(f"state is {word}; allowed: {', '.join(STATES)}.", field="state")
    return [cast("State", word) for word in words] or None


def newest(limit: int, below: int | None = None, filters: Filters = ALL) -> Call[list[dict[str, Any]]]:
    """The newest first; `below` is the last one of the page before."""
    signer = filters.signer
    return Call(
        _SELECT + " where transaction_id = any (array(select fencepost.nonce_tx_page(%s::bigint, %s::text,"
        " %s::text[], %s::timestamptz, %s::timestamptz, %s::bigint, %s::integer)))"
        " order by created_at desc, transaction_id desc",
        (
            signer and signer.chain_id,
            signer and signer.name,
            filters.states and list(filters.states),
            filters.created_from,
            filters.created_until,
            below,
            limit,
        ),
        _facts,
    )


def find_many(transaction_ids: Sequence[int]) -> Call[list[dict[str, Any]]]:
    return Call(_SELECT + " where transaction_id = any (%s)", (list(transaction_ids),), _facts)


def gas_of_keys(keys: Sequence[str]) -> Call[dict[str, int]]:
    """The gas of those keys that have a transaction already."""
    return Call(
        "select idempotency_key, gas_limit from fencepost.managed_transaction"
        " where idempotency_key = any (%s)",
        (list(keys),),
        lambda rows: {row[0]: row[1] for row in rows},
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
    speed: Speed,
    fee_cap: str | None,
    has_deadline: bool,
) -> Open:
    tip = None if max_priority is None else int(max_priority)
    fees = None if max_fee is None else Fees(int(max_fee), tip)
    order = TransactionRequest(recipient, int(value), bytes(data), gas)
    return Open(
        transaction_id, state, nonce, hold, status, order, fees, block_hash,
        None if raw is None else bytes(raw), hashes, signed_seconds, cancelling, rejected, purpose, error,
        block_number, in_doubt, unproved, speed, None if fee_cap is None else int(fee_cap), has_deadline,
    )  # fmt: skip


def _maybe(wei: int | None) -> str | None:
    return None if wei is None else str(wei)


def _fence(signer: Signer, lease: Lease) -> tuple[int, str, str, int]:
    return signer.chain_id, signer.name, lease.owner, lease.token
