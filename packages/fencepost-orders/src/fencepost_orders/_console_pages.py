"""The pages of orders: live orders and those that wait for a decision, with the evidence, and the
decision."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal, cast
from uuid import uuid4

from fastapi import Path, Query, Request
from pydantic import BaseModel, Field

from fencepost.errors import NotFound
from fencepost_orders import _change_source as change_source
from fencepost_orders import operator_calls
from fencepost_server.console.bulk_actions import BulkActions, Choice, Number, add_bulk_actions
from fencepost_server.console.context import ConsoleContext, Name, Paged, wanted
from fencepost_server.console.listing import Listing
from fencepost_server.console.page_data import ActionDone, PageData
from fencepost_server.console.plugin_pages import ConsolePages
from fencepost_server.console.router import visitor_of
from fencepost_server.web.formatting import link
from fencepost_server.web.questions import Confirmation, counted
from fencepost_server.web.words import say

_ORDERS = Listing(
    table="orders",
    sql="select (o ->> 'id')::bigint as id, o ->> 'status' as status, o ->> 'idempotency_key' as key,"
    " o ->> 'broker' as broker, o ->> 'account' as account, o ->> 'symbol' as symbol,"
    " o #>> '{request_json,intent}' as side,"
    # What is no number has no place in an order by number.
    " case when o #>> '{request_json,qty}' ~ '^-?[0-9]{1,40}([.][0-9]{1,40})?$'"
    " then (o #>> '{request_json,qty}')::numeric end as quantity,"
    " case when o #>> '{request_json,limit_price}' ~ '^-?[0-9]{1,40}([.][0-9]{1,40})?$'"
    " then (o #>> '{request_json,limit_price}')::numeric end as price,"
    " (o ->> 'created_at')::timestamptz as created_at, o ->> 'last_error' as last_error, o as facts"
    " from fencepost.orders_list(%(status)s::text, %(broker)s::text, %(account)s::text, %(before)s::bigint,"
    " %(limit)s::integer) o",
    key=("id",),
    positions=("before",),
    is_descending=True,
    columns={
        "id": "bigint",
        "status": "text",
        "key": "text",
        "broker": "text",
        "account": "text",
        "symbol": "text",
        "side": "text",
        "quantity": "numeric",
        "price": "numeric",
        "created_at": "timestamptz",
        "last_error": "text",
    },
    searched=("key", "broker", "account", "symbol", "last_error"),
    weight=2,
)
OrderId = Annotated[int, Path(ge=1, le=9_223_372_036_854_775_807)]
BrokerName = Annotated[str, Path(min_length=1, max_length=64, pattern=r"^[^\x00/]+$")]
CHANNEL = "orders:"
STATES = ("queued", "sending", "failed", "unknown", "parked", "sent", "dead")


class OrderQuery(Paged):
    status: Literal["", "queued", "sending", "failed", "unknown", "parked", "sent", "dead"] | None = None
    broker: Name | None = None
    account: Name | None = None


class ResolveOrder(BaseModel):
    """A decision about an order, guarded by the state that was seen."""

    model_config = {"extra": "forbid"}

    expected: Literal["queued", "failed", "unknown", "parked"]
    outcome: Literal["sent", "dead", "unknown", "queued"]
    reason: Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^\x00]+$")]
    broker_order_id: Annotated[str, Field(max_length=256, pattern=r"^[^\x00]*$")] | None = None
    """The broker's own id, when the broker was seen to have the order; only `sent` keeps it."""


class CancelOrder(BaseModel):
    model_config = {"extra": "forbid"}

    reason: Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^\x00]+$")]


class Switch(BaseModel):
    """The kill switch of a broker, or of one of its accounts."""

    model_config = {"extra": "forbid"}

    account: Annotated[str | None, Field(max_length=128, pattern=r"^[^\x00]*$")] = None
    reason: Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^\x00]+$")]


class Halt(Switch):
    key: Annotated[str | None, Field(max_length=128, pattern=r"^[!-~]+$")] = None
    """Cancels what has not ended under this key: a form that is sent twice asks once."""
    cancel_open: bool = False


class CancelAtBroker(CancelOrder):
    """The page makes the key: a form that is sent twice asks once."""

    key: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[!-~]+$")]


