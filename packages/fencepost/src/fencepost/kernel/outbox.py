"""The outbox: messages written with the caller's rows, delivered in order for each key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from fencepost.kernel.call import (
    Call,
    Json,
    column,
    document,
    duration,
    each,
    nothing,
    optional_document,
    optional_duration,
    optional_text,
    parsed,
    scalar,
    text,
)
from fencepost.tracing import within_trace

Outcome = Literal["sent", "dead", "failed", "queued", "unknown", "parked"]


@dataclass(frozen=True, slots=True)
class Message:
    """A message that is held or taken. `take` is the fence of this delivery."""

    id: int
    key: str | None
    payload: Json
    headers: Mapping[str, Json]
    attempts: int
    take: int
    created_at: datetime
    taken_until: datetime | None = None
    last_error: str | None = None


@dataclass(frozen=True, slots=True)
class Settlement:
    """The outcome of one delivery. `delay_seconds` counts from now until the message is due again."""

    id: int
    take: int
    outcome: Outcome
    error: str | None = None
    delay_seconds: float | None = None
    result: Json = None


@dataclass(frozen=True, slots=True)
class SettleAnswer:
    id: int
    refusal: str | None


@dataclass(frozen=True, slots=True)
class MessageRenewal:
    id: int
    taken_until: datetime | None
    refusal: str | None


def put(
    channel: str,
    payload: Json,
    *,
    key: str | None = None,
    headers: Mapping[str, Json] | None = None,
    not_before: datetime | None = None,
) -> Call[int]:
    """Write a message in the caller's transaction; returns its id. Its headers carry the caller's trace."""
    return Call(
        "select fencepost.outbox_put(%s::text, %s::text, %s::jsonb, %s::jsonb, %s::timestamptz)",
        (
            text("channel", channel),
            optional_text("key", key),
            document("payload", payload),
            document("headers", within_trace(headers)),
            not_before,
        ),
        scalar,
    )


def put_many(
    channel: str, payloads: Sequence[Json], *, keys: Sequence[str | None] | None = None
) -> Call[list[int]]:
    """Write many with one statement, in order for each key."""
    carried = within_trace()
    return Call(
        "select * from fencepost.outbox_put_many(%s::text, %s::text[], %s::jsonb[], %s::jsonb[])",
        (
            text("channel", channel),
            None if keys is None else [optional_text("key", key) for key in keys],
            [document("payload", payload) for payload in payloads],
            [document("headers", carried)] * len(payloads) if carried else None,
        ),
        column,
    )


def hold(channel: str, limit: int, *, patience_seconds: float = 30) -> Call[list[Message]]:
    """The due messages, locked for this transaction: settle them in the same transaction."""
    return Call(
        "select id, key, payload::text, headers::text, attempts, take, created_at"
        " from fencepost.outbox_hold(%s::text, %s::integer, %s::interval)",
        (text("channel", channel), limit, duration("patience", patience_seconds)),
        each(_message),
    )


def take(
    channel: str, owner: str, lease_seconds: float, limit: int, *, unknown: bool = False
) -> Call[list[Message]]:
    """Lease the due messages to `owner`; with `unknown`, those that need reconciliation."""
    return Call(
        "select id, key, payload::text, headers::text, attempts, take, created_at, taken_until, last_error"
        " from fencepost.outbox_take(%s::text, %s::text, %s::interval, %s::integer, %s::boolean)",
        (text("channel", channel), text("owner", owner), duration("lease", lease_seconds), limit, unknown),
        each(_message),
    )


def renew(messages: Sequence[Message], owner: str, lease_seconds: float) -> Call[list[MessageRenewal]]:
    """Extend the takes of messages under delivery; answers for each and raises for none."""
    return Call(
        "select id, taken_until, refusal"
        " from fencepost.outbox_renew(%s::bigint[], %s::bigint[], %s::text, %s::interval)",
        (
            [message.id for message in messages],
            [message.take for message in messages],
            text("owner", owner),
            duration("lease", lease_seconds),
        ),
        each(MessageRenewal),
    )


def settle(settlement: Settlement, owner: str | None) -> Call[None]:
    """Settle one delivery. In a hold the owner is None."""
    return Call(
        "select fencepost.outbox_settle"
        "(%s::bigint, %s::bigint, %s::text, %s::text, %s::text, %s::interval, %s::jsonb)",
        (
            settlement.id,
            settlement.take,
            optional_text("owner", owner),
            settlement.outcome,
            optional_text("error", settlement.error),
            optional_duration("delay", settlement.delay_seconds),
            optional_document("result", settlement.result),
        ),
        nothing,
    )


def settle_many(settlements: Sequence[Settlement], owner: str | None) -> Call[list[SettleAnswer]]:
    """Settle many deliveries with one statement; returns an outcome for each."""
    return Call(
        "select id, refusal from fencepost.outbox_settle_many"
        "(%s::bigint[], %s::bigint[], %s::text, %s::text[], %s::text[], %s::interval[], %s::jsonb[])",
        (
            [s.id for s in settlements],
            [s.take for s in settlements],
            optional_text("owner", owner),
            [s.outcome for s in settlements],
            [optional_text("error", s.error) for s in settlements],
            [optional_duration("delay", s.delay_seconds) for s in settlements],
            [optional_document("result", s.result) for s in settlements],
        ),
        each(SettleAnswer),
    )


def expire(
    channel: str, outcome: Literal["queued", "unknown"], limit: int, *, grace_seconds: float = 0
) -> Call[list[int]]:
    """Expire deliveries whose taker is silent: send them again, or reconcile first. Returns their ids."""
    return Call(
        "select * from fencepost.outbox_expire(%s::text, %s::text, %s::integer, %s::interval)",
        (text("channel", channel), outcome, limit, duration("grace", grace_seconds)),
        column,
    )


def resolve(
    message_id: int, expected: str, outcome: Outcome, actor: str, note: str, *, result: Json = None
) -> Call[None]:
    """Record a person's decision about a message, guarded by the state that the person saw."""
    return Call(
        "select fencepost.outbox_resolve(%s::bigint, %s::text, %s::text, %s::text, %s::text, %s::jsonb)",
        (
            message_id,
            expected,
            outcome,
            text("actor", actor),
            text("note", note),
            optional_document("result", result),
        ),
        nothing,
    )


def prune(keep_seconds: float, limit: int) -> Call[int]:
    """Delete settled messages older than the retention; returns how many."""
    return Call(
        "select fencepost.outbox_prune(%s::interval, %s::integer)",
        (duration("keep", keep_seconds), limit),
        scalar,
    )


def _message(
    message_id: int,
    key: str | None,
    payload: str,
    headers: str,
    attempts: int,
    take: int,
    created_at: datetime,
    taken_until: datetime | None = None,
    last_error: str | None = None,
) -> Message:
    return Message(
        message_id, key, parsed(payload), parsed(headers), attempts, take, created_at, taken_until, last_error
    )
