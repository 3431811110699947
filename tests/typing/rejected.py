"""What a type checker must refuse: each mistake is one line, and would cost an effect at run time."""

from dataclasses import dataclass
from typing import Literal

Checker = Literal["mypy", "pyright"]

PREAMBLE = """
import asyncpg
import psycopg
import sqlalchemy
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from fencepost import (
    Claim,
    Fencepost,
    Handler,
    SyncFencepost,
    SyncTransaction,
    SyncWorkflow,
    Transaction,
    Workflow,
    WorkflowHandler,
    run,
    task,
)
from fencepost.kernel import idempotency, job, lease, outbox


async def price(order_id: int) -> float:
    return 5.0


async def reserve(tx: Transaction, order_id: int) -> str:
    return "reserved"


def price_sync(order_id: int) -> float:
    return 5.0


async def mistakes(
    connection: psycopg.Connection,
    async_connection: psycopg.AsyncConnection,
    asyncpg_connection: "asyncpg.Connection[asyncpg.Record]",
    pool: ConnectionPool,
    async_pool: AsyncConnectionPool,
    asyncpg_pool: "asyncpg.Pool[asyncpg.Record]",
    engine: sqlalchemy.Engine,
    fp: Fencepost,
    sync_fp: SyncFencepost,
    tx: Transaction,
    sync_tx: SyncTransaction,
    held: lease.Lease,
    name: str,
    wf: Workflow,
    sync_wf: SyncWorkflow,
    fulfil: WorkflowHandler[[int], float],
    thumbnail: Handler[[int]],
) -> None:
"""


@dataclass(frozen=True)
class Mistake:
    """A line of code that must not pass, and who can see it."""

    what: str
    code: str
    seen_by: tuple[Checker, ...] = ("mypy", "pyright")


MISTAKES = (
    Mistake("a name that is not exported", "from fencepost import Leese"),
    Mistake("numbers for texts", "run(connection, idempotency.claim(1, 2))"),
    Mistake("a text for a token", 'run(connection, lease.fence("door", "1"))'),
    Mistake("an unknown outcome", 'outbox.Settlement(1, 1, "lost")'),
    Mistake("an unknown way to leave", 'job.Leave(1, 1, "forget")'),
    Mistake("a token that is changed by hand", "held.token = 2"),
    Mistake(
        "a lease that is taken for a claim", 'claim: Claim = run(connection, lease.acquire("a", "b", 1))'
    ),
    Mistake("a sync answer that is awaited", 'await run(connection, lease.acquire("a", "b", 1))'),
    Mistake("an answer that is not awaited", 'run(async_connection, lease.acquire("a", "b", 1)).token'),
    Mistake("asyncpg's answer not awaited", 'run(asyncpg_connection, lease.acquire("a", "b", 1)).token'),
    Mistake("a fence that is never taken", 'run(async_connection, lease.fence("door", 1))'),
    Mistake("a fence that is never taken in a transaction", 'tx.run(lease.fence("door", 1))'),
    Mistake("a call that is never made", 'fp.run(lease.acquire("a", "b", 1))'),
    Mistake("a step with a wrong argument", 'await wf.step(price, "seven")'),
    Mistake("a step with an argument too many", "await wf.step(price, 7, 8)"),
    Mistake("a step whose result is taken for another", "receipt: str = await wf.step(price, 7)"),
    Mistake("a step that is never made", "wf.step(price, 7)"),
    Mistake("a transaction with a wrong argument", 'await wf.transaction(reserve, "seven")'),
    Mistake("a step that wants a transaction", "await wf.transaction(price, 7)"),
    Mistake("a written step without parameters", 'await wf.write("delete from note")'),
    Mistake("an event whose payload is taken for another", 'paid: str = await wf.event("paid", int)'),
    Mistake("a sync step with a wrong argument", 'sync_wf.step(price_sync, "seven")'),
    Mistake("a workflow started with a wrong argument", 'await fulfil.start(tx, "seven")'),
    Mistake(
        "children whose results are taken for others", "texts: list[str] = await wf.gather(fulfil.child(7))"
    ),
    Mistake("a node of a graph with a wrong argument", 'fp.graph("g").add(task(fulfil, "seven"))'),
    Mistake("a task with an argument that its job does not have", "fp.chain(task(thumbnail, image=7))"),
    Mistake("a graph started where there is no transaction", 'await fp.graph("g").start(fp)'),
    Mistake("a task of something that is no handler", "task(price, 7)"),
    Mistake("a workflow's result taken for another", "text: str = await fulfil.result(7)"),
    Mistake("a claim that is not awaited", 'tx.claim("scope", "key").claimed'),
    Mistake("a sync transaction that is awaited", 'await sync_tx.claim("scope", "key")'),
    Mistake("a pool for a connection", "run(pool, lease.fence('door', 1))"),
    Mistake("an async pool for a connection", "await run(async_pool, lease.fence('door', 1))"),
    Mistake("asyncpg's pool for a connection", "await run(asyncpg_pool, lease.fence('door', 1))"),
    Mistake("an engine for a connection", "run(engine, lease.fence('door', 1))"),
    Mistake("an address for a connection", 'run("postgresql://host/shop", lease.fence("door", 1))'),
    Mistake("a transaction for a connection", 'run(tx, lease.fence("door", 1))'),
    Mistake("an async transaction opened without async", "with fp.transaction(): pass"),
    Mistake("a sync transaction opened with async", "async with sync_fp.transaction(): pass"),
    # mypy does not know LiteralString.
    Mistake("SQL by f-string", 'await tx.execute(f"select {name}")', seen_by=("pyright",)),
)


def program() -> tuple[str, dict[int, Mistake]]:
    """All mistakes as one module, and the line where each stands."""
    first = PREAMBLE.count("\n") + 1
    body = "".join(f"    {mistake.code}\n" for mistake in MISTAKES)
    return PREAMBLE + body, {first + place: mistake for place, mistake in enumerate(MISTAKES)}
