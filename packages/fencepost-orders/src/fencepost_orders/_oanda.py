"""OANDA's v20 REST API, as documented: orders of an account, found by client id, by list when they are
closed.

A 201 says that an order was created, not that it took effect: FOK, IOC, a halted market or missing margin
cancel it in the same answer. Without a fill such an order is `CANCELLED` and not live; with a part filled it
is `PARTIALLY_FILLED_CANCELLED`.

What its client ids guarantee: CLIENT_ORDER_ID_ALREADY_EXISTS while the order is pending; afterwards the id is
free again. An order that was filled at once is found in the list of all orders, which is walked back to
before the first request. A request has no validity of its own: see `request_valid_seconds` in `_alpaca.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, cast
from urllib.parse import quote

from fencepost.http_client import HttpClient, MaybeSent, NotSent, Reply
from fencepost.kernel.call import Json
from fencepost_orders._json_api import JsonApi, network_failed, own_id
from fencepost_orders.broker import (
    PLAIN_TIMES,
    AnswerVerdict,
    BrokerOrder,
    Code,
    Declaration,
    FoundOrder,
    LookupFinding,
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

PRACTICE_URL = "https://api-fxpractice.oanda.com"
PAGE = 500
PAGES_MAX = 200
# OANDA's clock may be behind ours: look a little further back than the first request.
LOOK_BACK = timedelta(seconds=60)
PENDING, CANCELLED = "PENDING", "CANCELLED"
# An order never leaves these; one in any other state, including those of a later version, is queried again.
_FINAL_STATES = frozenset({"FILLED", "TRIGGERED", "CANCELLED"})
_UNTIL_A_DATE: frozenset[TimeInForce] = frozenset({"GTD"})
_RESTING: frozenset[TimeInForce] = frozenset({"DAY", "GTC", "GTD"})
# No stop-limit orders: the bound of an OANDA stop order cancels it, where a limit order would wait.
OANDA_ORDERS = SupportedOrders(
    {
        OrderType.MARKET: PLAIN_TIMES,
        OrderType.LIMIT: PLAIN_TIMES | _UNTIL_A_DATE,
        OrderType.STOP: _RESTING,
    }
)
DUPLICATE_REASON = "CLIENT_ORDER_ID_ALREADY_EXISTS"
_PAIR = re.compile(r"^[A-Z]{6}$")


class OandaBroker:
    """One login; the order's `account` is OANDA's account id."""

    def __init__(
        self,
        token: str,
        *,
        base_url: str = PRACTICE_URL,
        request_valid_seconds: float | None = None,
        client: HttpClient | None = None,
    ) -> None:
        headers = {"Authorization": f"Bearer {token}", "Accept-Datetime-Format": "RFC3339"}
        self._api = JsonApi(base_url, headers, client)
        self.declaration = Declaration(
            Promise.WHILE_OPEN,
            LookupScope.ALL,
            request_valid_seconds=request_valid_seconds,
            orders=OANDA_ORDERS,
            can_cancel=True,
            can_replace=True,
        )

    @classmethod
    def from_env(
        cls,
        *,
        base_url: str = PRACTICE_URL,
        request_valid_seconds: float | None = None,
        credentials: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> OandaBroker:
        """Read the token from OANDA_API_TOKEN, unless `credentials` names another: `{token: …}`."""
        (token,) = read_credentials("OANDA", {"token": "OANDA_API_TOKEN"}, credentials, environ)
        return cls(token, base_url=base_url, request_valid_seconds=request_valid_seconds)

    async def send_order(self, order: OutgoingOrder) -> Reply:
        return await self._api.post(_path(order, "orders"), {"order": oanda_order(order)})

    def classify(self, order: OutgoingOrder, reply: Reply) -> AnswerVerdict:
        answer = _fields(reply.json())
        if reply.status == 201:
            return by_status(reply, created_order(answer))
        rejection = _fields(answer.get("orderRejectTransaction"))
        if rejection.get("rejectReason") == DUPLICATE_REASON:
            return verdict(Meaning.DUPLICATE, Code.CONFLICT_PROCESSED, reply, None)
        if reply.status == 200:
            # Not a documented answer to a new order: its meaning is unknown.
            return verdict(Meaning.UNKNOWN, Code.UNKNOWN, reply, None)
        if reply.status == 409:
            return verdict(Meaning.UNKNOWN, Code.UNKNOWN, reply, None)
        return by_status(reply, None)

    async def find_order(self, order: OutgoingOrder) -> FoundOrder:
        try:
            if order.broker_order_id is not None:
                return await self._find_by_own_id(order, order.broker_order_id)
            by_id = await self._find_by_client_id(order)
            if by_id.finding is not LookupFinding.ABSENT:
                return by_id
            return await self._find_in_list(order)
        except (NotSent, MaybeSent) as error:
            return network_failed(error)

    async def cancel_order(self, order: OutgoingOrder) -> Reply:
        return await self._api.change("PUT", _path(order, f"orders/{own_id(order)}/cancel"), {})

    async def replace_order(self, order: OutgoingOrder, replacement: OutgoingOrder) -> Reply:
        """OANDA cancels the order and creates another, in one step. 404 when it is not pending any more."""
        wanted: dict[str, Json] = {"order": oanda_order(replacement)}
        return await self._api.change("PUT", _path(order, f"orders/{own_id(order)}"), wanted)

    async def close(self) -> None:
        await self._api.close()

    async def _find_by_own_id(self, order: OutgoingOrder, order_id: str) -> FoundOrder:
        """Find an order in any state by OANDA's own id."""
        reply = await self._get(order, f"orders/{quote(order_id, safe='')}")
        fields = _fields(_fields(reply.json()).get("order"))
        return await self._with_end(order, read_finding(reply, read_order(fields)), fields)

    async def _find_by_client_id(self, order: OutgoingOrder) -> FoundOrder:
        reply = await self._get(order, f"orders/@{quote(order.client_id, safe='')}")
        fields = _fields(_fields(reply.json()).get("order"))
        return await self._with_end(order, read_finding(reply, read_order(fields)), fields)

    async def _with_end(
        self, order: OutgoingOrder, found: FoundOrder, fields: Mapping[str, Any]
    ) -> FoundOrder:
        """The order with its fill and the reason of its cancel, which are transactions of their own."""
        if found.order is None:
            return found
        ended = found.order
        for name in ("fillingTransactionID", "cancellingTransactionID"):
            number = fields.get(name)
            if number is None:
                continue
            if not (str(number).isascii() and str(number).isdigit()):
                detail = "a transaction id that cannot be read"
                return FoundOrder(LookupFinding.NO_ANSWER, code=Code.UNKNOWN, detail=detail)
            reply = await self._get(order, f"transactions/{number}")
            transaction = _fields(_fields(reply.json()).get("transaction"))
            needed = "units" if name == "fillingTransactionID" else "reason"
            if reply.status != 200 or needed not in transaction:
                return read_finding(reply, None)
            if needed == "reason":
                ended = replace(ended, why=f"{ended.status}: {transaction['reason']}")
            else:
                is_cancelled = "cancellingTransactionID" in fields
                status = _status(fields.get("units"), transaction, is_cancelled=is_cancelled)
                ended = replace(ended, status=status, fills=(_fill(transaction),))
        return replace(found, order=ended)

    async def _find_in_list(self, order: OutgoingOrder) -> FoundOrder:
        """Walk back through all orders. Answers absent only when the walk has passed the first request."""
        since = (order.open_since or order.stamped_at) - LOOK_BACK
        last_id: str | None = None
        for _ in range(PAGES_MAX):
            before = "" if last_id is None else f"&beforeID={last_id}"
            reply = await self._get(order, f"orders?state=ALL&count={PAGE}{before}")
            page = _fields(reply.json()).get("orders")
            if reply.status != 200 or not isinstance(page, list):
                return read_finding(reply, None)
            entries = [_fields(entry) for entry in cast("Sequence[Json]", page)]
            orders = [read_order(entry) for entry in entries]
            for one, entry in zip(orders, entries, strict=True):
                if one is not None and one.client_id == order.client_id:
                    return await self._with_end(order, FoundOrder(LookupFinding.FOUND, one), entry)
            if None in orders:
                return FoundOrder(
                    LookupFinding.NO_ANSWER, code=Code.UNKNOWN, detail="an order that cannot be read"
                )
            last = orders[-1] if orders else None
            # `beforeID` is the greatest id to be listed: a page begins with the last order of the previous
            # page, and after the account's first order a page contains only that order.
            if (
                last is None
                or last.broker_order_id == last_id
                or (last.accepted_at is not None and last.accepted_at < since)
            ):
                return FoundOrder(LookupFinding.ABSENT)
            last_id = last.broker_order_id
        return FoundOrder(
            LookupFinding.NO_ANSWER, detail=f"no end of the list after {PAGES_MAX * PAGE} orders"
        )

    async def _get(self, order: OutgoingOrder, path: str) -> Reply:
        return await self._api.get(_path(order, path))


