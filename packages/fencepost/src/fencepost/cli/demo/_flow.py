"""A flow: orders of customers from a Redis stream, summed up in a table."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from fencepost.cli.demo import DemoContext, DemoPart

FLOW = "demo-totals"
TABLE = "demo_totals"
CUSTOMERS = ("Ada", "Bob", "Cyd", "Dan", "Eve", "Fay")


async def _run(context: DemoContext) -> None:
    if context.fp.redis_url is None:
        context.say("There is no Redis, which has the stream of the flow. Set REDIS_URL.")
        return
    from fencepost.flows import Flow  # noqa: PLC0415 - Needs an extra.
    from fencepost.flows.sinks.postgres import PostgresUpsert  # noqa: PLC0415
    from fencepost.flows.sources.redis_streams import RedisStreams  # noqa: PLC0415
    from fencepost.redis_streams.connection import connect  # noqa: PLC0415

    # A stream for each run: a Redis that was wiped in between has lost no record that the flow still needs.
    stream = f"demo:orders:{context.run}"
    totals = (
        Flow(FLOW)
        .source(RedisStreams(stream, name="orders"))
        .json()
        .key_by(lambda order: order["customer"])
        .sum(lambda order: order["amount"])
        .sink(PostgresUpsert(TABLE, key=["customer"], columns=["amount"]))
    )
    stop, redis = asyncio.Event(), connect(context.fp.redis_url, reply_seconds=5)
    working = asyncio.create_task(context.fp.flows.worker(totals).run(stop))
    try:
        while not working.done():
            for _ in range(context.chance.randrange(1, 6)):
                order = {
                    "customer": context.chance.choice(CUSTOMERS),
                    "amount": context.chance.randrange(1, 99),
                }
                await redis.xadd(stream, {"data": json.dumps(order)})
            await asyncio.wait([working], timeout=context.chance.uniform(0.3, 1.0))
    finally:
        stop.set()
        try:
            await working
        finally:
            await redis.aclose()


PART = DemoPart(
    name="flow",
    about="a flow that sums the orders of a stream up, exactly once, in the table demo_totals",
    path=f"/console/flows/{FLOW}",
    run=_run,
    counts="""
        select 'flows' as name, count(*) from fencepost.flows where name = 'demo-totals'
        union all select 'commits', coalesce(max(number), 0) from fencepost.checkpoints
          where resource like 'flow:demo-totals/%%'""",
    others="select exists (select 1 from fencepost.flows where name <> 'demo-totals')",
    clean=Path(__file__).parent / "flow.sql",
    redis_keys=("demo:orders:*", "*demo-totals*"),
    setup={TABLE: f"create table if not exists {TABLE} (customer text primary key, amount bigint not null)"},
)
