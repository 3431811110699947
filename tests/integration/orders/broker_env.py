"""The whole service beside a hostile broker, with short times."""

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from fencepost import Fencepost
from fencepost.outbox.settings import OutboxSettings
from fencepost_orders._settings import OrdersSettings
from fencepost_orders.broker import BrokerAdapter, Meaning, Promise
from fencepost_orders.brokers import Broker
from fencepost_orders.http_broker import HttpBroker
from fencepost_orders.http_rules import HttpBrokerConfig, Rule
from fencepost_orders.operator_calls import BrokerLimits
from fencepost_orders.request import OrderRequest
from fencepost_orders.service import Orders
from fencepost_orders.testing.broker import DEADLINE_HEADER, HostileBroker
from tests.waiting_for import found

QUICK = OutboxSettings(backoff_base_seconds=0.02, idle_seconds=0.02, stuck_seconds=3)
# Where a sender goes silent on purpose, and nothing is said about how often it was taken.
STUCK_SOON = QUICK.model_copy(update={"stuck_seconds": 0.9})
MARGIN_SECONDS = 0.3
# Where nothing is said about how long a broker is asked before an order is parked.
SOON_PARKED = OrdersSettings(margin_seconds=MARGIN_SECONDS, ask_lease_seconds=5, ask_seconds=0)
VALID_SECONDS = 1.0


def adapter_for(url: str, promise: Promise, *, valid_seconds: float | None = VALID_SECONDS) -> HttpBroker:
    return HttpBroker(
        HttpBrokerConfig(
            base_url=url,
            promise=promise,
            window_seconds=60 if promise is Promise.WINDOW else 0,
            request_valid_seconds=valid_seconds,
            deadline_header=DEADLINE_HEADER,
            cancel_path="/orders/{broker_order_id}",
            replace_path="/orders/{broker_order_id}",
            rules=(Rule(status=400, contains="too old", meaning=Meaning.STALE),),
            connect_seconds=2,
            reply_seconds=2,
        )
    )


class BrokerEnv:
    """Places orders and waits for what becomes of them."""

    def __init__(self, orders: Orders, fp: Fencepost) -> None:
        self.orders = orders
        self.fp = fp

    async def place(self, key: str, **fields: Any) -> int:
        answer = await self.orders.place(order(key, **fields))
        assert answer.order_id is not None
        return answer.order_id

    async def place_many(self, keys: Iterable[str]) -> list[int]:
        """Each with a symbol of its own, so that none waits for another."""
        return [await self.place(key, symbol=f"S{number}") for number, key in enumerate(keys)]

    async def until(
        self, what: str, is_so: Callable[[dict[str, Any]], bool], order_id: int
    ) -> dict[str, Any]:
        """Wait until the order is so; fails with what it was at the deadline."""
        return await found(f"order {order_id} is {what}", lambda: self.orders.get(order_id=order_id), is_so)

    async def until_status(self, order_id: int, *statuses: str) -> dict[str, Any]:
        return await self.until(" or ".join(statuses), lambda found: found["status"] in statuses, order_id)

    async def until_shown(self, line: str) -> str:
        """The page of metrics, once it has the line: what is seen in the database is counted a moment
        later."""

        async def page() -> str:
            return self.fp.metrics.page().body.decode()

        return await found(f"{line} is on the page", page, lambda seen: line in seen)

    async def steps(self, order_id: int) -> list[tuple[str | None, str, str | None]]:
        return [
            (row["status_from"], row["status_to"], row["last_error"])
            for row in await self.orders.history(order_id)
        ]


def order(key: str, **fields: Any) -> OrderRequest:
    return OrderRequest.of(
        {"idempotency_key": key, "broker": "acme", "symbol": "USDJPY", "intent": "BUY", "qty": "1", **fields}
    )


@asynccontextmanager
async def open_floor(
    url: str,
    adapter: BrokerAdapter,
    *,
    outbox_settings: OutboxSettings = QUICK,
    limits: BrokerLimits | None = None,
    settings: OrdersSettings | None = None,
) -> AsyncGenerator[BrokerEnv]:
    """The service on the database at `url`, sending to one broker named acme."""
    bears_everything = BrokerLimits(rate_per_second=1e6, burst=1e6, failures_max=1_000_000)
    settings = settings or SOON_PARKED
    async with Fencepost(url) as fp:
        orders = Orders(fp, {"acme": Broker(adapter, limits or bears_everything)}, settings, outbox_settings)
        async with orders.running():
            yield BrokerEnv(orders, fp)


@asynccontextmanager
async def floor_with(
    url: str, broker: HostileBroker, *, valid_seconds: float | None = VALID_SECONDS, **how: Any
) -> AsyncGenerator[BrokerEnv]:
    adapter = adapter_for(broker.url, broker.book.promise, valid_seconds=valid_seconds)
    async with open_floor(url, adapter, **how) as floor:
        yield floor