def _add_pages(context: ConsoleContext) -> None:
    @context.router.page("/orders", "orders.html", "Orders")
    async def orders(request: Request, query: Annotated[OrderQuery, Query()]) -> PageData:
        """Orders, newest first; the number of live orders in each state; and the brokers."""
        page = await context.lists.read(
            _ORDERS,
            query,
            query.limit,
            {
                "status": wanted(query.status),
                "broker": wanted(query.broker),
                "account": wanted(query.account),
            },
        )
        rows = [cast("dict[str, Any]", one["facts"]) for one in page.rows]
        return PageData(
            {
                "orders": rows,
                "counts": await context.reading.rows(
                    "select * from fencepost.orders_counts() order by broker, status"
                ),
                "brokers": await context.reading.rows(
                    "select * from fencepost.orders_brokers order by broker"
                ),
                "limits": await context.reading.rows(
                    "select * from fencepost.orders_limits order by broker, account"
                ),
                **page.next,
                "filters": query.filters(),
                "states": STATES,
                "halt_key": f"console-{uuid4()}",
            },
            "orders",
            ("counts", "brokers", "limits"),
            {"orders": page.state},
        )

    @context.router.page("/orders/{order_id}", "order.html", "Order")
    async def order(request: Request, order_id: OrderId) -> PageData:
        """One order: the request, every transition, and the broker's answers."""
        row = await context.reading.row(
            "select o as facts from fencepost.orders_get(%s::bigint, null::text) o", order_id
        )
        if row is None:
            raise NotFound(
                say("There is no order {order_id}: it never existed, or it was pruned.", order_id=order_id)
            )
        history = await context.reading.rows(
            "select h as facts from fencepost.orders_history(%s::bigint) h", order_id
        )
        return PageData(
            {
                "title": say("Order {order_id}", order_id=order_id),
                "terms": _terms(row["facts"]["request_json"]),
                "order": row["facts"],
                "change_key": f"console-{uuid4()}",
                "history": [one["facts"] for one in history],
            },
            rows="history",
        )


def _terms(request: Mapping[str, Any]) -> str:
    """`SELL 3,300 MSFT at 410.5`."""
    told = " ".join(
        part
        for part in (request.get("intent"), _amount(request.get("qty", "")), request.get("symbol"))
        if part
    )
    if request.get("limit_price"):
        told += f" at {_amount(request['limit_price'])}"
    if request.get("stop_price"):
        told += say(", stop {stop_price}", stop_price=_amount(request["stop_price"]))
    return told


def _amount(text: str) -> str:
    """With a comma at each thousand; the digits stay as they are stored."""
    whole, point, part = str(text).partition(".")
    return f"{int(whole):,}{point}{part}" if whole.isdigit() else str(text)


_ENDS = {
    "sent": "It counts as placed and is not sent again.",
    "dead": "It is given up and is not sent again. If the broker has it after all, it may still be filled.",
    "unknown": "The broker is asked about it again.",
    "queued": "It is sent again under the same key.",
}


