"""What a broker adapter does, and what it declares.

An adapter turns an order into a request, and the broker's answers into values that mean the same for every
broker. It does not retry, does not decide about resends and keeps no state: `_resend.py` and the database do
that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Protocol

from fencepost.errors import InvalidInput
from fencepost.http_client import Reply
from fencepost.kernel.call import Json
from fencepost_orders.request import OrderRequest, OrderType, TimeInForce, type_of

ANSWER_CHARACTERS_MAX = 900
"""How many characters of an answer's body are kept."""


class Code(StrEnum):
    """Why a request did not succeed. Stored as `last_error`."""

    NETWORK_TIMEOUT = "NETWORK_TIMEOUT"
    BROKER_5XX = "BROKER_5XX"
    RATE_LIMITED = "RATE_LIMITED"
    BAD_REQUEST = "BAD_REQUEST"
    UNAUTHORIZED = "UNAUTHORIZED"
    CONFLICT_PROCESSED = "CONFLICT_PROCESSED"
    UNKNOWN = "UNKNOWN"


class Promise(StrEnum):
    """What a broker guarantees about a client id that it has seen."""

    FOREVER = "forever"
    """A second order with the id is always refused."""
    WINDOW = "window"
    """A second order is refused for `window_seconds` after the first."""
    WHILE_OPEN = "while_open"
    """A second order is refused while the first is open; after a fill the id is free again."""
    NOTHING = "nothing"
    """A second request with the id is a second order."""


class LookupScope(StrEnum):
    """Which orders a search by client id can find."""

    ALL = "all"
    OPEN = "open"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class SupportedOrders:
    """Which orders an adapter can place: the times in force of each type, and where extended hours are
    possible. What is not here is refused when it is to be accepted: a field that the broker is not told makes
    another order of it."""

    times_in_force: Mapping[OrderType, frozenset[TimeInForce]]
    extended_hours: frozenset[tuple[OrderType, TimeInForce]] = frozenset()

    def check(self, request: OrderRequest) -> None:
        """Raises InvalidInput that names the field and what is allowed."""
        kind = type_of(request.document())
        if kind not in self.times_in_force:
            field = "limit_price" if kind is OrderType.LIMIT else "stop_price"
            allowed = ", ".join(sorted(self.times_in_force))
            raise InvalidInput(
                f"{field}: this broker takes no {kind.replace('_', '-')} orders. Allowed here: {allowed}.",
                field=field,
            )
        times = self.times_in_force[kind]
        if request.time_in_force not in times:
            raise InvalidInput(
                f"time_in_force: this broker takes no {request.time_in_force} for {kind} orders."
                f" Allowed here: {', '.join(sorted(times))}.",
                field="time_in_force",
            )
        if request.extended_hours and (kind, request.time_in_force) not in self.extended_hours:
            allowed = ", ".join(sorted(f"{one} {time}" for one, time in self.extended_hours)) or "none"
            raise InvalidInput(
                "extended_hours: this broker does not take this order in extended hours."
                f" Allowed here: {allowed}.",
                field="extended_hours",
            )


PLAIN_TIMES: frozenset[TimeInForce] = frozenset({"DAY", "GTC", "IOC", "FOK"})
PLAIN_ORDERS = SupportedOrders({OrderType.MARKET: PLAIN_TIMES, OrderType.LIMIT: PLAIN_TIMES})


@dataclass(frozen=True, slots=True)
class Declaration:
    """What the broker guarantees; the resend policy follows from it.

    `request_valid_seconds`: the broker accepts no request later than this after its stamp, however late it
    arrives, because the request carries the stamp. None when there is no such rule: then a request that is
    still in transit, or in a stalled worker, may arrive at any time.
    """

    promise: Promise
    lookup: LookupScope = LookupScope.ALL
    window_seconds: float = 0.0
    request_valid_seconds: float | None = None
    orders: SupportedOrders = PLAIN_ORDERS
    can_cancel: bool = False
    """The adapter is an OrderChanger, and the broker cancels by its own id of an order, at most once."""
    can_replace: bool = False
    """The same for replacements: the broker refuses to replace an order that is not open."""

    def __post_init__(self) -> None:
        if self.promise is Promise.WINDOW and self.window_seconds <= 0:
            raise ValueError("a promise for a window needs its length: window_seconds must be more than 0")
        if self.request_valid_seconds is not None and self.request_valid_seconds <= 0:
            raise ValueError("request_valid_seconds must be more than 0, or None")
        if (self.can_cancel or self.can_replace) and self.lookup is LookupScope.NONE:
            raise ValueError("a broker that cannot be searched cannot prove a cancel or a replacement")


