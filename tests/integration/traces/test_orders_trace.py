"""An order's trace: from the request over HTTP to the broker's answer."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx

from fencepost import Fencepost
from fencepost.embedded import Database
from fencepost_orders._api import make_router
from fencepost_orders.broker import Promise
from fencepost_orders.brokers import Broker
from fencepost_orders.operator_calls import BrokerLimits
from fencepost_orders.service import Orders
from fencepost_orders.testing.broker import HostileBroker
from fencepost_server.web._app import make_app
from fencepost_server.web.http_service import HttpService
from fencepost_server.web.settings import WebSettings
from tests.integration.orders.broker_env import QUICK, BrokerEnv, adapter_for
from tests.integration.traces.otlp_collector import CALLER, PARENT, TRACE, OtlpCollector

ORDER = {"idempotency_key": "k1", "broker": "acme", "symbol": "USDJPY", "intent": "BUY", "qty": "1"}
HEADERS = {"Idempotency-Key": "k1", "traceparent": PARENT}


@asynccontextmanager
async def open_orders(
    database: Database, broker: HostileBroker
) -> AsyncGenerator[tuple[httpx.AsyncClient, BrokerEnv]]:
    async with Fencepost(database.url) as fp:
        brokers = {"acme": Broker(adapter_for(broker.url, broker.book.promise), BrokerLimits())}
        orders = Orders(fp, brokers, outbox_settings=QUICK)
        app = make_app([HttpService("orders", make_router(orders), orders.running)], WebSettings())
        transport = httpx.ASGITransport(app)
        async with (
            orders.running(),
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http,
        ):
            yield http, BrokerEnv(orders, fp)


async def place(database: Database) -> str:
    """Place an order and wait until the broker has it; answers its trace as it is stored."""
    with HostileBroker(Promise.FOREVER) as broker:
        async with open_orders(database, broker) as (http, floor):
            answer = await http.post("/orders", json=ORDER, headers=HEADERS)
            assert answer.status_code == 202, answer.text
            stored = await floor.until_status(answer.json()["id"], "sent")
            return str(stored["trace_id"])


async def test_a_request_and_the_sending_of_its_order_are_one_trace(
    database: Database, ear: OtlpCollector
) -> None:
    assert await place(database) == TRACE
    assert ear.way("deliver orders") == ["deliver orders", "HTTP POST"]
    assert ear.begins_at("deliver orders") == (TRACE, CALLER)
    assert ear.about("deliver orders")["outcome"] == "sent"


async def test_without_spans_the_order_has_the_id_and_its_message_no_headers(database: Database) -> None:
    assert await place(database) == TRACE
    with database.connect() as connection:
        assert connection.execute("select headers from fencepost.outbox_messages").fetchall() == [({},)]


async def test_an_order_keeps_the_trace_that_it_names(database: Database, ear: OtlpCollector) -> None:
    with HostileBroker(Promise.FOREVER) as broker:
        async with open_orders(database, broker) as (http, floor):
            answer = await http.post("/orders", json={**ORDER, "trace_id": "strategy-7"}, headers=HEADERS)
            stored = await floor.until_status(answer.json()["id"], "sent")
    assert stored["trace_id"] == "strategy-7"
    assert ear.begins_at("deliver orders") == (TRACE, CALLER)
