"""Alpaca and OANDA as their documentation describes them, spoken by the hostile broker."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from fencepost_orders.testing._broker_book import Book, BookOrder
from fencepost_orders.testing.broker_dialect import ChangeRequest, Dialect, Said, status_of

# Transactions that filled an order are numbered behind those that made one.
FILLS_FROM = 100_000
CANCELS_FROM = 500_000


class AlpacaDialect(Dialect):
    """POST /v2/orders; GET /v2/orders:by_client_order_id; 422 for a used id."""

    def client_id(self, request: dict[str, Any]) -> str:
        return str(request["client_order_id"])

    def placed(self, order: BookOrder) -> Said:
        return 200, self.shown(order)

    def duplicate(self, order: BookOrder) -> Said:
        return 422, {"code": 40010001, "message": "client_order_id must be unique"}

    def refused(self, why: str) -> Said:
        return 422, {"code": 40010001, "message": why}

    def change_of(self, method: str, path: str) -> ChangeRequest | None:
        if method == "POST":
            return None
        broker_order_id = path.rpartition("/")[2].removeprefix("904837e3-")
        return ChangeRequest("cancel" if method == "DELETE" else "replace", broker_order_id)

    def cancelled(self, order: BookOrder) -> Said:
        return 204, {}

    def not_open(self) -> Said:
        return 422, {"code": 42210000, "message": "order is not open"}

    def answer(self, path: str, book: Book) -> Said:
        asked = urlsplit(path)
        assert asked.path == "/v2/orders:by_client_order_id", path
        order = book.find(parse_qs(asked.query)["client_order_id"][0])
        if order is None:
            return 404, {"code": 40410000, "message": "order not found"}
        return 200, self.shown(order)

    def echo_another(self, said: dict[str, Any]) -> dict[str, Any]:
        return {**said, "client_order_id": "somebody-elses"}

    def shown(self, order: BookOrder) -> dict[str, Any]:
        filled = order.filled_quantity(order.request["qty"]) or "0"
        replaced_by = order.replaced_by and f"904837e3-{order.replaced_by}"
        status = status_of(order)
        return {
            "replaced_by": replaced_by,
            "id": f"904837e3-{order.broker_order_id}",
            "client_order_id": order.client_id,
            "submitted_at": "2030-01-01T12:00:00.123456789Z",
            "symbol": order.request.get("symbol"),
            "qty": order.request["qty"],
            "filled_qty": filled,
            "filled_avg_price": None if filled == "0" else "145.002",
            "type": order.request.get("type"),
            "side": order.request.get("side"),
            "time_in_force": order.request["time_in_force"],
            "status": "canceled" if status == "cancelled" else status,
        }


class OandaDialect(Dialect):
    """POST /v3/accounts/{id}/orders answers transactions; a client id is found while pending, or in the
    list."""

    page = 3

    def client_id(self, request: dict[str, Any]) -> str:
        return str(request["order"]["clientExtensions"]["id"])

    def placed(self, order: BookOrder) -> Said:
        number = order.broker_order_id.removeprefix("brk-")
        wanted = order.request["order"]
        created = {"id": number, "time": _nanoseconds(order), "type": f"{wanted['type']}_ORDER"}
        created |= {"clientExtensions": wanted["clientExtensions"], "units": wanted["units"]}
        return 201, {"orderCreateTransaction": created, "lastTransactionID": number}

    def duplicate(self, order: BookOrder) -> Said:
        return self._rejected("CLIENT_ORDER_ID_ALREADY_EXISTS")

    def refused(self, why: str) -> Said:
        return self._rejected("INSUFFICIENT_MARGIN")

    def change_of(self, method: str, path: str) -> ChangeRequest | None:
        if method == "POST":
            return None
        kept, _, last = path.rpartition("/")
        if last == "cancel":
            return ChangeRequest("cancel", f"brk-{kept.rpartition('/')[2]}")
        return ChangeRequest("replace", f"brk-{last}")

    def cancelled(self, order: BookOrder) -> Said:
        number = order.broker_order_id.removeprefix("brk-")
        return 200, {"orderCancelTransaction": {"orderID": number, "reason": "CLIENT_REQUEST"}}

    def replaced(self, order: BookOrder) -> Said:
        return self.placed(order)

    def not_open(self) -> Said:
        return 404, {"orderCancelRejectTransaction": {"rejectReason": "ORDER_DOESNT_EXIST"}}

    def answer(self, path: str, book: Book) -> Said:
        asked = urlsplit(path)
        last = asked.path.rpartition("/")[2]
        if last == "orders":
            newest_first = [self.shown(order) for order in reversed(book.orders)]
            before = parse_qs(asked.query).get("beforeID", [""])[0]
            # Documented as the greatest id to be listed.
            page = [one for one in newest_first if not before or int(one["id"]) <= int(before)]
            return 200, {"orders": page[: self.page], "lastTransactionID": "9"}
        if "/transactions/" in asked.path:
            if int(last) >= CANCELS_FROM:
                cancel = {"id": last, "type": "ORDER_CANCEL", "reason": "CLIENT_REQUEST"}
                return 200, {"transaction": cancel, "lastTransactionID": "9"}
            return 200, {"transaction": self._fill(book, last), "lastTransactionID": "9"}
        order = self._specified(book, last)
        if order is None:
            return 404, {"errorMessage": "The order specified does not exist"}
        return 200, {"order": self.shown(order), "lastTransactionID": "9"}

    def echo_another(self, said: dict[str, Any]) -> dict[str, Any]:
        created = {**said.get("orderCreateTransaction", {}), "clientExtensions": {"id": "somebody-elses"}}
        return {**said, "orderCreateTransaction": created}

    def shown(self, order: BookOrder) -> dict[str, Any]:
        number = order.broker_order_id.removeprefix("brk-")
        ended: dict[str, Any] = {"state": "PENDING"}
        if order.is_filled:
            ended = {"state": "FILLED", "fillingTransactionID": f"{FILLS_FROM + int(number)}"}
        elif not order.is_open:
            ended = {"state": "CANCELLED", "cancellingTransactionID": f"{CANCELS_FROM + int(number)}"}
            if order.replaced_by:
                ended["replacedByOrderID"] = order.replaced_by.removeprefix("brk-")
        return {
            "id": number,
            **ended,
            "createTime": _nanoseconds(order),
            "clientExtensions": order.request["order"]["clientExtensions"],
        }

    def _specified(self, book: Book, specifier: str) -> BookOrder | None:
        """By `@client id` while it is pending; by its own id in every state."""
        if specifier.startswith("@"):
            order = book.find(unquote(specifier.removeprefix("@")))
            return order if order is not None and order.is_open else None
        numbered = (order for order in book.orders if order.broker_order_id == f"brk-{specifier}")
        return next(numbered, None)

    def _fill(self, book: Book, transaction: str) -> dict[str, Any]:
        order = self._specified(book, str(int(transaction) - FILLS_FROM))
        assert order is not None
        units = order.request["order"]["units"]
        return {"id": transaction, "type": "ORDER_FILL", "units": units, "price": "145.002"}

    def _rejected(self, reason: str) -> Said:
        rejection = {"id": "7", "rejectReason": reason}
        return 400, {"orderRejectTransaction": rejection, "errorCode": reason, "errorMessage": "rejected"}


def _nanoseconds(order: BookOrder) -> str:
    """When it was accepted, as OANDA writes it. The book has it by the event loop's clock."""
    at = datetime.now(UTC) - timedelta(seconds=time.monotonic() - order.accepted_at)
    return f"{at:%Y-%m-%dT%H:%M:%S.%f}000Z"
