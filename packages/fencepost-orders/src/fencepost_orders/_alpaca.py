"""Alpaca's Trading API, as documented: POST and GET /v2/orders.

What its client ids guarantee: the documentation calls `client_order_id` unique and does not say for how long,
so this adapter relies only on a second order being refused (422) while the first is open. Orders in every
state are found by client id. A request has no validity of its own: one that was not found may still arrive,
and
an operator decides, unless `request_valid_seconds` says how long the operator is ready to wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

from fencepost.http_client import HttpClient, MaybeSent, NotSent, Reply
from fencepost.kernel.call import Json
from fencepost_orders._json_api import JsonApi, network_failed, own_id
from fencepost_orders.broker import (
    AnswerVerdict,
    BrokerOrder,
    Code,
    Declaration,
    FoundOrder,
    LookupScope,
    Meaning,
    OutgoingOrder,
    Promise,
    SupportedOrders,
    key_echoed,
    name_given,
)
from fencepost_orders.http_rules import by_status, moment, read_credentials, read_finding, verdict
from fencepost_orders.request import OrderType, TimeInForce, type_of

PAPER_URL = "https://paper-api.alpaca.markets"
# An order never leaves these; in every other status, including those of a later version, more fills may come.
_FINAL_STATUSES = frozenset({"filled", "canceled", "expired", "replaced", "rejected"})
_AUCTIONS_TOO: frozenset[TimeInForce] = frozenset({"DAY", "GTC", "IOC", "FOK", "OPG", "CLS"})
_RESTING: frozenset[TimeInForce] = frozenset({"DAY", "GTC"})
ALPACA_ORDERS = SupportedOrders(
    {
        OrderType.MARKET: _AUCTIONS_TOO,
        OrderType.LIMIT: _AUCTIONS_TOO,
        OrderType.STOP: _RESTING,
        OrderType.STOP_LIMIT: _RESTING,
    },
    extended_hours=frozenset({(OrderType.LIMIT, "DAY"), (OrderType.LIMIT, "GTC")}),
)


class AlpacaBroker:
    """One Alpaca account. The order's `account` is not sent: the keys identify the account."""

    def __init__(
        self,
        key_id: str,
        secret_key: str,
        *,
        base_url: str = PAPER_URL,
        request_valid_seconds: float | None = None,
        client: HttpClient | None = None,
    ) -> None:
        headers = {"APCA-API-KEY-ID": key_id, "APCA-API-SECRET-KEY": secret_key}
        self._api = JsonApi(base_url, headers, client)
        self.declaration = Declaration(
            Promise.WHILE_OPEN,
            LookupScope.ALL,
            request_valid_seconds=request_valid_seconds,
            orders=ALPACA_ORDERS,
            can_cancel=True,
            can_replace=True,
        )

    @classmethod
    def from_env(
        cls,
        *,
        base_url: str = PAPER_URL,
        request_valid_seconds: float | None = None,
        credentials: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> AlpacaBroker:
        """Read the credentials from APCA_API_KEY_ID and APCA_API_SECRET_KEY, the names that Alpaca's own
        clients use, unless `credentials` names others: `{key_id: …, secret_key: …}`."""
        usual = {"key_id": "APCA_API_KEY_ID", "secret_key": "APCA_API_SECRET_KEY"}
        key_id, secret_key = read_credentials("Alpaca", usual, credentials, environ)
        return cls(key_id, secret_key, base_url=base_url, request_valid_seconds=request_valid_seconds)

    async def send_order(self, order: OutgoingOrder) -> Reply:
        return await self._api.post("v2/orders", alpaca_order(order))

    def classify(self, order: OutgoingOrder, reply: Reply) -> AnswerVerdict:
        """Classify the answer. 422 is a refused order or a used id; 403 is either the keys or the buying
        power, and the body says which."""
        answer = read_order(reply.json())
        if reply.status == 422 and b"client_order_id must be unique" in reply.body:
            return verdict(Meaning.DUPLICATE, Code.CONFLICT_PROCESSED, reply, None)
        if reply.status == 403 and _says_code(reply):
            return verdict(Meaning.REFUSED, Code.BAD_REQUEST, reply, None)
        return by_status(reply, answer)

    async def find_order(self, order: OutgoingOrder) -> FoundOrder:
        path = f"v2/orders:by_client_order_id?client_order_id={quote(order.client_id, safe='')}"
        try:
            reply = await self._api.get(path)
        except (NotSent, MaybeSent) as error:
            return network_failed(error)
        return read_finding(reply, read_order(reply.json()))

    async def cancel_order(self, order: OutgoingOrder) -> Reply:
        """204 means that it will be tried; 422 that the order is over."""
        return await self._api.change("DELETE", f"v2/orders/{own_id(order)}")

    async def replace_order(self, order: OutgoingOrder, replacement: OutgoingOrder) -> Reply:
        """A replaced order gets a new id, and our client id for it. 200 means that it will be tried."""
        wanted = alpaca_order(replacement)
        names = ("qty", "time_in_force", "limit_price", "stop_price", "client_order_id")
        changes = {name: wanted[name] for name in names if name in wanted}
        return await self._api.change("PATCH", f"v2/orders/{own_id(order)}", changes)

    async def close(self) -> None:
        await self._api.close()


def alpaca_order(order: OutgoingOrder) -> dict[str, Json]:
    """The order as Alpaca's JSON. Amounts stay text, as in its examples."""
    wanted = order.document
    fields: dict[str, Json] = {
        "symbol": wanted["symbol"],
        "qty": wanted["qty"],
        "side": str(wanted["intent"]).lower(),
        "type": type_of(wanted).value,
        "time_in_force": str(wanted["time_in_force"]).lower(),
        "limit_price": wanted.get("limit_price"),
        "stop_price": wanted.get("stop_price"),
        "extended_hours": wanted.get("extended_hours"),
        "client_order_id": order.client_id,
    }
    return {name: value for name, value in fields.items() if value is not None}


def read_order(answer: Json) -> BrokerOrder | None:
    """Parse Alpaca's order object; None when the answer is not an order."""
    if not isinstance(answer, dict):
        return None
    fields = cast("dict[str, Any]", answer)
    client_id, order_id = key_echoed(fields.get("client_order_id")), name_given(fields.get("id"))
    status = fields.get("status")
    if not isinstance(status, str) or (client_id is None and order_id is None):
        return None
    word = status.casefold()
    # Alpaca's own errors have a code and a message; a gateway's error has this status.
    if word == "error":
        return None
    return BrokerOrder(
        client_id=client_id,
        broker_order_id=order_id,
        status=status,
        live=word != "rejected",
        is_open=word not in _FINAL_STATUSES,
        is_cancelled=word == "canceled",
        replaced_by=_replaced_by(fields) if word == "replaced" else None,
        accepted_at=moment(fields.get("submitted_at")),
        fills=_fills(fields),
        body=fields,
    )


def _replaced_by(fields: Mapping[str, Any]) -> str:
    return name_given(fields.get("replaced_by")) or "another order"


def _fills(fields: Mapping[str, Any]) -> Sequence[Json]:
    quantity = fields.get("filled_qty")
    # Not a set: the value may be of any JSON type, and not every one is hashable.
    if quantity in (None, "0", ""):
        return ()
    return ({"qty": quantity, "price": fields.get("filled_avg_price"), "at": fields.get("filled_at")},)


def _says_code(reply: Reply) -> bool:
    """Alpaca's own refusals carry a number; a gateway's 403 does not."""
    answer = reply.json()
    return isinstance(answer, dict) and "code" in cast("dict[str, Any]", answer)
