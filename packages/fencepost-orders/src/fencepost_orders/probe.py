"""Probes a broker that failed, or was halted because it refused the credentials.

It queries an order that waits for the broker. A query places nothing, so no order is risked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fencepost.kernel.call import Call, CallRunner, Json, Row, nothing, optional_text, parsed, text
from fencepost_orders.broker import BrokerAdapter, Code, FoundOrder, LookupFinding, OutgoingOrder
from fencepost_orders.order_calls import Weather
from fencepost_orders.outcome import weather_of

IDLE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Probed:
    """The order that is queried."""

    request: dict[str, Json]
    idempotency_key: str
    account: str
    broker_order_id: str | None
    created_at: datetime
    stamped_at: datetime
    open_since: datetime | None

    def outgoing(self) -> OutgoingOrder:
        return OutgoingOrder(
            self.idempotency_key,
            self.request,
            self.stamped_at,
            self.account,
            self.open_since or self.created_at,
            broker_order_id=self.broker_order_id,
        )


class Probe:
    """The loop of one broker: queries when the database says that a probe is due."""

    def __init__(self, broker: str, adapter: BrokerAdapter, database: CallRunner) -> None:
        self._broker = broker
        self._adapter = adapter
        self._database = database

    async def tick(self) -> float:
        probed = await self._database.run(take(self._broker))
        if probed is not None:
            await self._database.run(tell(self._broker, await self._ask(probed)))
        return IDLE_SECONDS

    async def _ask(self, probed: Probed) -> Weather | None:
        try:
            answer = await self._adapter.find_order(probed.outgoing())
        except Exception:
            # Whatever an adapter raises: the broker did not answer.
            answer = FoundOrder(LookupFinding.NO_ANSWER, code=Code.UNKNOWN)
        return weather_of(answer)


def take(broker: str) -> Call[Probed | None]:
    """The order to query, when a probe of the broker is due and this process makes it; None otherwise."""
    return Call(
        "select request::text, idempotency_key, account, broker_order_id, created_at, stamped_at, open_since"
        " from fencepost.orders_probe_take(%s::text)",
        (text("broker", broker),),
        _first,
    )


def tell(broker: str, weather: Weather | None) -> Call[None]:
    """Store what the answer says about the health of the broker."""
    return Call(
        "select fencepost.orders_probe_tell(%s::text, %s::text)",
        (text("broker", broker), optional_text("weather", weather)),
        nothing,
    )


def _first(rows: Sequence[Row]) -> Probed | None:
    return Probed(*_with_request(rows[0])) if rows else None


def _with_request(row: Row) -> tuple[Any, ...]:
    return (parsed(row[0]), *row[1:])
