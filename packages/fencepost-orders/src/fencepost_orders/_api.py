"""Orders over HTTP."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal
from uuid import uuid4

from fastapi import APIRouter, Header, Path, Query, Request, Response
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from fencepost.errors import InvalidInput
from fencepost_orders.limits import AccountLimits
from fencepost_orders.operator_calls import Resolution
from fencepost_orders.request import Amount, Name, OrderRequest, TimeInForce
from fencepost_orders.service import Orders
from fencepost_server.web.authorization import Right, actor_of

OrderId = Annotated[int, Path(ge=1, le=2**63 - 1)]
Reason = Annotated[str, Field(min_length=1, max_length=1024)]

ACCESS = {
    ("POST", "/orders"): Right.SUBMIT,
    ("GET", "/orders"): Right.READ,
    ("GET", "/orders/by-key"): Right.READ,
    ("GET", "/orders/by-key/{key:path}"): Right.READ,
    ("GET", "/orders/{order_id}"): Right.READ,
    ("GET", "/orders/{order_id}/history"): Right.READ,
    # A program may withdraw what it has placed, as long as it is not sent.
    ("POST", "/orders/{order_id}/cancel"): Right.SUBMIT | Right.DECIDE,
    ("POST", "/orders/{order_id}/changes"): Right.DECIDE,
    ("POST", "/orders/{order_id}/resolve"): Right.DECIDE,
    ("POST", "/orders/{order_id}/resend"): Right.DECIDE,
    ("GET", "/orders/brokers"): Right.READ,
    ("POST", "/orders/brokers/{broker}/halt"): Right.DECIDE,
    ("POST", "/orders/brokers/{broker}/resume"): Right.DECIDE,
    ("GET", "/orders/brokers/{broker}/limits"): Right.READ,
    ("PUT", "/orders/brokers/{broker}/limits"): Right.DECIDE,
    # A program that places orders must not set the prices that its orders are held to.
    ("PUT", "/orders/brokers/{broker}/prices"): Right.DECIDE,
}
"""The right that each route needs."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class Why(_Body):
    reason: Reason


class Halt(_Body):
    reason: Reason
    account: Annotated[str, Field(min_length=1, max_length=128)] | None = None


class HaltAndCancel(Halt):
    cancel_open: bool = False
    """Also cancel everything that has not ended, at the broker where it was sent."""


class Change(_Body):
    """A cancel at the broker, or a replacement with other terms."""

    kind: Literal["cancel", "replace"]
    reason: Reason
    qty: Amount | None = None
    limit_price: Amount | None = None
    stop_price: Amount | None = None
    time_in_force: TimeInForce | None = None
    good_until: AwareDatetime | None = None

    def changes(self) -> dict[str, Any]:
        given = self.model_dump(exclude={"kind", "reason"}, exclude_none=True)
        if self.kind == "cancel" and given:
            raise InvalidInput("A cancel changes no terms.", field=next(iter(given)))
        return given


class Limits(_Body):
    """The limits of an account; those that are left out do not apply."""

    account: Annotated[str, Field(min_length=1, max_length=128)]
    reason: Reason
    qty_max: Amount | None = None
    notional_max: Amount | None = None
    collar: Amount | None = None
    day_orders_max: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    day_notional_max: Amount | None = None
    day_zone: Annotated[str, Field(min_length=1, max_length=64)] = "UTC"
    price_age_max_seconds: Annotated[float, Field(gt=0, le=30 * 86_400)] = 60.0

    def limits(self) -> AccountLimits:
        return AccountLimits(**self.model_dump(exclude={"account", "reason"}))


class Prices(_Body):
    prices: Annotated[dict[Name, Amount], Field(min_length=1, max_length=1000)]


class Resolve(_Body):
    expected: Literal["queued", "failed", "unknown", "parked"]
    outcome: Resolution
    reason: Reason
    broker_order_id: Annotated[str, Field(max_length=256)] | None = None


class Resend(_Body):
    expected: Literal["dead", "parked"]
    reason: Reason


def make_router(orders: Orders) -> APIRouter:
    """The routes. Errors have the server's common shape; a refusal's code is its reason."""
    router = APIRouter(prefix="/orders", tags=["orders"])
    _add_placing(router, orders)
    _add_brokers(router, orders)
    _add_reading(router, orders)
    _add_operator_routes(router, orders)
    return router


def _add_placing(router: APIRouter, orders: Orders) -> None:
    schema = OrderRequest.model_json_schema()
    if orders.default_broker is not None:
        schema["required"] = [name for name in schema["required"] if name != "broker"]
    body = {"required": True, "content": {"application/json": {"schema": schema}}}

    @router.post("", status_code=202, openapi_extra={"requestBody": body})
    async def place(
        request: Request,
        response: Response,
        key: Annotated[str | None, Header(alias="Idempotency-Key")] = None,
    ) -> dict[str, Any]:
        """Accept an order. 202 when it is new, 200 when the same order was accepted before."""
        # Parsed here and not by FastAPI: a number must become a decimal and never a float.
        order = OrderRequest.parse(await request.body(), default_broker=orders.default_broker)
        if key != order.idempotency_key:
            raise InvalidInput(
                "The header Idempotency-Key and the body's idempotency_key must both be present and equal.",
                field="idempotency_key",
            )
        answer = await orders.place(order)
        if not answer.is_new:
            response.status_code = 200
            response.headers["Idempotency-Replayed"] = "true"
        response.headers["Location"] = f"/orders/{answer.order_id}"
        return await orders.get(order_id=answer.order_id)