class Meaning(StrEnum):
    """What an answer to a new order means."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    """The broker already has an order with this client id."""
    REFUSED = "refused"
    """This request placed nothing, and never will."""
    STALE = "stale"
    """This request arrived after its own validity and placed nothing; the order itself is valid."""
    LIMITED = "limited"
    """Refused for now; nothing was placed."""
    UNKNOWN = "unknown"
    """It may have been placed."""


@dataclass(frozen=True, slots=True)
class BrokerOrder:
    """An order as the broker reports it. `live` is false when the broker rejected it, or cancelled it before
    anything was filled: it took no effect."""

    client_id: str | None
    broker_order_id: str | None
    status: str
    live: bool = True
    accepted_at: datetime | None = None
    fills: Sequence[Json] = ()
    body: Json = None
    is_open: bool = False
    """The broker has not finished the order: there may be more fills, so it is queried again."""
    why: str | None = None
    """Why it ended, in the broker's words."""
    is_cancelled: bool = False
    """It is over because it was cancelled, perhaps after a part was filled."""
    replaced_by: str | None = None
    """It is over because another order took its place: the broker's id of that order."""


@dataclass(frozen=True, slots=True)
class AnswerVerdict:
    """A classified answer."""

    meaning: Meaning
    code: Code | None = None
    detail: str | None = None
    order: BrokerOrder | None = None
    retry_after_seconds: float | None = None


class LookupFinding(StrEnum):
    """What a search by client id found."""

    FOUND = "found"
    ABSENT = "absent"
    NO_ANSWER = "no_answer"
    LIMITED = "limited"


@dataclass(frozen=True, slots=True)
class FoundOrder:
    """The answer to a query about an order."""

    finding: LookupFinding
    order: BrokerOrder | None = None
    code: Code | None = None
    detail: str | None = None
    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class OutgoingOrder:
    """An order to send or to look up: its document, its client id, and the stamp that bounds its request's
    validity."""

    client_id: str
    document: Mapping[str, Json]
    stamped_at: datetime
    account: str = "default"
    open_since: datetime | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    broker_order_id: str | None = None
    """The broker's own id of the order, once it is known."""


def kept_answer(reply: Reply) -> str:
    """An answer as it is stored for operators: its status and its body, redacted and bounded."""
    body = reply.excerpt(ANSWER_CHARACTERS_MAX)
    cut = f" … ({len(reply.body)} bytes in all)" if len(body) == ANSWER_CHARACTERS_MAX else ""
    return f"{reply.status}: {body}{cut}"


def key_echoed(value: object) -> str | None:
    """The client id that an answer contains. A value that is not text belongs to another order."""
    return None if value is None or value == "" else str(value)


def name_given(value: object) -> str | None:
    """An id that a broker assigned: a text, or a number above 0. An error's `null`, `""` and `0` are not
    ids."""
    if isinstance(value, str):
        return value or None
    if isinstance(value, int | Decimal) and not isinstance(value, bool) and value > 0:
        return str(value)
    return None


class BrokerAdapter(Protocol):
    """One broker. `send_order` raises NotSent when the request certainly did not leave, and MaybeSent when it
    left, or may have, and no answer came."""

    @property
    def declaration(self) -> Declaration:
        """What this broker can do, and how it recognises a repeated order."""
        ...

    async def send_order(self, order: OutgoingOrder) -> Reply:
        """Send the order once; no retry of its own. Returns what came back, whatever it says."""
        ...

    def classify(self, order: OutgoingOrder, reply: Reply) -> AnswerVerdict:
        """What the reply means: accepted, rejected, try again, or unknown. Does no I/O."""
        ...

    async def find_order(self, order: OutgoingOrder) -> FoundOrder:
        """Ask the broker whether it has the order, for one whose outcome is unknown."""
        ...

    async def close(self) -> None:
        """Close its connections."""


class OrderChanger(Protocol):
    """What an adapter can do besides, if its declaration says so. Both name the broker's own id of the order,
    raise as `send_order` does, and may be repeated: what became of the order is asked about afterwards."""

    async def cancel_order(self, order: OutgoingOrder) -> Reply:
        """Ask the broker to cancel an order that it has."""
        ...

    async def replace_order(self, order: OutgoingOrder, replacement: OutgoingOrder) -> Reply:
        """Ask the broker to replace an order that it has."""
        ...
