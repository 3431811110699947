"""The database port of a change of an order at its broker: what is requested, taken and settled. Every call
is one statement, which the database fences with the take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from fencepost.kernel.call import (
    Call,
    CallRunner,
    Json,
    Row,
    document,
    duration,
    each,
    nothing,
    one,
    optional_document,
    optional_duration,
    optional_text,
    parsed,
    scalar,
    text,
)
from fencepost_orders._metrics import OrderMetrics
from fencepost_orders._order_source import BrokerHealth, Fate, Settled
from fencepost_orders.broker import OutgoingOrder

ChangeKind = Literal["cancel", "replace"]
ChangeOutcome = Literal["asking", "again", "replaced", "done", "refused"]


@dataclass(frozen=True, slots=True)
class TakenChange:
    """A change to send (`sending`) or to ask about (`unknown`). `take` is the fence."""

    id: int
    take: int
    kind: ChangeKind
    state: Literal["sending", "unknown"]
    order_id: int
    request: dict[str, Json]
    terms: dict[str, Json] | None
    order_client_id: str
    client_id: str | None
    broker_order_id: str | None
    account: str
    requests: int
    asks: int
    created_at: datetime
    order_created_at: datetime
    stamped_at: datetime
    open_since: datetime | None
    last_error: str | None
    taken_at: datetime
    taken_until: datetime

    def order(self) -> OutgoingOrder:
        """The order as the broker has it until the change takes effect."""
        return OutgoingOrder(
            self.order_client_id,
            self.request,
            self.stamped_at,
            self.account,
            self.order_created_at,
            broker_order_id=self.broker_order_id,
        )

    def replacement(self) -> OutgoingOrder:
        """The order that is to take its place."""
        assert self.terms is not None
        assert self.client_id is not None
        return OutgoingOrder(self.client_id, self.terms, self.stamped_at, self.account, self.created_at)


@dataclass(frozen=True, slots=True)
class ChangeSettlement:
    """The result of one request or one question. `fate` says what is proved about the requests so far."""

    id: int
    take: int
    outcome: ChangeOutcome
    fate: Fate = "unproved"
    code: str | None = None
    detail: str | None = None
    delay_seconds: float | None = None
    result: Json = None
    replaced: Json = None
    health: BrokerHealth | None = None


@dataclass(frozen=True, slots=True)
class Replaced:
    """A replacement that is requested, by this call or an earlier one with the same key."""

    change_id: int
    outcome: Literal["accepted", "replay"]


@dataclass(frozen=True, slots=True)
class CancelledOpen:
    """What the cancel of everything open has done: ended here, asked for at the broker, left because the
    adapter cannot cancel."""

    dead: int
    requested: int
    left_open: int


class ChangeSource:
    """A broker's changes that wait to be sent or asked about."""

    def __init__(self, database: CallRunner, broker: str, metrics: OrderMetrics) -> None:
        self._database = database
        self._broker = broker
        self._metrics = metrics
        self._kinds: dict[int, str] = {}

    @property
    def topic(self) -> str:
        return f"orders-change:{self._broker}"

    async def take(self, owner: str, lease_seconds: float, limit: int) -> Sequence[TakenChange]:
        taken = await self._database.run(take(self._broker, owner, lease_seconds, limit))
        self._kinds.update((change.id, change.kind) for change in taken)
        return taken

    async def settle(self, owner: str, settlements: Sequence[ChangeSettlement]) -> Sequence[str | None]:
        answers = await self._database.run(settle(self._broker, owner, settlements))
        for answer in answers:
            kind = self._kinds.pop(answer.id, "unknown")
            outcome = answer.refusal or str(answer.state)
            self._metrics.changes.labels(kind=kind, outcome=outcome).inc()
        refusals = {answer.id: answer.refusal for answer in answers}
        return [refusals[settlement.id] for settlement in settlements]

    async def renew(self, owner: str, lease_seconds: float, messages: Sequence[TakenChange]) -> None:
        """Does nothing. A request that outlasts its lease is asked about, and the fence decides."""

    async def expire(self, limit: int) -> int:
        """Does nothing. A take that ran out is due again by itself, to be asked about."""
        return 0


