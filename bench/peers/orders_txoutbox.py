# mypy: ignore-errors
# pyright: basic, reportMissingImports=false
# The packages it imports are those of an environment of its own, which the checkers here do not see.
"""Orders through txoutbox: its PostgreSQL storage, its relay, one POST for each message."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from typing import Any

import aiohttp
import asyncpg
from txoutbox import Relay, RelayConfig
from txoutbox.adapters.postgres import PostgresStorage

# As many as our own service sends before the measurement.
WARM_UP = 500
PENDING = "select exists (select from outbox where status = 'pending')"


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
    pool = await asyncpg.create_pool(url, max_size=10)
    storage = PostgresStorage(pool)
    await storage.create_schema()
    await send(pool, storage, broker_url, WARM_UP, f"{prefix}-warm")
    seconds = await send(pool, storage, broker_url, count, prefix)
    await pool.close()
    return {"seconds": seconds, "p99_ms": 0.0}


async def send(pool: Any, storage: PostgresStorage, broker_url: str, count: int, prefix: str) -> float:
    """The seconds from the relay's start until all are stored as sent."""
    done = asyncio.Event()
    left = count
    async with pool.acquire() as connection, connection.transaction():
        for number in range(count):
            order = order_of(f"{prefix}-{number}", number)
            await storage.insert(connection, "orders", order, key=f"main/S{number}")

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=256)) as session:

        async def publish(message: Any) -> None:
            nonlocal left
            key = message.json()["idempotency_key"]
            headers = {"Idempotency-Key": key}
            async with session.post(f"{broker_url}/orders", json=message.json(), headers=headers) as reply:
                await reply.read()
                reply.raise_for_status()
            left -= 1
            if left == 0:
                done.set()

        began = time.monotonic()
        # As many at once as our own service has in flight.
        relay = Relay(storage, publish, config=RelayConfig(batch_size=200, concurrency=200))
        async with relay:
            await done.wait()
            # The end is the same for all entrants: an order is done when that is stored.
            while await pool.fetchval(PENDING):  # noqa: ASYNC110 - It has no other way to say so.
                await asyncio.sleep(0.002)
            return time.monotonic() - began


if __name__ == "__main__":
    # Our own service freezes the garbage collector; every entrant does, so that it makes no difference.
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    sys.stdout.write(
        json.dumps(asyncio.run(run(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))) + "\n"
    )
