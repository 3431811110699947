"""A broker described by data: where its orders are, what its fields are called, what its answers mean."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from fencepost.backoff import RETRY_AFTER_SECONDS_MAX, retry_after_seconds
from fencepost.errors import SettingsError
from fencepost.http_client import Reply
from fencepost.kernel.call import Json
from fencepost_orders.broker import (
    PLAIN_ORDERS,
    PLAIN_TIMES,
    AnswerVerdict,
    BrokerOrder,
    Code,
    Declaration,
    FoundOrder,
    LookupFinding,
    LookupScope,
    Meaning,
    Promise,
    SupportedOrders,
    kept_answer,
    key_echoed,
    name_given,
)
from fencepost_orders.request import OrderType, TimeInForce, type_of

_VARIABLE = re.compile(r"\$\{(?P<name>[A-Z][A-Z0-9_]*)\}")


class Rule(BaseModel):
    """The first rule that matches an answer says what it means. `contains` is searched for in the body."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: Annotated[int, Field(ge=100, le=599)]
    contains: str | None = None
    meaning: Meaning
    code: Code | None = None

    def fits(self, reply: Reply) -> bool:
        """Whether the answer has this status and contains this text."""
        return reply.status == self.status and (self.contains is None or self.contains.encode() in reply.body)


class Fields(BaseModel):
    """The broker's names of its fields; a dot descends one level."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    client_id: str = "idempotency_key"
    broker_order_id: str = "broker_order_id"
    status: str = "status"
    accepted_at: str = "accepted_at"
    fills: str = "fills"
    replaced_by: str = "replaced_by"


class HttpBrokerConfig(BaseModel):
    """A broker with a plain JSON API. `${NAME}` in a header is read from the environment, and only there."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    base_url: Annotated[str, Field(pattern=r"^https?://")]
    send_path: str = "/orders"
    find_path: str | None = "/orders/{client_id}"
    cancel_path: str | None = None
    """Where an order is cancelled, such as `/orders/{broker_order_id}`; without it, it cannot be."""
    cancel_method: Literal["DELETE", "POST", "PUT", "PATCH"] = "DELETE"
    replace_path: str | None = None
    replace_method: Literal["PUT", "PATCH", "POST"] = "PUT"
    headers: Mapping[str, str] = Field(default_factory=dict[str, str])
    key_header: str | None = "Idempotency-Key"
    deadline_header: str | None = None
    body: Mapping[str, str] | None = None
    """The broker's name to ours; without it the order's document is sent as it is. A dot in the broker's name
    descends one level, and a number there is an index into a list."""
    numbers: frozenset[Literal["qty", "limit_price", "stop_price"]] = frozenset()
    """Our amounts that are sent as numbers. They stay exact; without this they are text."""
    constants: Mapping[str, Any] = Field(default_factory=dict[str, Any])
    """The broker's name to a value that every order has."""
    credentials: Mapping[str, Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]] = Field(
        default_factory=dict[str, str]
    )
    """A name in this broker's `${…}` to the environment variable that holds its value."""
    values: Mapping[str, Mapping[str, str]] = Field(default_factory=dict[str, Mapping[str, str]])
    """For one of our fields, the broker's values for ours."""
    order_types: frozenset[OrderType] = frozenset(PLAIN_ORDERS.times_in_force)
    """Which types of orders it takes; others are refused before they are accepted."""
    times_in_force: frozenset[TimeInForce] = PLAIN_TIMES
    extended_hours: bool = False
    fields: Fields = Fields()
    # Statuses are compared without case. A status that is in none of the sets counts as open, never as final.
    rejected_statuses: frozenset[str] = frozenset({"rejected"})
    """Statuses in which the broker refused an order: it took no effect, and is `dead`."""
    open_statuses: frozenset[str] = frozenset({"accepted", "new", "open", "pending", "partially_filled"})
    """Statuses in which the broker has not finished an order: it is queried again."""
    final_statuses: frozenset[str] = frozenset(
        {"filled", "cancelled", "canceled", "expired", "replaced", "closed", "completed", "done"}
    )
    """Statuses in which the broker has finished, unless `open_statuses` has the status too: no more
    queries."""
    cancelled_statuses: frozenset[str] = frozenset({"cancelled", "canceled"})
    """Statuses in which an order is over because it was cancelled."""
    replaced_statuses: frozenset[str] = frozenset({"replaced"})
    """Statuses in which an order is over because another took its place."""
    error_statuses: frozenset[str] = frozenset({"error", "fail", "failed", "failure"})
    """An answer with one of these describes no order, unless another set has the status too."""
    rules: tuple[Rule, ...] = ()
    promise: Promise
    lookup: LookupScope = LookupScope.ALL
    window_seconds: float = 0.0
    request_valid_seconds: float | None = None
    connect_seconds: Annotated[float, Field(gt=0, le=300)] = 5.0
    reply_seconds: Annotated[float, Field(gt=0, le=300)] = 30.0

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> HttpBrokerConfig:
        """Read a broker's description. Raises SettingsError with the field that is wrong."""
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            detail = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(str(part) for part in detail["loc"])
            raise SettingsError(f"The broker's {where or 'description'} is wrong: {detail['msg']}.") from None

    @model_validator(mode="after")
    def _body_has_one_shape(self) -> Self:
        names = [*(self.body or {}), *self.constants]
        if len(set(names)) < len(names):
            raise ValueError("body and constants have a name in common")
        # Checked here: otherwise an order that cannot be encoded would fail only when it is sent.
        nested(dict.fromkeys(names, ""))
        return self

    @model_validator(mode="after")
    def _body_drops_nothing(self) -> Self:
        """A stop order without its stop price would be a market order."""
        needed = {
            "stop_price": bool(self.order_types & {OrderType.STOP, OrderType.STOP_LIMIT}),
            "good_until": "GTD" in self.times_in_force,
            "extended_hours": self.extended_hours,
        }
        missing = [name for name, is_declared in needed.items() if is_declared]
        if self.body is not None and (left := sorted({*missing} - {*self.body.values()})):
            raise ValueError(f"body has no {' and no '.join(left)}, which the declared orders need")
        return self

    @field_validator(
        *("rejected_statuses", "open_statuses", "final_statuses", "error_statuses"),
        *("cancelled_statuses", "replaced_statuses"),
    )
    @classmethod
    def _without_case(cls, words: frozenset[str]) -> frozenset[str]:
        return frozenset(_word(word) for word in words)

    @model_validator(mode="after")
    def _changes_can_be_proved(self) -> Self:
        for path in (self.cancel_path, self.replace_path):
            if path is not None and "{broker_order_id}" not in path:
                raise ValueError("cancel_path and replace_path need {broker_order_id}")
        if (self.cancel_path or self.replace_path) and self.declared_lookup is LookupScope.NONE:
            raise ValueError("a broker that cannot be searched cannot prove a cancel or a replacement")
        return self

    @model_validator(mode="after")
    def _rejected_is_not_open(self) -> Self:
        both = sorted(self.rejected_statuses & (self.open_statuses | self.final_statuses))
        if both:
            raise ValueError(
                "rejected_statuses, open_statuses and final_statuses must not overlap; in two of them is "
                + ", ".join(both)
            )
        return self

    def is_rejected(self, status: object) -> bool:
        """Whether this status means that the broker rejected the order."""
        return isinstance(status, str) and _word(status) in self.rejected_statuses

    def is_error(self, status: object) -> bool:
        """Whether the status says that the answer describes no order."""
        declared = self.rejected_statuses | self.open_statuses | self.final_statuses
        return isinstance(status, str) and _word(status) in self.error_statuses - declared

    def is_open(self, status: str) -> bool:
        """Whether an order in this status may still change. A status that is not declared counts as open."""
        word = _word(status)
        return word in self.open_statuses or word not in self.final_statuses | self.rejected_statuses

    def is_cancelled(self, status: str) -> bool:
        """Whether this status means cancelled."""
        return not self.is_open(status) and _word(status) in self.cancelled_statuses

    def is_replaced(self, status: str) -> bool:
        """Whether this status means replaced."""
        return not self.is_open(status) and _word(status) in self.replaced_statuses

    @property
    def declared_lookup(self) -> LookupScope:
        """What a lookup can find; nothing if there is no address for it."""
        return LookupScope.NONE if self.find_path is None else self.lookup

    @property
    def declaration(self) -> Declaration:
        """The broker's declaration, as the worker of orders reads it."""
        times = dict.fromkeys(self.order_types, self.times_in_force)
        extended: frozenset[tuple[OrderType, TimeInForce]] = frozenset(
            (kind, time) for kind in times for time in self.times_in_force if self.extended_hours
        )
        orders = SupportedOrders(times, extended)
        return Declaration(
            self.promise,
            self.declared_lookup,
            self.window_seconds,
            self.request_valid_seconds,
            orders=orders,
            can_cancel=self.cancel_path is not None,
            can_replace=self.replace_path is not None,
        )


