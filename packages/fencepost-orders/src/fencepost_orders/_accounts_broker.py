"""One broker with several accounts: an adapter for each, with credentials of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from fencepost.errors import SettingsError
from fencepost.http_client import NotSent, Reply
from fencepost_orders.broker import (
    AnswerVerdict,
    BrokerAdapter,
    Declaration,
    FoundOrder,
    LookupFinding,
    OrderChanger,
    OutgoingOrder,
)


class AccountsBroker:
    """Sends and queries each order with the credentials of its account. An order of an account that is no
    longer configured is not sent, and nothing is said about it."""

    def __init__(self, adapters: Mapping[str, BrokerAdapter]) -> None:
        self._adapters = dict(adapters)
        first, *others = (adapter.declaration for adapter in self._adapters.values())
        if any(other != first for other in others):
            raise SettingsError("the accounts of one broker must not declare different things.")
        self._declaration = first

    @property
    def declaration(self) -> Declaration:
        return self._declaration

    async def send_order(self, order: OutgoingOrder) -> Reply:
        return await self._of(order).send_order(order)

    def classify(self, order: OutgoingOrder, reply: Reply) -> AnswerVerdict:
        return self._of(order).classify(order, reply)

    async def find_order(self, order: OutgoingOrder) -> FoundOrder:
        if order.account not in self._adapters:
            return FoundOrder(LookupFinding.NO_ANSWER, detail=_unknown(order))
        return await self._adapters[order.account].find_order(order)

    async def cancel_order(self, order: OutgoingOrder) -> Reply:
        return await cast("OrderChanger", self._of(order)).cancel_order(order)

    async def replace_order(self, order: OutgoingOrder, replacement: OutgoingOrder) -> Reply:
        return await cast("OrderChanger", self._of(order)).replace_order(order, replacement)

    async def close(self) -> None:
        for adapter in self._adapters.values():
            await adapter.close()

    def _of(self, order: OutgoingOrder) -> BrokerAdapter:
        if order.account not in self._adapters:
            raise NotSent(_unknown(order))
        return self._adapters[order.account]


def _unknown(order: OutgoingOrder) -> str:
    return f"the account {order.account} has no credentials here: add it to the accounts of its broker"
