"""Our two entrants: the service as it is, and the loop that sends one order after the other.

`python -m bench.orders_senders service|loop URL BROKER_URL COUNT PREFIX PACED` submits COUNT orders,
sends them, and prints the measurements as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import psycopg

from fencepost.client import Fencepost
from fencepost.gc_tuning import freeze_collected_objects
from fencepost.http_client import HttpClient, Request
from fencepost.outbox.settings import OutboxSettings
from fencepost.signals import listening
from fencepost_orders._settings import OrdersSettings
from fencepost_orders.broker import Promise
from fencepost_orders.brokers import Broker
from fencepost_orders.http_broker import HttpBroker
from fencepost_orders.http_rules import HttpBrokerConfig
from fencepost_orders.operator_calls import BrokerLimits
from fencepost_orders.request import OrderRequest
from fencepost_orders.service import Orders

BATCH = 32
PACED_PER_SECOND = 50
# Sent before the measurement by every entrant: a service has run for a while, and its server is warm.
WARM_UP = 500
SETTLED = "select count(*) from fencepost.outbox_orders where status = 'sent' and idempotency_key like %s"
LAGS = (
    "select extract(epoch from settled_at - created_at) from fencepost.outbox_orders"
    " where status = 'sent' and idempotency_key like %s"
)


def order(key: str, number: int) -> dict[str, Any]:
    return {
        "idempotency_key": key,
        "broker": "bench",
        "symbol": f"S{number}",
        "intent": "BUY",
        "qty": "100",
        "limit_price": "145.001",
    }


async def service(url: str, broker_url: str, count: int, prefix: str, paced: int) -> dict[str, float]:
    """The whole service: the time to send `count` waiting orders, and the lag of orders that come one by
    one."""
    # Nothing is followed: the other entrants forget an order once it is sent.
    config = HttpBrokerConfig(base_url=broker_url, promise=Promise.FOREVER, open_statuses=frozenset())
    strong = Broker(HttpBroker(config), BrokerLimits(rate_per_second=1e6, burst=1e6))
    async with Fencepost(url) as fp:
        orders = Orders(
            fp, {"bench": strong}, OrdersSettings(), OutboxSettings(batch_size=100, parallelism=2)
        )
        await _accept(fp, orders, WARM_UP, f"{prefix}-warm")
        async with orders.running():
            await _until_settled(orders, WARM_UP)
        await _accept(fp, orders, count, f"{prefix}-many")
        began = time.monotonic()
        async with orders.running():
            await _until_settled(orders, WARM_UP + count)
            seconds = time.monotonic() - began
            await _require_sent(fp, f"{prefix}-many%", count)
            for number in range(paced):
                request = OrderRequest.of(order(f"{prefix}-paced-{number}", number))
                await asyncio.gather(orders.place(request), asyncio.sleep(1 / PACED_PER_SECOND))
            await _until_settled(orders, WARM_UP + count + paced)
            await _require_sent(fp, f"{prefix}-paced%", paced)
        return {"seconds": seconds, "p99_ms": await _p99_ms(fp, f"{prefix}-paced%")}


async def _accept(fp: Fencepost, orders: Orders, count: int, prefix: str) -> None:
    for start in range(0, count, 500):
        async with fp.transaction() as tx:
            for number in range(start, min(start + 500, count)):
                await orders.accept(tx, OrderRequest.of(order(f"{prefix}-{number}", number)))


async def _until_settled(orders: Orders, count: int) -> None:
    """Wait until the service has counted so many committed settlements. Asking the database would slow it
    down, and more so the more orders it has."""
    settled = asyncio.Event()
    with listening(lambda _: settled.set()):
        while _settled(orders) < count:
            await settled.wait()
            settled.clear()


def _settled(orders: Orders) -> float:
    (family,) = orders.metrics.lag_seconds.collect()
    return float(next(sample.value for sample in family.samples if sample.name.endswith("_count")))


async def _require_sent(fp: Fencepost, pattern: str, count: int) -> None:
    """The database must have what was counted."""
    async with fp.transaction() as tx:
        (sent,) = await (await tx.execute(SETTLED, (pattern,))).fetchone() or (0,)
    assert sent == count, f"{sent} orders of {count} were sent"


async def _p99_ms(fp: Fencepost, pattern: str) -> float:
    async with fp.transaction() as tx:
        lags = sorted(float(row[0]) for row in await (await tx.execute(LAGS, (pattern,))).fetchall())
    return lags[int(len(lags) * 0.99)] * 1000


async def loop(url: str, broker_url: str, count: int, prefix: str, _: int) -> dict[str, float]:
    """The usual first version of such a loop: lock a batch, then send and mark one order after the other."""
    async with await psycopg.AsyncConnection.connect(url) as connection, HttpClient() as client:
        await connection.execute(
            "create table if not exists outbox_loop (id bigserial primary key, key text unique not null,"
            " request jsonb not null, status text not null default 'queued',"
            " created_at timestamptz default now())"
        )
        rows = [
            (f"{prefix}-{number}", json.dumps(order(f"{prefix}-{number}", number))) for number in range(count)
        ]
        async with connection.cursor() as cursor:
            await cursor.executemany("insert into outbox_loop (key, request) values (%s, %s)", rows)
        await connection.commit()
        began = time.monotonic()
        while picked := await _pick(connection):
            for row_id, key, request in picked:
                headers = {"Content-Type": "application/json", "Idempotency-Key": key}
                body = json.dumps(request).encode()
                reply = await client.exchange(Request("POST", f"{broker_url}/orders", headers, body))
                status = "sent" if reply.status < 300 else "failed"
                await connection.execute("update outbox_loop set status = %s where id = %s", (status, row_id))
                await connection.commit()
        return {"seconds": time.monotonic() - began, "p99_ms": 0.0}


async def _pick(connection: psycopg.AsyncConnection[Any]) -> list[tuple[int, str, dict[str, Any]]]:
    cursor = await connection.execute(
        "update outbox_loop set status = 'sending' where id in"
        " (select id from outbox_loop where status = 'queued' order by id limit %s for update skip locked)"
        " returning id, key, request",
        (BATCH,),
    )
    picked = await cursor.fetchall()
    await connection.commit()
    return picked


def main() -> None:
    role, url, broker_url, count, prefix, paced = sys.argv[1:]
    # As `fencepost serve` does, and the other entrants too.
    freeze_collected_objects()
    send = {"service": service, "loop": loop}[role]
    measured = asyncio.run(send(url, broker_url, int(count), prefix, int(paced)))
    sys.stdout.write(json.dumps(measured) + "\n")


if __name__ == "__main__":
    main()
