"""Settings of the orders service: its brokers, the ordering key, how long keys and orders are kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, Field

from fencepost.layered_settings import From, LayeredSettings
from fencepost_orders._order_source import Unauthorized
from fencepost_orders.request import OrderKey, by_account, by_account_and_symbol, by_itself

_ORDER_KEYS: Mapping[str, OrderKey] = {
    "account_symbol": by_account_and_symbol,
    "account": by_account,
    "none": by_itself,
}


def _sections(value: object) -> object:
    """In the environment the brokers are one JSON object; in the file they are a section."""
    if isinstance(value, str):
        try:
            return cast("object", json.loads(value))
        except ValueError:
            raise ValueError("a JSON object: broker names, and below each its description") from None
    return value


class OrdersSettings(LayeredSettings):
    """The settings of the orders of one process."""

    brokers: Annotated[
        dict[str, dict[str, Any]], BeforeValidator(_sections), From("ORDERS_BROKERS", "orders.brokers")
    ] = Field(default_factory=dict[str, dict[str, Any]])
    default_broker: Annotated[str | None, From("ORDERS_DEFAULT_BROKER", "orders.default_broker")] = None
    """The broker of an HTTP request that names none."""
    order_key: Annotated[
        Literal["account_symbol", "account", "none"], From("ORDERS_ORDER_KEY", "orders.order_key")
    ] = "account_symbol"
    key_days: Annotated[float, Field(gt=0, le=36_500), From("ORDERS_KEY_DAYS", "orders.key_days")] = 30
    keep_days: Annotated[float, Field(gt=0, le=36_500), From("ORDERS_KEEP_DAYS", "orders.keep_days")] = 365
    ask_lease_seconds: Annotated[
        float, Field(ge=1, le=3600), From("ORDERS_ASK_LEASE_SEC", "orders.ask_lease_sec")
    ] = 60
    margin_seconds: Annotated[
        float, Field(ge=0, le=3600), From("ORDERS_CLOCK_MARGIN_SEC", "orders.clock_margin_sec")
    ] = 1
    follow_seconds: Annotated[
        float, Field(ge=1, le=86_400), From("ORDERS_FOLLOW_SEC", "orders.follow_sec")
    ] = 300
    follow_days: Annotated[float, Field(gt=0, le=3650), From("ORDERS_FOLLOW_DAYS", "orders.follow_days")] = 90
    ask_seconds: Annotated[float, Field(ge=0, le=86_400), From("ORDERS_ASK_SEC", "orders.ask_sec")] = 60
    """How long an unknown order is queried before it is parked."""
    parked_ask_seconds: Annotated[
        float, Field(gt=0, le=86_400), From("ORDERS_PARKED_ASK_SEC", "orders.parked_ask_sec")
    ] = 300
    retry_after_max_seconds: Annotated[
        float, Field(ge=0, le=86_400), From("ORDERS_RETRY_AFTER_MAX_SEC", "orders.retry_after_max_sec")
    ] = 300
    unauthorized: Annotated[Unauthorized, From("ORDERS_UNAUTHORIZED", "orders.unauthorized")] = "dead"
    """What becomes of an order that is refused with 401 or 403; the broker is halted in any case."""
    sending: Annotated[bool, From("ORDERS_SENDING", "orders.sending")] = True
    """Off in a process that only accepts orders."""

    def key_of(self) -> OrderKey:
        return _ORDER_KEYS[self.order_key]
