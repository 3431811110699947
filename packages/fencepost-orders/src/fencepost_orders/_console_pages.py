"""The pages of orders: live orders and those that wait for a decision, with the evidence, and the
decision."""

from __future__ import annotations

import pathlib
from typing import Annotated, Any, Literal, cast
from uuid import uuid4

from fastapi import Path, Query, Request
from pydantic import BaseModel, Field

from fencepost.errors import NotFound
from fencepost_orders import _change_source as change_source
from fencepost_orders import operator_calls
from fencepost_server.console.context import ConsoleContext, Name, Paged, following, wanted
from fencepost_server.console.page_data import ActionDone, PageData
from fencepost_server.console.plugin_pages import ConsolePages
from fencepost_server.console.router import visitor_of
from fencepost_server.web.formatting import link

OrderId = Annotated[int, Path(ge=1, le=9_223_372_036_854_775_807)]
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


class CancelAtBroker(CancelOrder):
    """The page makes the key: a form that is sent twice asks once."""

    key: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[!-~]+$")]


def _add_pages(context: ConsoleContext) -> None:
    @context.router.page("/orders", "orders.html", "Orders")
    async def orders(request: Request, query: Annotated[OrderQuery, Query()]) -> PageData:
        """Orders, newest first; the number of live orders in each state; and the brokers."""
        found = await context.reading.rows(
            "select o as facts"
            " from fencepost.orders_list(%s::text, %s::text, %s::text, %s::bigint, %s::integer) o",
            wanted(query.status),
            wanted(query.broker),
            wanted(query.account),
            query.before,
            query.limit,
        )
        rows = [cast("dict[str, Any]", one["facts"]) for one in found]
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
                "next_before": following(rows, "id", query.limit),
                "filters": query.filters(),
                "states": STATES,
            },
            "orders",
            ("counts", "brokers", "limits"),
        )

    @context.router.page("/orders/{order_id}", "order.html", "Order")
    async def order(request: Request, order_id: OrderId) -> PageData:
        """One order: the request, every transition, and the broker's answers."""
        row = await context.reading.row(
            "select o as facts from fencepost.orders_get(%s::bigint, null::text) o", order_id
        )
        if row is None:
            raise NotFound(f"There is no order {order_id}: it never existed, or it was pruned.")
        history = await context.reading.rows(
            "select h as facts from fencepost.orders_history(%s::bigint) h", order_id
        )
        return PageData(
            {
                "title": f"Order {order_id}",
                "order": row["facts"],
                "change_key": f"console-{uuid4()}",
                "history": [one["facts"] for one in history],
            },
            rows="history",
        )


def _add_actions(context: ConsoleContext) -> None:
    @context.router.action("/orders/{order_id}/resolve", "order.resolve")
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
        return ActionDone(f"Order {order_id} is {body.outcome}.", f"/console/orders/{order_id}")

    @context.router.action("/orders/{order_id}/cancel", "order.cancel")
    async def cancel(request: Request, order_id: OrderId, body: CancelOrder) -> ActionDone:
        """Cancel an order that has not been sent."""
        await context.fp.run(operator_calls.cancel(order_id, visitor_of(request).actor, body.reason))
        context.live_snapshot.forget()
        return ActionDone(f"Order {order_id} is cancelled.", f"/console/orders/{order_id}")

    @context.router.action("/orders/{order_id}/cancel-at-broker", "order.cancel_at_broker")
    async def cancel_at_broker(request: Request, order_id: OrderId, body: CancelAtBroker) -> ActionDone:
        """Cancel an order that the broker has."""
        actor = visitor_of(request).actor
        said = await context.fp.run(change_source.cancel(order_id, body.key, actor, body.reason))
        context.live_snapshot.forget()
        told = "is cancelled" if said == "dead" else "is to be cancelled at the broker"
        return ActionDone(f"Order {order_id} {told}.", f"/console/orders/{order_id}")


def _add(context: ConsoleContext) -> None:
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