def _path(order: OutgoingOrder, path: str) -> str:
    return f"v3/accounts/{quote(order.account, safe='')}/{path}"


def oanda_order(order: OutgoingOrder) -> dict[str, Json]:
    """The order as OANDA's JSON: a sale has negative units."""
    wanted = order.document
    sign = "-" if wanted["intent"] == "SELL" else ""
    symbol = str(wanted["symbol"])
    fields: dict[str, Json] = {
        "instrument": f"{symbol[:3]}_{symbol[3:]}" if _PAIR.match(symbol) else symbol,
        "units": f"{sign}{wanted['qty']}",
        "positionFill": "DEFAULT",
        "clientExtensions": {"id": order.client_id},
    }
    kind = type_of(wanted)
    if kind is OrderType.MARKET:
        force = "IOC" if wanted["time_in_force"] == "IOC" else "FOK"
        return {"type": "MARKET", "timeInForce": force, **fields}
    price = wanted["limit_price" if kind is OrderType.LIMIT else "stop_price"]
    force = {"DAY": "GFD"}.get(str(wanted["time_in_force"]), str(wanted["time_in_force"]))
    end = {"gtdTime": wanted["good_until"]} if force == "GTD" else {}
    return {"type": kind.value.upper(), "timeInForce": force, **end, "price": price, **fields}


