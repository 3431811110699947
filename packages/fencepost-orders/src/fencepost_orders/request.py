"""What an order is: validated, with decimals and never floats, and one canonical form for its digest."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Annotated, Any, Literal, cast

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from fencepost.errors import InvalidInput
from fencepost.kernel.call import Json

KEY_CHARACTERS_MAX = 128
"""The minimum that the brokers' own client ids allow: the key is sent as it is."""
# Unpaired surrogates: JSON can express them, and nothing can store them.
HALVES = re.compile(r"[\ud800-\udfff]")
META_BYTES_MAX = 16_384
OrderKey = Callable[["OrderRequest"], str]
"""The ordering key: orders with the same key reach the broker in the order of their acceptance."""


def _exact(value: object) -> object:
    """A decimal from text, from an integer or from a decimal. A float has already lost precision."""
    if isinstance(value, bool | float):
        # A ValueError, because pydantic reads those.
        raise ValueError("write it as text, such as '145.001': a float is not exact")  # noqa: TRY004
    if isinstance(value, str):
        try:
            return Decimal(value)
        except InvalidOperation:
            raise ValueError("it is not a decimal number") from None
    return value


Amount = Annotated[Decimal, BeforeValidator(_exact), Field(gt=0, max_digits=28, decimal_places=12)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/\-]*$", max_length=64)]


TimeInForce = Literal["DAY", "GTC", "IOC", "FOK", "OPG", "CLS", "GTD"]
"""Until the day ends, until it is cancelled, at once in part, at once as a whole, in the opening auction, in
the closing auction, until `good_until`."""


class OrderType(StrEnum):
    """Which prices an order has says its type: none, a limit, a stop, or both."""

    MARKET = "market"
    LIMIT = "limit"
    STOP = "stop"
    STOP_LIMIT = "stop_limit"


