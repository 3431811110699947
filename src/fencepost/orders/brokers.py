"""From a broker's description to its adapter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

from fencepost.errors import SettingsError
from fencepost.orders.alpaca import AlpacaBroker
from fencepost.orders.broker import BrokerAdapter
from fencepost.orders.desk import Strength
from fencepost.orders.http_broker import HttpBroker
from fencepost.orders.http_rules import HttpBrokerConfig
from fencepost.orders.oanda import OandaBroker


@dataclass(frozen=True, slots=True)
class Broker:
    """An adapter, and what its broker can bear."""

    adapter: BrokerAdapter
    strength: Strength


def make_brokers(described: Mapping[str, Mapping[str, Any]]) -> dict[str, Broker]:
    """Every broker of the settings; raises SettingsError that names the wrong one."""
    return {name: _make(name, description) for name, description in described.items()}


def _make(name: str, description: Mapping[str, Any]) -> Broker:
    rest = dict(description)
    kind, strength = rest.pop("adapter", "http"), rest.pop("strength", {})
    make = _KINDS.get(str(kind))
    if make is None:
        raise SettingsError(f"ORDERS_BROKERS: {name} has the adapter {kind!r}; allowed: {', '.join(_KINDS)}.")
    try:
        return Broker(make(rest), _strength(strength))
    except (SettingsError, TypeError, ValueError) as error:
        raise SettingsError(f"ORDERS_BROKERS: {name}: {error}") from None


def _strength(given: object) -> Strength:
    known = {field.name for field in fields(Strength)}
    if not isinstance(given, dict) or not known.issuperset(cast("dict[str, Any]", given)):
        raise SettingsError(f"strength may have {', '.join(sorted(known))}.")
    return Strength(**cast("dict[str, Any]", given))


def _http(rest: Mapping[str, Any]) -> BrokerAdapter:
    return HttpBroker(HttpBrokerConfig.of(rest))


_KINDS: Mapping[str, Callable[[Mapping[str, Any]], BrokerAdapter]] = {
    "http": _http,
    "alpaca": lambda rest: AlpacaBroker.from_env(**rest),
    "oanda": lambda rest: OandaBroker.from_env(**rest),
}