class OrderQuestions:
    """What a person confirms, for each action."""

    def __init__(self, context: ConsoleContext) -> None:
        self._reading = context.reading

    async def _told(self, order_id: int) -> tuple[str, str, dict[str, Any]]:
        row = await self._reading.row(
            "select o as facts from fencepost.orders_get(%s::bigint, null::text) o", order_id
        )
        if row is None:
            raise NotFound(
                say("There is no order {order_id}: it never existed, or it was pruned.", order_id=order_id)
            )
        order = row["facts"]
        behind = await self._reading.row(
            "select count(*) as orders from (select 1 from fencepost.outbox_orders b"
            " where b.order_key = %s and b.broker = %s and b.id > %s and b.settled_at is null limit 1000) b",
            order["order_key"],
            order["broker"],
            order_id,
        )
        waiting = behind["orders"] if behind is not None and order["order_key"] else 0
        onward = (
            say("{waiting} behind it can go out.", waiting=counted(waiting, "order"))
            if waiting
            else "No order waits behind it."
        )
        return (
            say(
                "Order {order_id}, {request_json}",
                order_id=order_id,
                request_json=_terms(order["request_json"]),
            ),
            onward,
            order,
        )

    async def resolve(self, request: Request, order_id: int, body: ResolveOrder) -> Confirmation:
        name, onward, order = await self._told(order_id)
        where = say(
            "Now {status} at {broker}, account {account}.",
            status=order["status"],
            broker=order["broker"],
            account=order["account"],
        )
        ends = [where, _ends_as(body), *([onward] if body.outcome in ("sent", "dead") else [])]
        return Confirmation(
            say("{name}, becomes {outcome}?", name=name, outcome=body.outcome),
            [*ends, say("Because: {reason}", reason=body.reason)],
            say("Make it {outcome}", outcome=body.outcome),
            f"/console/orders/{order_id}",
        )

    async def cancel(self, request: Request, order_id: int, body: CancelOrder) -> Confirmation:
        name, onward, _ = await self._told(order_id)
        ends = [
            "It was not sent, and is not sent any more.",
            onward,
            say("Because: {reason}", reason=body.reason),
        ]
        return Confirmation(
            say("Cancel {name}?", name=name),
            ends,
            say("Cancel order {order_id}", order_id=order_id),
            f"/console/orders/{order_id}",
        )

    async def cancel_at_broker(self, request: Request, order_id: int, body: CancelAtBroker) -> Confirmation:
        name, _, order = await self._told(order_id)
        ends = [
            say(
                "{broker} is asked to cancel it. What is filled before that stays filled.",
                broker=order["broker"],
            ),
            say("Because: {reason}", reason=body.reason),
        ]
        title = say("Cancel {name}, at {broker}?", name=name, broker=order["broker"])
        return Confirmation(title, ends, "Cancel at the broker", f"/console/orders/{order_id}")

    async def _live(self, broker: str, account: str | None) -> dict[str, int]:
        rows = await self._reading.rows(
            "select status, count(*) as orders"
            " from fencepost.outbox_orders"
            " where settled_at is null and broker = %s and (%s::text is null or account = %s)"
            " group by status",
            broker,
            wanted(account),
            wanted(account),
        )
        return {row["status"]: row["orders"] for row in rows}

    async def halt(self, request: Request, broker: str, body: Halt) -> Confirmation:
        counts = await self._live(broker, body.account)
        waiting = counts.get("queued", 0) + counts.get("failed", 0)
        what = (
            say("account {account} of {broker}", account=body.account, broker=broker)
            if wanted(body.account)
            else broker
        )
        ends = [
            say(
                "No order of {what} is sent until it is resumed: {waiting} wait.",
                what=what,
                waiting=counted(waiting, "order"),
            ),
            say(
                "{value} in flight cannot be called back.", value=counted(counts.get("sending", 0), "request")
            ),
        ]
        if body.cancel_open:
            ends.append(
                say(
                    "{values} are cancelled, at the broker too.",
                    values=counted(sum(counts.values()), "open order"),
                )
            )
        return Confirmation(
            say("Halt {what}?", what=what),
            [*ends, say("Because: {reason}", reason=body.reason)],
            say("Halt {what}", what=what),
            "/console/orders",
        )

    async def resume(self, request: Request, broker: str, body: Switch) -> Confirmation:
        counts = await self._live(broker, body.account)
        waiting = counts.get("queued", 0) + counts.get("failed", 0)
        what = (
            say("account {account} of {broker}", account=body.account, broker=broker)
            if wanted(body.account)
            else broker
        )
        ends = [
            say(
                "{waiting} of {what} are due at once, except those that have expired.",
                waiting=counted(waiting, "waiting order"),
                what=what,
            ),
            *(["Its pause and its breaker end too."] if not wanted(body.account) else []),
            say("Because: {reason}", reason=body.reason),
        ]
        return Confirmation(
            say("Resume {what}?", what=what), ends, say("Resume {what}", what=what), "/console/orders"
        )


def _ends_as(body: ResolveOrder) -> str:
    if body.outcome == "sent" and wanted(body.broker_order_id):
        return say(
            "{sent} The broker's id is {broker_order_id}.",
            sent=_ENDS["sent"],
            broker_order_id=body.broker_order_id,
        )
    return _ENDS[body.outcome]


