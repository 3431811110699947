"""The book of the hostile broker: which orders it has, and when it refuses a client id. No I/O."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from fencepost_orders.broker import LookupScope, Promise


@dataclass
class BookOrder:
    """One order that really exists at the broker."""

    client_id: str
    broker_order_id: str
    request: dict[str, Any]
    accepted_at: float
    is_open: bool = True
    filled_part: str | None = None
    """How much of it was filled while it was open."""
    is_cancelled: bool = False
    replaced_by: str | None = None

    @property
    def is_filled(self) -> bool:
        """Filled as a whole: neither open nor cancelled nor replaced."""
        return not (self.is_open or self.is_cancelled or self.replaced_by)

    def filled_quantity(self, quantity: str | None) -> str | None:
        """How much of it was filled, of its quantity."""
        return quantity if self.is_filled else self.filled_part


@dataclass
class Book:
    """What a broker with one promise stores. `fill_chance` is how likely an open order is filled at each
    read."""

    promise: Promise
    lookup: LookupScope = LookupScope.ALL
    window_seconds: float = 60.0
    fill_chance: float = 0.3
    chance: random.Random = field(default_factory=lambda: random.Random(1))  # noqa: S311 - No secrets.

    def __post_init__(self) -> None:
        self.orders: list[BookOrder] = []
        self.refusals: Counter[str] = Counter()
        self._by_client: dict[str, list[BookOrder]] = {}
        self._numbers = itertools.count(1)

    def place(
        self, client_id: str, request: dict[str, Any], now: float, *, at_once: bool = False
    ) -> tuple[BookOrder, bool]:
        """The order with this id, and whether it is new: the promise decides whether a second one is refused.

        `at_once`: it arrives together with another, so that nothing can have been filled in between.
        """
        if not at_once:
            self._fill(client_id)
        known = self._remembered(client_id, now)
        if known is not None:
            return known, False
        return self._add(client_id, request, now), True

    def cancel(self, broker_order_id: str, *, at_once: bool = False) -> BookOrder | None:
        """Cancel an order, unless it is filled first; None when it is not open."""
        order = self._open_one(broker_order_id, at_once=at_once)
        if order is not None:
            order.is_open, order.is_cancelled = False, True
        return order

    def replace(
        self,
        broker_order_id: str,
        client_id: str,
        request: dict[str, Any],
        now: float,
        *,
        at_once: bool = False,
    ) -> BookOrder | None:
        """Put another order in the place of one, unless that is filled first; None when it is not open."""
        order = self._open_one(broker_order_id, at_once=at_once)
        if order is None:
            return None
        made = self._add(client_id, request, now)
        order.is_open, order.replaced_by = False, made.broker_order_id
        return made

    def _open_one(self, broker_order_id: str, *, at_once: bool) -> BookOrder | None:
        order = next((one for one in self.orders if one.broker_order_id == broker_order_id), None)
        if order is not None and not at_once:
            self._fill(order.client_id)
        return order if order is not None and order.is_open else None

    def _add(self, client_id: str, request: dict[str, Any], now: float) -> BookOrder:
        order = BookOrder(client_id, f"brk-{next(self._numbers)}", request, now)
        self.orders.append(order)
        self._by_client.setdefault(client_id, []).append(order)
        return order

    def find(self, client_id: str) -> BookOrder | None:
        """The newest order with this id that a search can see, as it is now; afterwards it may be filled."""
        seen = [
            order
            for order in self._by_client.get(client_id, ())
            if self.lookup is LookupScope.ALL or (self.lookup is LookupScope.OPEN and order.is_open)
        ]
        if not seen:
            return None
        shown = replace(seen[-1])
        self._fill(client_id)
        return shown

    def doubled(self) -> list[str]:
        """Client ids that have more than one order: this must never happen."""
        return sorted(client_id for client_id, orders in self._by_client.items() if len(orders) > 1)

    def client_ids(self) -> set[str]:
        return set(self._by_client)

    def forget_all(self) -> None:
        """Delete every order."""
        self.orders.clear()
        self._by_client.clear()

    def _fill(self, client_id: str) -> None:
        for order in self._by_client.get(client_id, ()):
            order.is_open = order.is_open and self.chance.random() >= self.fill_chance

    def _remembered(self, client_id: str, now: float) -> BookOrder | None:
        orders = self._by_client.get(client_id, [])
        match self.promise:
            case Promise.FOREVER:
                known = orders
            case Promise.WINDOW:
                known = [order for order in orders if now - order.accepted_at < self.window_seconds]
            case Promise.WHILE_OPEN:
                known = [order for order in orders if order.is_open]
            case Promise.NOTHING:
                known = []
        return known[-1] if known else None