def _add_reading(router: APIRouter, orders: Orders) -> None:
    @router.get("")
    async def list_orders(
        status: str | None = None,
        broker: str | None = None,
        account: str | None = None,
        before: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> dict[str, Any]:
        """Orders, newest first; `before` is the last id of the previous page."""
        found = await orders.listed(status=status, broker=broker, account=account, before=before, limit=limit)
        return {"orders": found, "next": found[-1]["id"] if len(found) == limit else None}

    @router.get("/by-key")
    async def get_by_key(key: Annotated[str, Query(min_length=1, max_length=128)]) -> dict[str, Any]:
        """One order by its key, which may contain any character."""
        return await orders.get(key=key)

    @router.get("/by-key/{key:path}")
    async def get_by_key_in_path(key: str) -> dict[str, Any]:
        """One order by its key, which may contain slashes."""
        return await orders.get(key=key)

    @router.get("/{order_id}")
    async def get_order(order_id: OrderId) -> dict[str, Any]:
        return await orders.get(order_id=order_id)

    @router.get("/{order_id}/history")
    async def get_history(order_id: OrderId) -> dict[str, Any]:
        """Every transition, oldest first."""
        await orders.get(order_id=order_id)
        return {"history": await orders.history(order_id)}


def _add_operator_routes(router: APIRouter, orders: Orders) -> None:
    @router.post("/{order_id}/cancel")
    async def cancel(order_id: OrderId, why: Why, request: Request) -> dict[str, Any]:
        """Cancel an order that has not been sent."""
        await orders.cancel(order_id, actor_of(request), why.reason)
        return await orders.get(order_id=order_id)

    @router.post("/{order_id}/changes", status_code=202)
    async def change(
        order_id: OrderId,
        how: Change,
        request: Request,
        key: Annotated[str, Header(alias="Idempotency-Key", min_length=1, max_length=128)],
    ) -> dict[str, Any]:
        """Cancel an order at the broker, or replace it by one with other terms; the key makes it once."""
        changes = how.changes()
        if how.kind == "cancel":
            await orders.cancel_at_broker(order_id, key, actor_of(request), how.reason)
        else:
            await orders.replace(order_id, key, changes, actor_of(request), how.reason)
        return await orders.get(order_id=order_id)

    @router.post("/{order_id}/resolve")
    async def resolve(order_id: OrderId, how: Resolve, request: Request) -> dict[str, Any]:
        """Decide about an order that waits for an operator's decision."""
        await orders.resolve(
            order_id,
            how.expected,
            how.outcome,
            actor_of(request),
            how.reason,
            broker_order_id=how.broker_order_id,
        )
        return await orders.get(order_id=order_id)

    @router.post("/{order_id}/resend", status_code=202)
    async def resend(order_id: OrderId, how: Resend, request: Request) -> dict[str, Any]:
        """Send a dead or parked order again, as a new order."""
        new_id = await orders.resend(order_id, how.expected, actor_of(request), how.reason)
        return await orders.get(order_id=new_id)


def _add_brokers(router: APIRouter, orders: Orders) -> None:
    @router.get("/brokers")
    async def list_brokers() -> dict[str, Any]:
        """Throttle, breaker and kill switches of every broker."""
        return {"brokers": await orders.brokers()}

    @router.post("/brokers/{broker}/halt")
    async def halt(broker: str, how: HaltAndCancel, request: Request) -> dict[str, Any]:
        """Turn on the kill switch of a broker or of one of its accounts."""
        actor = actor_of(request)
        await orders.halt(broker, how.account, actor, how.reason)
        if not how.cancel_open:
            return {"brokers": await orders.brokers()}
        # A repeat asks for nothing that is under way, so each may have a key of its own.
        key = f"halt-{uuid4()}"
        done = await orders.cancel_open(broker, how.account, key, actor, how.reason)
        return {"brokers": await orders.brokers(), "cancelled": asdict(done)}

    @router.post("/brokers/{broker}/resume")
    async def resume(broker: str, how: Halt, request: Request) -> dict[str, Any]:
        await orders.resume(broker, how.account, actor_of(request), how.reason)
        return {"brokers": await orders.brokers()}

    @router.get("/brokers/{broker}/limits")
    async def list_limits(broker: str) -> dict[str, Any]:
        """The limits of each account, with what it has placed today."""
        return {"limits": await orders.limits(broker)}

    @router.put("/brokers/{broker}/limits")
    async def set_limits(broker: str, how: Limits, request: Request) -> dict[str, Any]:
        """Set the limits of an account, or of every account without its own (`*`)."""
        await orders.set_limits(broker, how.account, how.limits(), actor_of(request), how.reason)
        return {"limits": await orders.limits(broker)}

    @router.put("/brokers/{broker}/prices", status_code=204)
    async def set_prices(broker: str, how: Prices, request: Request) -> None:
        """Store reference prices, as they are now."""
        await orders.set_prices(broker, how.prices, actor_of(request))
