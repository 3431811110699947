"""A broker described by data: where its orders are, what its fields are called, what its answers mean."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fencepost.errors import SettingsError
from fencepost.kernel.call import Json
from fencepost.orders.broker import BrokerOrder, Code, Declaration, Meaning, Promise, Sight, Verdict
from fencepost.outbox.backoff import retry_after_seconds
from fencepost.outbox.http import Reply

_VARIABLE = re.compile(r"\$\{(?P<name>[A-Z][A-Z0-9_]*)\}")


class Rule(BaseModel):
    """The first rule that fits an answer says what it means. `contains` is looked for in the body."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: Annotated[int, Field(ge=100, le=599)]
    contains: str | None = None
    meaning: Meaning
    code: Code | None = None

    def fits(self, reply: Reply) -> bool:
        return reply.status == self.status and (self.contains is None or self.contains.encode() in reply.body)


class Fields(BaseModel):
    """What the broker calls its things; a dot goes one level down."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    client_id: str = "idempotency_key"
    broker_order_id: str = "broker_order_id"
    status: str = "status"
    accepted_at: str = "accepted_at"
    fills: str = "fills"


class HttpBrokerConfig(BaseModel):
    """A broker with a plain JSON API. `${NAME}` in a header is read from the environment, and only there."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    base_url: Annotated[str, Field(pattern=r"^https?://")]
    send_path: str = "/orders"
    find_path: str | None = "/orders/{client_id}"
    headers: Mapping[str, str] = Field(default_factory=dict[str, str])
    key_header: str | None = "Idempotency-Key"
    deadline_header: str | None = None
    body: Mapping[str, str] | None = None
    """Their name to ours; without it the order's document is sent as it is."""
    values: Mapping[str, Mapping[str, str]] = Field(default_factory=dict[str, Mapping[str, str]])
    """For one of our fields, their words for our values."""
    fields: Fields = Fields()
    rejected_statuses: frozenset[str] = frozenset({"rejected"})
    open_statuses: frozenset[str] = frozenset({"accepted", "new", "open", "pending", "partially_filled"})
    """In these the broker is not done with an order: it is asked about again."""
    rules: tuple[Rule, ...] = ()
    promise: Promise
    sight: Sight = Sight.ALL
    window_seconds: float = 0.0
    request_valid_seconds: float | None = None
    connect_seconds: Annotated[float, Field(gt=0, le=300)] = 5.0
    reply_seconds: Annotated[float, Field(gt=0, le=300)] = 30.0

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> HttpBrokerConfig:
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            detail = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(str(part) for part in detail["loc"])
            raise SettingsError(f"The broker's {where or 'description'} is wrong: {detail['msg']}.") from None

    @property
    def declaration(self) -> Declaration:
        sight = Sight.NONE if self.find_path is None else self.sight
        return Declaration(self.promise, sight, self.window_seconds, self.request_valid_seconds)


def with_secrets(headers: Mapping[str, str], environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The headers with their variables filled in; a missing one is said by name."""
    environ = os.environ if environ is None else environ

    def read(match: re.Match[str]) -> str:
        value = environ.get(match["name"])
        if not value:
            raise SettingsError(f"{match['name']} is not set, and a header of a broker needs it.")
        return value

    return {name: _VARIABLE.sub(read, value) for name, value in headers.items()}


def body_of(config: HttpBrokerConfig, document: Mapping[str, Json]) -> dict[str, Json]:
    """The order in the broker's words."""
    if config.body is None:
        return dict(document)
    said = {theirs: _said(config, ours, document.get(ours)) for theirs, ours in config.body.items()}
    return {name: value for name, value in said.items() if value is not None}


def order_of(config: HttpBrokerConfig, answer: Json) -> BrokerOrder | None:
    """The order that an answer describes, or None when it describes none."""
    if not isinstance(answer, dict):
        return None
    fields = cast("dict[str, Any]", answer)
    status = _at(fields, config.fields.status)
    if not isinstance(status, str):
        return None
    fills = _at(fields, config.fields.fills)
    return BrokerOrder(
        client_id=text(_at(fields, config.fields.client_id)),
        broker_order_id=text(_at(fields, config.fields.broker_order_id)),
        status=status,
        live=status not in config.rejected_statuses,
        is_open=status in config.open_statuses,
        accepted_at=moment(_at(fields, config.fields.accepted_at)),
        fills=cast("Sequence[Json]", fills) if isinstance(fills, list) else (),
        body=fields,
    )


def classified(config: HttpBrokerConfig, reply: Reply) -> Verdict:
    """What the answer to a new order means: by the broker's own rules first, then by what HTTP says."""
    order = order_of(config, reply.json())
    for rule in config.rules:
        if rule.fits(reply):
            return verdict(rule.meaning, rule.code, reply, order)
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


def by_status(reply: Reply, order: BrokerOrder | None) -> Verdict:
    """What the status alone says. A 2xx whose body cannot be read may have placed the order."""
    if 200 <= reply.status < 300 and order is not None:
        return verdict(Meaning.ACCEPTED, None, reply, order)
    of_class = _SAID_BY_CLASS.get(reply.status // 100, (Meaning.UNKNOWN, Code.UNKNOWN))
    meaning, code = _SAID_BY.get(reply.status, of_class)
    return verdict(meaning, code, reply, order)


def verdict(meaning: Meaning, code: Code | None, reply: Reply, order: BrokerOrder | None) -> Verdict:
    detail = None if meaning is Meaning.ACCEPTED else f"{reply.status}: {reply.excerpt()}"
    return Verdict(meaning, code, detail, order, retry_after_seconds(reply.headers.get("retry-after")))


def moment(value: object) -> datetime | None:
    """A time of the broker's, or None when it is none, or has no zone."""
    if not isinstance(value, str):
        return None
    try:
        read = datetime.fromisoformat(_microseconds(value))
    except ValueError:
        return None
    return read if read.tzinfo is not None else None


def _microseconds(value: str) -> str:
    """Brokers write nanoseconds, which Python's clock does not have."""
    return re.sub(r"(\.\d{6})\d+", r"\1", value)


def _said(config: HttpBrokerConfig, ours: str, value: Json) -> Json:
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


def text(value: object) -> str | None:
    """What the broker calls a thing, by whatever kind of value."""
    return None if value is None else str(value)


Kind = Literal["http", "alpaca", "oanda"]