class OrderRequest(BaseModel):
    """One order, as the caller requests it."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    idempotency_key: Annotated[str, Field(min_length=1, max_length=KEY_CHARACTERS_MAX, pattern=r"^[!-~]+$")]
    broker: Name
    account: Name = "default"
    symbol: Name
    intent: Literal["BUY", "SELL"]
    qty: Amount
    limit_price: Amount | None = None
    stop_price: Amount | None = None
    """The price at which the order becomes a market order, or with a limit price a limit order."""
    time_in_force: TimeInForce = "DAY"
    good_until: AwareDatetime | None = None
    """When a GTD order ends at the broker."""
    extended_hours: bool = False
    expires_at: AwareDatetime | None = None
    trace_id: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    meta: Mapping[str, Any] = Field(default_factory=dict[str, Any])

    @model_validator(mode="before")
    @classmethod
    def _end_fits_its_time_in_force(cls, fields: Any) -> Any:
        if isinstance(fields, Mapping):
            given = cast("Mapping[str, Any]", fields)
            is_dated = given.get("time_in_force") == "GTD"
            if is_dated != (given.get("good_until") is not None):
                raise ValueError("good_until: GTD orders have one, and no others")
        return cast("Any", fields)

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> OrderRequest:
        """From plain values; raises InvalidInput that names the first wrong field."""
        try:
            request = cls.model_validate(fields)
        except ValidationError as error:
            raise _first_user_error(error) from None
        _check_meta(request.meta)
        return request

    @classmethod
    def parse(cls, body: bytes | str, *, default_broker: str | None = None) -> OrderRequest:
        """From JSON, with every number read as a decimal. An order that names no broker goes to the default
        one."""
        fields = json_object(body)
        if "broker" not in fields:
            if default_broker is None:
                raise InvalidInput("broker: name one, or set ORDERS_DEFAULT_BROKER.", field="broker")
            fields["broker"] = default_broker
        return cls.of(fields)

    def document(self) -> dict[str, Json]:
        """The normal form: what is stored and sent. Amounts are text without needless digits."""
        fields: dict[str, Json] = {
            "idempotency_key": self.idempotency_key,
            "broker": self.broker,
            "account": self.account,
            "symbol": self.symbol,
            "intent": self.intent,
            "qty": plain(self.qty),
            "limit_price": None if self.limit_price is None else plain(self.limit_price),
            "stop_price": None if self.stop_price is None else plain(self.stop_price),
            "time_in_force": self.time_in_force,
            "good_until": None if self.good_until is None else self.good_until.isoformat(),
            # Left out where it is off: the digests of orders that do not know the field stay what they are.
            "extended_hours": self.extended_hours or None,
            "expires_at": None if self.expires_at is None else self.expires_at.isoformat(),
            "trace_id": self.trace_id,
            "meta": jsonable(self.meta),
        }
        return {name: value for name, value in fields.items() if value is not None}

    def digest(self) -> str:
        """The same for the same order. The trace is left out: a repeat may carry another one."""
        return digest_of({name: value for name, value in self.document().items() if name != "trace_id"})


def json_object(body: bytes | str) -> dict[str, Any]:
    """A JSON object whose numbers are decimals; raises InvalidInput for anything else."""
    try:
        fields: object = json.loads(body, parse_float=Decimal, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise InvalidInput("The body is not JSON.", field="body") from None
    if not isinstance(fields, dict):
        raise InvalidInput("The body must be a JSON object.", field="body")
    return cast("dict[str, Any]", fields)


def type_of(document: Mapping[str, Json]) -> OrderType:
    """The type of an order, from its document."""
    if document.get("stop_price") is None:
        return OrderType.MARKET if document.get("limit_price") is None else OrderType.LIMIT
    return OrderType.STOP if document.get("limit_price") is None else OrderType.STOP_LIMIT


def by_account_and_symbol(request: OrderRequest) -> str:
    """Orders of one account and symbol are sent in order."""
    return f"{request.account}/{request.symbol}"


def by_account(request: OrderRequest) -> str:
    """Orders of one account are sent in order."""
    return request.account


def by_itself(request: OrderRequest) -> str:
    """Every order has its own ordering key: no ordering between orders."""
    return request.idempotency_key


def plain(number: Decimal) -> str:
    """`10000`, not `1E+4`; `1.5`, not `1.500`."""
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def canonical(document: Json) -> str:
    """One text for one document: keys sorted, no spaces, no escapes that are not needed."""
    return canonical_of_plain(jsonable(document))


def canonical_of_plain(document: Json) -> str:
    """The same for a document without decimals and times."""
    return _encode(document)


def digest_of(document: Json) -> str:
    """The digest of a document, equal for equal contents."""
    return digest_of_canonical(canonical(document))


def digest_of_canonical(text: str) -> str:
    """The digest of a document that is already in canonical form."""
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def jsonable(value: Any) -> Json:
    """The document with its decimals as text."""
    if isinstance(value, Decimal):
        return plain(value)
    if isinstance(value, Mapping):
        return {str(name): jsonable(item) for name, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in cast("Sequence[Any]", value)]
    return value.isoformat() if isinstance(value, datetime) else value


# Made once: every answer is encoded with it.
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _check_meta(meta: Mapping[str, Any]) -> None:
    try:
        text = canonical(meta)
    except (TypeError, ValueError, RecursionError):
        raise InvalidInput("meta holds what JSON cannot say.", field="meta") from None
    if HALVES.search(text):
        raise InvalidInput("meta contains an unpaired surrogate.", field="meta")
    if len(text.encode()) > META_BYTES_MAX:
        raise InvalidInput(f"meta has more than {META_BYTES_MAX} bytes.", field="meta")


def _first_user_error(error: ValidationError) -> InvalidInput:
    """The first wrong field, and what is allowed. Never its value: it may be a megabyte."""
    detail = error.errors(include_input=False, include_url=False)[0]
    field = ".".join(str(part) for part in detail["loc"]) or "body"
    message = detail["msg"].removeprefix("Value error, ").removesuffix(".")
    if field == "body" and message.startswith("good_until: "):
        field, message = "good_until", message.removeprefix("good_until: ")
    return InvalidInput(f"{field}: {message}.", field=field)
