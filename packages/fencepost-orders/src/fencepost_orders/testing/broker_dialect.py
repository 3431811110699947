"""The hostile broker's protocol: paths, fields and statuses. Another broker's dialect is a subclass of this
one."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from fencepost_orders.testing._broker_book import Book, BookOrder

Said = tuple[int, dict[str, Any]]


class Dialect:
    """`POST /orders` with the order's document; `GET /orders/{client id}`; 409 for a known id."""

    def client_id(self, request: dict[str, Any]) -> str:
        return str(request["idempotency_key"])

    def heard(self, headers: dict[str, str], request: dict[str, Any]) -> None:
        """Called with each request for a new order: for tests that look at what is sent."""

    def headers(self) -> dict[str, str]:
        """The headers of each answer."""
        return {}

    def placed(self, order: BookOrder) -> Said:
        return 201, self.shown(order)

    def duplicate(self, order: BookOrder) -> Said:
        return 409, self.shown(order)

    def refused(self, why: str) -> Said:
        return 400, {"error": why}

    def answer(self, path: str, book: Book) -> Said:
        """The answer to a GET."""
        order = book.find(unquote(path.rpartition("/")[2]))
        return (404, {"error": "no such order"}) if order is None else (200, self.shown(order))

    def echo_another(self, said: dict[str, Any]) -> dict[str, Any]:
        return {**said, "idempotency_key": "somebody-elses"}

    def shown(self, order: BookOrder) -> dict[str, Any]:
        filled = order.filled_part if order.is_open else order.request.get("qty")
        return {
            "broker_order_id": order.broker_order_id,
            "idempotency_key": order.client_id,
            "status": status_of(order),
            "fills": [{"qty": filled}] if filled else [],
        }


def status_of(order: BookOrder) -> str:
    if not order.is_open:
        return "filled"
    return "partially_filled" if order.filled_part else "accepted"
