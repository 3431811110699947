# mypy: ignore-errors
# pyright: basic, reportMissingImports=false
# The packages it imports are those of an environment of its own, which the checkers here do not see.
"""Orders through faststream-outbox: its table, its subscriber, one POST for each message."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from typing import Any

import aiohttp
from faststream_outbox import OutboxBroker, make_outbox_table
from sqlalchemy import MetaData, exists, select
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

WORKERS = 60
# As many as our own service sends before the measurement.
WARM_UP = 500


def order_of(key: str, number: int) -> dict[str, Any]:
    """The same order that every entrant sends."""
    return {
        "idempotency_key": key,
        "broker": "bench",
        "symbol": f"S{number}",
        "intent": "BUY",
        "qty": "100",
        "limit_price": "145.001",
    }


async def run(url: str, broker_url: str, count: int, prefix: str) -> dict[str, float]:
    metadata = MetaData()
    table = make_outbox_table(metadata, table_name="outbox_faststream")
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"), pool_size=WORKERS + 5)
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    await send(engine, table, broker_url, WARM_UP, f"{prefix}-warm")
    seconds = await send(engine, table, broker_url, count, prefix)
    await engine.dispose()
    return {"seconds": seconds, "p99_ms": 0.0}


async def send(engine: Any, table: Any, broker_url: str, count: int, prefix: str) -> float:
    """The seconds from the broker's start until the table is empty."""
    broker = OutboxBroker(engine, outbox_table=table)
    done = asyncio.Event()
    left = count
    session_of = async_sessionmaker(engine, expire_on_commit=False)
    for start in range(0, count, 500):
        async with session_of() as session, session.begin():
            for number in range(start, min(start + 500, count)):
                order = order_of(f"{prefix}-{number}", number)
                await broker.publish(order, queue="orders", session=session)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=256)) as http:
        # Each worker keeps a connection: as many as a server with its usual 100 can spare.
        @broker.subscriber(
            "orders",
            max_workers=WORKERS,
            fetch_batch_size=200,
            min_fetch_interval=0.01,
            terminal_flush_batch_size=100,
        )
        async def handle(order: dict[str, Any]) -> None:
            nonlocal left
            headers = {"Idempotency-Key": order["idempotency_key"]}
            async with http.post(f"{broker_url}/orders", json=order, headers=headers) as reply:
                await reply.read()
                reply.raise_for_status()
            left -= 1
            if left == 0:
                done.set()

        began = time.monotonic()
        await broker.start()
        await done.wait()
        # The end is the same for all entrants: an order is done when that is stored.
        async with engine.connect() as connection:
            while (await connection.execute(select(exists(select(table.c.id))))).scalar():
                await connection.commit()
                await asyncio.sleep(0.002)
        seconds = time.monotonic() - began
        await broker.stop()
    return seconds


if __name__ == "__main__":
    # Our own service freezes the garbage collector; every entrant does, so that it makes no difference.
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    sys.stdout.write(
        json.dumps(asyncio.run(run(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))) + "\n"
    )
