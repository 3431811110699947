"""Makes adapters from broker descriptions."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

from fencepost.errors import SettingsError
from fencepost_orders._alpaca import AlpacaBroker
from fencepost_orders._oanda import OandaBroker
from fencepost_orders.broker import BrokerAdapter
from fencepost_orders.http_broker import HttpBroker
from fencepost_orders.http_rules import HttpBrokerConfig
from fencepost_orders.operator_calls import BrokerLimits


@dataclass(frozen=True, slots=True)
class Broker:
    """An adapter, and the limits of its broker."""

    adapter: BrokerAdapter
    limits: BrokerLimits


def make_brokers(described: Mapping[str, Mapping[str, Any]]) -> dict[str, Broker]:
    """Make every broker of the settings; raises SettingsError that names the wrong one."""
    return {name: _make(name, description) for name, description in described.items()}


def _make(name: str, description: Mapping[str, Any]) -> Broker:
    rest = dict(description)
    kind, limits = rest.pop("adapter", "http"), rest.pop("limits", {})
    make = _KINDS.get(str(kind))
    if make is None and ":" not in str(kind):
        raise SettingsError(
            f"ORDERS_BROKERS: {name} has the adapter {kind!r}; allowed: {', '.join(_KINDS)}, or module:name "
            "for one of your own."
        )
    try:
        return Broker(make(rest) if make else _of_your_own(str(kind), rest), _limits(limits))
    except (SettingsError, TypeError, ValueError) as error:
        raise SettingsError(f"ORDERS_BROKERS: {name}: {error}") from None


def _limits(given: object) -> BrokerLimits:
    known = {field.name for field in fields(BrokerLimits)}
    if not isinstance(given, dict) or not known.issuperset(cast("dict[str, Any]", given)):
        raise SettingsError(f"limits may have {', '.join(sorted(known))}.")
    return BrokerLimits(**cast("dict[str, Any]", given))


def _http(rest: Mapping[str, Any]) -> BrokerAdapter:
    return HttpBroker(HttpBrokerConfig.of(rest))


def _of_your_own(place: str, rest: Mapping[str, Any]) -> BrokerAdapter:
    """Call `module:name` with the rest of the description. As with `python -m`, the current directory is
    importable."""
    module_name, _, name = place.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        adapter: Any = getattr(importlib.import_module(module_name), name)(**rest)
    except (ImportError, AttributeError) as error:
        raise SettingsError(f"the adapter {place} cannot be had: {error}.") from None
    missing = [part for part in _PARTS if not hasattr(adapter, part)]
    if missing:
        raise SettingsError(f"the adapter {place} has no {', '.join(missing)}.")
    return cast("BrokerAdapter", adapter)


_PARTS = ("declaration", "send_order", "classify", "find_order", "close")
_KINDS: Mapping[str, Callable[[Mapping[str, Any]], BrokerAdapter]] = {
    "http": _http,
    "alpaca": lambda rest: AlpacaBroker.from_env(**rest),
    "oanda": lambda rest: OandaBroker.from_env(**rest),
}