def _add_actions(context: ConsoleContext) -> None:
    questions = OrderQuestions(context)

    @context.router.action("/brokers/{broker}/halt", "broker.halt", asks=questions.halt)
    async def halt(request: Request, broker: BrokerName, body: Halt) -> ActionDone:
        """Turn the kill switch on: nothing more is sent. `cancel_open` also cancels what has not ended."""
        actor, account = visitor_of(request).actor, wanted(body.account)
        await context.fp.run(operator_calls.halt(broker, account, actor, body.reason))
        told, facts = say("{what} is halted", what=account or broker), {}
        if body.cancel_open:
            key = body.key or f"console-{uuid4()}"
            done = await context.fp.run(change_source.cancel_open(broker, account, key, actor, body.reason))
            facts = {"cancelled": asdict(done)}
            told += say(
                "; {dead} cancelled here, {requested} asked for at the broker",
                dead=done.dead,
                requested=done.requested,
            )
            told += (
                say(", {left_open} left: its adapter cannot cancel", left_open=done.left_open)
                if done.left_open
                else ""
            )
        context.live_snapshot.forget()
        return ActionDone(f"{told}.", "/console/orders", facts)

    @context.router.action("/brokers/{broker}/resume", "broker.resume", asks=questions.resume)
    async def resume(request: Request, broker: BrokerName, body: Switch) -> ActionDone:
        """Turn the kill switch off: waiting orders are due at once, except those that have expired."""
        account = wanted(body.account)
        await context.fp.run(operator_calls.resume(broker, account, visitor_of(request).actor, body.reason))
        context.live_snapshot.forget()
        return ActionDone(say("{what} is resumed.", what=account or broker), "/console/orders")

    @context.router.action("/orders/{order_id}/resolve", "order.resolve", asks=questions.resolve)
    async def resolve(request: Request, order_id: OrderId, body: ResolveOrder) -> ActionDone:
        """Decide about an order whose outcome could not be proved; `sent` keeps what was seen at the
        broker."""
        actor = visitor_of(request).actor
        seen = (
            operator_calls.result_by_hand(actor, wanted(body.broker_order_id))
            if body.outcome == "sent"
            else None
        )
        await context.fp.run(
            operator_calls.resolve(order_id, body.expected, body.outcome, actor, body.reason, result=seen)
        )
        context.live_snapshot.forget()
        return ActionDone(
            say("Order {order_id} is {outcome}.", order_id=order_id, outcome=body.outcome),
            f"/console/orders/{order_id}",
        )

    @context.router.action("/orders/{order_id}/cancel", "order.cancel", asks=questions.cancel)
    async def cancel(request: Request, order_id: OrderId, body: CancelOrder) -> ActionDone:
        """Cancel an order that has not been sent."""
        await context.fp.run(operator_calls.cancel(order_id, visitor_of(request).actor, body.reason))
        context.live_snapshot.forget()
        return ActionDone(
            say("Order {order_id} is cancelled.", order_id=order_id), f"/console/orders/{order_id}"
        )

    @context.router.action(
        "/orders/{order_id}/cancel-at-broker", "order.cancel_at_broker", asks=questions.cancel_at_broker
    )
    async def cancel_at_broker(request: Request, order_id: OrderId, body: CancelAtBroker) -> ActionDone:
        """Cancel an order that the broker has."""
        actor = visitor_of(request).actor
        said = await context.fp.run(change_source.cancel(order_id, body.key, actor, body.reason))
        context.live_snapshot.forget()
        told = say("is cancelled") if said == "dead" else say("is to be cancelled at the broker")
        return ActionDone(
            say("Order {order_id} {told}.", order_id=order_id, told=told), f"/console/orders/{order_id}"
        )


def _add_bulk_actions(context: ConsoleContext) -> None:
    async def states(_: Request, ids: Sequence[int]) -> Mapping[int, str]:
        rows = await context.reading.rows(
            "select id, status from fencepost.outbox_orders where id = any (%s)", list(ids)
        )
        return {row["id"]: row["status"] for row in rows}

    async def cancel(order_id: int, request: Request, reason: str) -> None:
        await context.fp.run(operator_calls.cancel(order_id, visitor_of(request).actor, reason))

    cancelling = Choice(
        verb="Cancel",
        done="cancelled",
        consequence="They were not sent, and are not sent any more. Orders behind them can go out.",
        act=cancel,
        fits=("queued", "failed"),
    )
    actions = BulkActions(
        table="orders",
        action="order.settle",
        one="order",
        many="orders",
        back="/console/orders",
        choices={"cancel": cancelling},
        states=states,
        key=Number,
        reason=True,
    )
    add_bulk_actions(context, actions)


def _add(context: ConsoleContext) -> None:
    _add_bulk_actions(context)
    _add_pages(context)
    _add_actions(context)


def _describe_need(need: str, name: str | None) -> tuple[str, str]:
    return f"{need}: {name}", "/console/orders"


def _message_address(channel: str, state: str) -> str | None:
    """The page of the order: it shows more than the page of its message."""
    if not channel.startswith(CHANNEL):
        return None
    return link("/console/orders", status=state, broker=channel.removeprefix(CHANNEL))


PAGES = ConsolePages(
    address="/console/orders",
    title="Orders",
    templates=pathlib.Path(__file__).parent / "console_templates",
    add=_add,
    describe_need=_describe_need,
    message_address=_message_address,
)
