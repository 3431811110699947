"""The hostile broker's protocol: paths, fields and statuses. Another broker's dialect is a subclass of this
one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote

from fencepost_orders.testing._broker_book import Book, BookOrder

Said = tuple[int, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """A request to cancel or to replace an order, by the broker's own id of it."""

    kind: Literal["cancel", "replace"]
    broker_order_id: str


class Dialect:
    """`POST /orders` with the order's document; `GET /orders/{client id}`; 409 for a known id."""

    def client_id(self, request: dict[str, Any]) -> str:
        """The client id of a request."""
        return str(request["idempotency_key"])

    def heard(self, headers: dict[str, str], request: dict[str, Any]) -> None:
        """Called with each request for a new order: for tests that look at what is sent."""

    def headers(self) -> dict[str, str]:
        """The headers of each answer."""
        return {}

    def placed(self, order: BookOrder) -> Said:
        """The answer to an order that was placed."""
        return 201, self.shown(order)

    def duplicate(self, order: BookOrder) -> Said:
        """The answer to an order whose client id is known."""
        return 409, self.shown(order)

    def refused(self, why: str) -> Said:
        """The answer to a refused request."""
        return 400, {"error": why}

    def change_of(self, method: str, path: str) -> ChangeRequest | None:
        """The change that a request asks for; None when it places an order."""
        kinds: dict[str, Literal["cancel", "replace"]] = {"DELETE": "cancel", "PUT": "replace"}
        kind = kinds.get(method)
        return None if kind is None else ChangeRequest(kind, unquote(path.rpartition("/")[2]))

    def cancelled(self, order: BookOrder) -> Said:
        """The answer to a cancellation."""
        return 200, self.shown(order)

    def replaced(self, order: BookOrder) -> Said:
        """The answer to a replacement."""
        return 200, self.shown(order)

    def not_open(self) -> Said:
        """The answer to a change of an order that is over, or that the broker never had."""
        return 409, {"error": "the order is not open"}

    def answer(self, path: str, book: Book) -> Said:
        """The answer to a GET."""
        order = book.find(unquote(path.rpartition("/")[2]))
        return (404, {"error": "no such order"}) if order is None else (200, self.shown(order))

    def echo_another(self, said: dict[str, Any]) -> dict[str, Any]:
        """The same answer with the client id of another order."""
        return {**said, "idempotency_key": "somebody-elses"}

    def shown(self, order: BookOrder) -> dict[str, Any]:
        """An order as this broker shows it."""
        filled = order.filled_quantity(order.request.get("qty"))
        return {
            "replaced_by": order.replaced_by,
            "broker_order_id": order.broker_order_id,
            "idempotency_key": order.client_id,
            "status": status_of(order),
            "fills": [{"qty": filled}] if filled else [],
        }


def status_of(order: BookOrder) -> str:
    """The order's status in the broker's words."""
    if not order.is_open:
        return "cancelled" if order.is_cancelled else "replaced" if order.replaced_by else "filled"
    return "partially_filled" if order.filled_part else "accepted"
