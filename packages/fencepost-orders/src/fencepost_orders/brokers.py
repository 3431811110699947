"""Makes adapters from broker descriptions."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

from fencepost.errors import SettingsError
from fencepost_orders._accounts_broker import AccountsBroker
from fencepost_orders._alpaca import AlpacaBroker
from fencepost_orders._oanda import OandaBroker
from fencepost_orders.broker import BrokerAdapter, Declaration
from fencepost_orders.http_broker import HttpBroker
from fencepost_orders.http_rules import HttpBrokerConfig
from fencepost_orders.operator_calls import BrokerLimits


@dataclass(frozen=True, slots=True)
class Broker:
    """An adapter, and the limits of its broker."""

    adapter: BrokerAdapter
    limits: BrokerLimits
    accounts: frozenset[str] | None = None
    """The accounts that have credentials; None where any account may be named."""


def make_brokers(described: Mapping[str, Mapping[str, Any]]) -> dict[str, Broker]:
    """Make every broker of the settings; raises SettingsError that names the wrong one."""
    return {name: _make(name, description) for name, description in described.items()}


def _make(name: str, description: Mapping[str, Any]) -> Broker:
    rest = dict(description)
    kind, limits, accounts = rest.pop("adapter", "http"), rest.pop("limits", {}), rest.pop("accounts", None)
    make = _KINDS.get(str(kind))
    if make is None and ":" not in str(kind):
        raise SettingsError(
            f"ORDERS_BROKERS: {name} has the adapter {kind!r}; allowed: {', '.join(_KINDS)}, or module:name "
            "for one of your own."
        )

    def made(described: Mapping[str, Any]) -> BrokerAdapter:
        return make(described) if make else _of_your_own(str(kind), described)

    try:
        held = _limits(limits, DOCUMENTED_RATES.get(str(kind), BrokerLimits()))
        if accounts is None:
            return Broker(made(rest), held)
        adapters = {one: made({**rest, **own}) for one, own in _accounts(accounts, rest).items()}
        return Broker(AccountsBroker(adapters), held, frozenset(adapters))
    except (SettingsError, TypeError, ValueError) as error:
        raise SettingsError(f"ORDERS_BROKERS: {name}: {error}") from None


def _accounts(given: object, rest: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """The accounts of a broker, each with what it does not share with the others: its credentials."""
    if not isinstance(given, dict) or not given:
        raise SettingsError("accounts must name at least one account, each with its credentials.")
    accounts = cast("dict[str, Any]", given)
    for account, own in accounts.items():
        if not isinstance(own, dict) or "credentials" not in own:
            raise SettingsError(f"the account {account} needs credentials of its own.")
    if "credentials" in rest:
        raise SettingsError("credentials stand below each account, or for the broker, but not in both.")
    return accounts


def _limits(given: object, usual: BrokerLimits) -> BrokerLimits:
    known = {field.name for field in fields(BrokerLimits)}
    if not isinstance(given, dict) or not known.issuperset(cast("dict[str, Any]", given)):
        raise SettingsError(f"limits may have {', '.join(sorted(known))}.")
    return replace(usual, **cast("dict[str, Any]", given))


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
    if not missing:
        declared: Declaration = adapter.declaration
        needed = {"cancel_order": declared.can_cancel, "replace_order": declared.can_replace}
        missing = [part for part, is_said in needed.items() if is_said and not hasattr(adapter, part)]
    if missing:
        raise SettingsError(f"the adapter {place} has no {', '.join(missing)}.")
    return cast("BrokerAdapter", adapter)


DOCUMENTED_RATES: Mapping[str, BrokerLimits] = {
    # 200 requests a minute: what is saved up and what is added within a minute are 200 together.
    "alpaca": BrokerLimits(rate_per_second=3.0, burst=20.0),
    # 120 requests a second; a question may be several requests.
    "oanda": BrokerLimits(rate_per_second=50.0, burst=20.0),
}
"""The rates that brokers document; `limits` in a description replaces them."""
_PARTS = ("declaration", "send_order", "classify", "find_order", "close")
_KINDS: Mapping[str, Callable[[Mapping[str, Any]], BrokerAdapter]] = {
    "http": _http,
    "alpaca": lambda rest: AlpacaBroker.from_env(**rest),
    "oanda": lambda rest: OandaBroker.from_env(**rest),
}