def with_secrets(
    headers: Mapping[str, str],
    environ: Mapping[str, str] | None = None,
    credentials: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The headers with their variables filled in; an error names a missing one. `credentials` maps a name to
    its variable, so that two brokers can share a description but not a login."""
    environ = os.environ if environ is None else environ

    def read(match: re.Match[str]) -> str:
        variable = (credentials or {}).get(match["name"], match["name"])
        value = environ.get(variable)
        if not value:
            raise SettingsError(f"{variable} is not set, and a header of a broker needs it.")
        return value

    return {name: _VARIABLE.sub(read, value) for name, value in headers.items()}


def read_credentials(
    broker: str,
    usual: Mapping[str, str],
    credentials: Mapping[str, str] | None,
    environ: Mapping[str, str] | None,
) -> list[str]:
    """An adapter's credentials, from the default variables or from those that a broker names. Raises
    SettingsError with the names of the missing ones."""
    named = {**usual, **(credentials or {})}
    if len(named) > len(usual):
        raise SettingsError(f"credentials may have {', '.join(usual)}.")
    environ = os.environ if environ is None else environ
    missing = [name for name in named.values() if not environ.get(name)]
    if missing:
        raise SettingsError(f"{broker} needs {' and '.join(missing)} in the environment.")
    return [environ[name] for name in named.values()]


def body_of(config: HttpBrokerConfig, document: Mapping[str, Json]) -> dict[str, Json]:
    """The order as the broker's JSON. Amounts that are numbers are decimals: `json_text` writes them out. A
    body may also use `type`, which follows from the order's prices."""
    names = {name: name for name in document} if config.body is None else config.body
    known = {"type": type_of(document).value, **document}
    said = {theirs: _said(config, ours, known.get(ours)) for theirs, ours in names.items()}
    present = {name: value for name, value in said.items() if value is not None}
    if config.body is None:
        # The order's own names are not paths, whatever characters they contain.
        return {**present, **nested(config.constants)}
    return nested({**present, **config.constants})


def nested(flat: Mapping[str, Json]) -> dict[str, Json]:
    """One document from values by dotted names: `legs.0.symbol` is a list with an object in it. Raises
    ValueError when a name is both a value and a parent of others."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *parents, last = name.split(".")
        place = tree
        for parent in parents:
            place = place.setdefault(parent, _Branch())
            if not isinstance(place, _Branch):
                raise ValueError(f"{name} is nested below a name that already has a value")  # noqa: TRY004
        if last in place:
            raise ValueError(f"{name} has a value, and other names are nested below it")
        place[last] = value
    return {name: _grown(value) for name, value in tree.items()}


class _Branch(dict[str, Any]):
    """An intermediate node of a dotted name, as opposed to a value that was given."""


def _grown(value: Any) -> Json:
    """An object, or a list when all its names are numbers; a field that an order does not have leaves no
    gap."""
    if not isinstance(value, _Branch):
        return value
    grown = {key: _grown(inner) for key, inner in value.items()}
    if not all(key.isdecimal() for key in grown):
        return grown
    return [grown[key] for key in sorted(grown, key=int)]


def json_text(value: Json) -> str:
    """JSON in which a decimal is written as a number, digit by digit."""
    match value:
        case Decimal():
            return format(value, "f")
        case dict():
            fields = cast("dict[str, Json]", value).items()
            return "{" + ", ".join(f"{json.dumps(name)}: {json_text(one)}" for name, one in fields) + "}"
        case list():
            return "[" + ", ".join(json_text(one) for one in cast("Sequence[Json]", value)) + "]"
        case _:
            return json.dumps(value, allow_nan=False)


def order_of(config: HttpBrokerConfig, answer: Json) -> BrokerOrder | None:
    """The order that an answer describes, or None when it describes none.

    An answer describes an order when it names it: by the key, or by an id of the broker's own. Without a
    status it needs both, because an error may carry the id of a request.
    """
    if not isinstance(answer, dict):
        return None
    fields = cast("dict[str, Any]", answer)
    status = _at(fields, config.fields.status)
    client_id = key_echoed(_at(fields, config.fields.client_id))
    broker_order_id = name_given(_at(fields, config.fields.broker_order_id))
    names = (client_id is not None) + (broker_order_id is not None)
    if config.is_error(status) or names < (1 if isinstance(status, str) else 2):
        return None
    said = status if isinstance(status, str) else "accepted"
    fills = _at(fields, config.fields.fills)
    return BrokerOrder(
        client_id=client_id,
        broker_order_id=broker_order_id,
        status=said,
        live=not config.is_rejected(said),
        is_open=config.is_open(said),
        is_cancelled=config.is_cancelled(said),
        replaced_by=_replaced_by(config, fields, said),
        accepted_at=moment(_at(fields, config.fields.accepted_at)),
        fills=cast("Sequence[Json]", fills) if isinstance(fills, list) else (),
        body=fields,
    )


def _replaced_by(config: HttpBrokerConfig, fields: Mapping[str, Any], status: str) -> str | None:
    if not config.is_replaced(status):
        return None
    return name_given(_at(fields, config.fields.replaced_by)) or "another order"


def classified(config: HttpBrokerConfig, reply: Reply) -> AnswerVerdict:
    """What the answer to a new order means: by the broker's own rules first, then by the HTTP status."""
    answer = reply.json()
    order = order_of(config, answer)
    for rule in config.rules:
        if rule.fits(reply):
            return verdict(rule.meaning, rule.code, reply, order)
    if order is None and 200 <= reply.status < 300 and _is_refusal(config, answer):
        return verdict(Meaning.REFUSED, Code.BAD_REQUEST, reply, None)
    return by_status(reply, order)


_SAID_BY: Mapping[int, tuple[Meaning, Code]] = {
    401: (Meaning.REFUSED, Code.UNAUTHORIZED),
    403: (Meaning.REFUSED, Code.UNAUTHORIZED),
    408: (Meaning.UNKNOWN, Code.NETWORK_TIMEOUT),
    409: (Meaning.DUPLICATE, Code.CONFLICT_PROCESSED),
    425: (Meaning.UNKNOWN, Code.NETWORK_TIMEOUT),
    429: (Meaning.LIMITED, Code.RATE_LIMITED),
}
_SAID_BY_CLASS: Mapping[int, tuple[Meaning, Code]] = {
    4: (Meaning.REFUSED, Code.BAD_REQUEST),
    5: (Meaning.UNKNOWN, Code.BROKER_5XX),
}


def by_status(reply: Reply, order: BrokerOrder | None) -> AnswerVerdict:
    """What the status alone says. A 2xx with an unreadable body may have placed the order."""
    if 200 <= reply.status < 300 and order is not None:
        return verdict(Meaning.ACCEPTED, None, reply, order)
    of_class = _SAID_BY_CLASS.get(reply.status // 100, (Meaning.UNKNOWN, Code.UNKNOWN))
    meaning, code = _SAID_BY.get(reply.status, of_class)
    return verdict(meaning, code, reply, order)


def verdict(meaning: Meaning, code: Code | None, reply: Reply, order: BrokerOrder | None) -> AnswerVerdict:
    """The verdict for an answer; the body is kept unless the order was plainly accepted."""
    is_plain = meaning is Meaning.ACCEPTED and 200 <= reply.status < 300
    detail = None if is_plain else kept_answer(reply)
    return AnswerVerdict(meaning, code, detail, order, told_to_wait_seconds(reply))


def told_to_wait_seconds(reply: Reply, now: datetime | None = None) -> float | None:
    """How long the broker wants no more requests: by Retry-After, or until its rate limit is reset, when it
    refused for it or says that nothing is left."""
    headers = reply.headers
    told = retry_after_seconds(headers.get("retry-after"), now)
    is_used_up = reply.status == 429 or headers.get("x-ratelimit-remaining", "").strip() == "0"
    reset = headers.get("x-ratelimit-reset", headers.get("ratelimit-reset", "")).strip()
    is_number = reset.isascii() and reset.isdigit() and len(reset) <= _DIGITS_MAX
    if told is not None or not (is_used_up and is_number):
        return told
    # Some brokers write a time, in seconds or milliseconds, others the seconds that are left.
    number = float(reset) / (1000 if len(reset) > _DIGITS_OF_SECONDS else 1)
    if number > _RESET_SECONDS_MAX:
        number -= (now or datetime.now(UTC)).timestamp()
    return min(max(number, 0.0), RETRY_AFTER_SECONDS_MAX)


_DIGITS_MAX = 15
_DIGITS_OF_SECONDS = 11
_RESET_SECONDS_MAX = 1e9


def read_finding(reply: Reply, order: BrokerOrder | None) -> FoundOrder:
    """Read the answer to a query: found, absent, or no answer. Absence is a proof, so only the broker's own
    answer counts: a 404 that is not JSON came from a proxy."""
    wait_seconds = told_to_wait_seconds(reply)
    if reply.status == 200 and order is not None:
        return FoundOrder(LookupFinding.FOUND, order, retry_after_seconds=wait_seconds)
    kept = kept_answer(reply)
    if reply.status == 404 and isinstance(reply.json(), dict):
        return FoundOrder(LookupFinding.ABSENT, detail=kept)
    if reply.status == 429:
        return FoundOrder(
            LookupFinding.LIMITED,
            code=Code.RATE_LIMITED,
            detail=kept,
            retry_after_seconds=wait_seconds or 1.0,
        )
    return FoundOrder(LookupFinding.NO_ANSWER, code=_code_of_silence(reply), detail=kept)


def _code_of_silence(reply: Reply) -> Code:
    if reply.status in {401, 403}:
        return Code.UNAUTHORIZED
    return Code.BROKER_5XX if reply.status >= 500 else Code.UNKNOWN


def moment(value: object) -> datetime | None:
    """A time that the broker sent; None when the value is not a time, or has no zone."""
    if not isinstance(value, str):
        return None
    try:
        read = datetime.fromisoformat(_microseconds(value))
    except ValueError:
        return None
    return read if read.tzinfo is not None else None


def _is_refusal(config: HttpBrokerConfig, answer: Json) -> bool:
    """Whether an answer that names no order has a status that the description declares as a refusal."""
    if not isinstance(answer, dict):
        return False
    fields = cast("dict[str, Any]", answer)
    is_nameless = (
        key_echoed(_at(fields, config.fields.client_id)) is None
        and name_given(_at(fields, config.fields.broker_order_id)) is None
    )
    return is_nameless and config.is_rejected(_at(fields, config.fields.status))


def _word(status: str) -> str:
    return status.strip().casefold()


def _microseconds(value: str) -> str:
    """Truncate to microseconds: brokers write nanoseconds, which Python's datetime does not have."""
    return re.sub(r"(\.\d{6})\d+", r"\1", value)


def _said(config: HttpBrokerConfig, ours: str, value: Json) -> Json:
    if ours in config.numbers and value is not None:
        return Decimal(str(value))
    words = config.values.get(ours)
    return words.get(str(value), value) if words else value


def _at(fields: Mapping[str, Any], path: str) -> Any:
    if "." not in path:
        return fields.get(path)
    value: Any = fields
    for name in path.split("."):
        if not isinstance(value, dict):
            return None
        value = cast("dict[str, Any]", value).get(name)
    return value


Kind = Literal["http", "alpaca", "oanda"]