def declare_abilities(broker: str, *, can_cancel: bool, can_replace: bool) -> Call[None]:
    """Declare what the adapter of a broker can do with an order that it has placed."""
    return Call(
        "select fencepost.orders_broker_abilities(%s::text, %s::boolean, %s::boolean)",
        (text("broker", broker), can_cancel, can_replace),
        nothing,
    )


def cancel(order_id: int, key: str, actor: str, reason: str) -> Call[str]:
    """Cancel an order, here while nothing has left, else at the broker: answers dead, requested or replay."""
    return Call(
        "select fencepost.orders_cancel_at_broker(%s::bigint, %s::text, %s::text, %s::text)",
        (order_id, text("key", key), text("actor", actor), text("reason", reason)),
        scalar,
    )


def cancel_open(broker: str, account: str | None, key: str, actor: str, reason: str) -> Call[CancelledOpen]:
    """Cancel everything of a broker, or of one account, that has not ended."""
    return Call(
        "select dead, requested, left_open"
        " from fencepost.orders_cancel_open(%s::text, %s::text, %s::text, %s::text, %s::text)",
        (
            text("broker", broker),
            optional_text("account", account),
            text("key", key),
            text("actor", actor),
            text("reason", reason),
        ),
        one(CancelledOpen),
    )


def replace_order(
    order_id: int, key: str, changes: Mapping[str, Json], actor: str, reason: str
) -> Call[Replaced]:
    """Replace an order at the broker by one with other terms."""
    return Call(
        "select change_id, outcome from fencepost.orders_replace(%s::bigint, %s::text, %s::jsonb, %s::text,"
        " %s::text)",
        (
            order_id,
            text("key", key),
            document("changes", dict(changes)),
            text("actor", actor),
            text("reason", reason),
        ),
        one(Replaced),
    )


def take(broker: str, owner: str, lease_seconds: float, limit: int) -> Call[list[TakenChange]]:
    """Lease the changes that are due, to send them or to ask about them, and stamp the requests."""
    return Call(
        "select id, take, kind, state, order_id, request::text, terms::text, order_client_id, client_id,"
        " broker_order_id, account, requests, asks, created_at, order_created_at, stamped_at, open_since,"
        " last_error, taken_at, taken_until"
        " from fencepost.orders_change_take(%s::text, %s::text, %s::interval, %s::integer)",
        (text("broker", broker), text("owner", owner), duration("lease", lease_seconds), limit),
        _taken,
    )


def settle(broker: str, owner: str, settlements: Sequence[ChangeSettlement]) -> Call[list[Settled]]:
    """Settle requests or questions with one statement; answers for each."""
    return Call(
        "select id, state, refusal from fencepost.orders_change_settle(%s::text, %s::text, %s::bigint[],"
        " %s::bigint[], %s::text[], %s::text[], %s::text[], %s::text[], %s::interval[], %s::jsonb[],"
        " %s::jsonb[], %s::text[])",
        (
            text("broker", broker),
            text("owner", owner),
            [s.id for s in settlements],
            [s.take for s in settlements],
            [s.outcome for s in settlements],
            [s.fate for s in settlements],
            [optional_text("code", s.code) for s in settlements],
            [optional_text("detail", s.detail) for s in settlements],
            [optional_duration("delay", s.delay_seconds) for s in settlements],
            [optional_document("result", s.result) for s in settlements],
            [optional_document("replaced", s.replaced) for s in settlements],
            [s.health for s in settlements],
        ),
        each(Settled),
    )


def sweep(limit: int) -> Call[int]:
    """End changes of orders that never came to the broker; answers how many."""
    return Call("select fencepost.orders_change_sweep(%s::integer)", (limit,), scalar)


def _taken(rows: Sequence[Row]) -> list[TakenChange]:
    return [TakenChange(*_with_documents(row)) for row in rows]


def _with_documents(row: Row) -> tuple[Any, ...]:
    terms = None if row[6] is None else parsed(row[6])
    return (*row[:5], parsed(row[5]), terms, *row[7:])