def created_order(answer: Mapping[str, Any]) -> BrokerOrder | None:
    """The order that a 201 describes: created, and perhaps filled or cancelled in the same answer."""
    created = _fields(answer.get("orderCreateTransaction"))
    client_id = key_echoed(_fields(created.get("clientExtensions")).get("id"))
    order_id = name_given(created.get("id"))
    if client_id is None and order_id is None:
        return None
    fill, cancel = _fields(answer.get("orderFillTransaction")), _fields(answer.get("orderCancelTransaction"))
    status = _status(created.get("units"), fill, is_cancelled=bool(cancel))
    return BrokerOrder(
        client_id=client_id,
        broker_order_id=order_id,
        status=status,
        live=status != CANCELLED,
        is_cancelled=bool(cancel),
        is_open=status in {PENDING, "PARTIALLY_FILLED"},
        why=f"{status}: {cancel.get('reason')}" if cancel else None,
        accepted_at=moment(created.get("time")),
        fills=(_fill(fill),) if fill else (),
        body=dict(answer),
    )


def read_order(answer: Json) -> BrokerOrder | None:
    """Parse an order as OANDA lists it; None when the answer is not an order."""
    fields = _fields(answer)
    order_id, state = name_given(fields.get("id")), fields.get("state")
    if order_id is None or not isinstance(state, str):
        return None
    replaced_by = name_given(fields.get("replacedByOrderID"))
    return BrokerOrder(
        client_id=key_echoed(_fields(fields.get("clientExtensions")).get("id")),
        broker_order_id=order_id,
        status=state,
        live=state.upper() != CANCELLED or "fillingTransactionID" in fields or replaced_by is not None,
        is_cancelled="cancellingTransactionID" in fields or state.upper() == CANCELLED,
        replaced_by=replaced_by,
        is_open=state.upper() not in _FINAL_STATES,
        accepted_at=moment(fields.get("createTime")),
        fills=_fills(fields),
        body=fields,
    )


def _status(wanted: object, fill: Mapping[str, Any], *, is_cancelled: bool) -> str:
    """What became of an order's units. A fill whose units cannot be compared is a part."""
    if not fill:
        return CANCELLED if is_cancelled else PENDING
    if not is_cancelled and (wanted is None or _number(wanted) == _number(fill.get("units"))):
        return "FILLED"
    return "PARTIALLY_FILLED_CANCELLED" if is_cancelled else "PARTIALLY_FILLED"


def _number(units: object) -> Decimal | None:
    try:
        return Decimal(str(units))
    except InvalidOperation:
        return None


def _fill(transaction: Mapping[str, Any]) -> Json:
    return {"qty": transaction.get("units"), "price": transaction.get("price"), "at": transaction.get("time")}


def _fills(fields: Mapping[str, Any]) -> Sequence[Json]:
    if fields.get("state") != "FILLED":
        return ()
    return ({"transaction": fields.get("fillingTransactionID"), "at": fields.get("filledTime")},)


def _fields(value: Json) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
