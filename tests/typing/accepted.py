"""What must type-check: every kind of connection, with the answer that it gives. Never run."""

from typing import Any, assert_type

import asyncpg
import psycopg
from asyncpg.pool import PoolConnectionProxy
from django.db import connection as django_proxy
from django.db.backends.base.base import BaseDatabaseWrapper
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from fencepost import (
    Call,
    ChildJob,
    Claim,
    Fencepost,
    HeldLease,
    Job,
    Lease,
    SyncFencepost,
    SyncTransaction,
    SyncWorkflow,
    Transaction,
    Workflow,
    WorkflowHandler,
    previous,
    run,
    task,
)
from fencepost.kernel import idempotency, lease

ACQUIRE: Call[Lease] = lease.acquire("door", "me", 60)


def sync_connections(
    plain: psycopg.Connection,
    with_dicts: psycopg.Connection[dict[str, Any]],
    connection: Connection,
    session: Session,
    registry: scoped_session[Session],
    wrapper: BaseDatabaseWrapper,
) -> None:
    assert_type(run(plain, ACQUIRE), Lease)
    assert_type(run(with_dicts, ACQUIRE), Lease)
    assert_type(run(connection, ACQUIRE), Lease)
    assert_type(run(session, ACQUIRE), Lease)
    assert_type(run(registry, ACQUIRE), Lease)
    assert_type(run(wrapper, ACQUIRE), Lease)
    assert_type(run(django_proxy, ACQUIRE), Lease)


async def async_connections(
    plain: psycopg.AsyncConnection,
    with_dicts: psycopg.AsyncConnection[dict[str, Any]],
    other: "asyncpg.Connection[Any]",
    borrowed: "PoolConnectionProxy[Any]",
    connection: AsyncConnection,
    session: AsyncSession,
    registry: async_scoped_session[AsyncSession],
) -> None:
    assert_type(await run(plain, ACQUIRE), Lease)
    assert_type(await run(with_dicts, ACQUIRE), Lease)
    assert_type(await run(other, ACQUIRE), Lease)
    assert_type(await run(borrowed, ACQUIRE), Lease)
    assert_type(await run(connection, ACQUIRE), Lease)
    assert_type(await run(session, ACQUIRE), Lease)
    assert_type(await run(registry, ACQUIRE), Lease)


async def client(fp: Fencepost) -> None:
    assert_type(await fp.run(ACQUIRE), Lease)
    async with fp.transaction() as tx:
        assert_type(tx, Transaction)
        assert_type(await tx.run(idempotency.claim("scope", "key")), Claim)
        assert_type(await tx.claim("scope", "key"), Claim)
        async with fp.lease("door", ttl=60) as held:
            assert_type(held, HeldLease)
            assert_type(await held.fence(tx), None)
        await tx.execute("select %s", (1,))


def sync_client(fp: Fencepost) -> None:
    with fp.sync() as sync_fp:
        assert_type(sync_fp, SyncFencepost)
        assert_type(sync_fp.run(ACQUIRE), Lease)
        with sync_fp.transaction() as tx:
            assert_type(tx, SyncTransaction)
            assert_type(tx.claim("scope", "key"), Claim)
            with sync_fp.lease("door", ttl=60) as held:
                assert_type(held, HeldLease)
                held.fence(tx)
            tx.execute("select %s", (1,))


async def price(order_id: int) -> float:
    raise NotImplementedError


async def reserve(tx: Transaction, order_id: int, *, note: str = "") -> bytes:
    raise NotImplementedError


def price_sync(order_id: int) -> float:
    raise NotImplementedError


def reserve_sync(tx: SyncTransaction, order_id: int) -> bytes:
    raise NotImplementedError


async def steps(wf: Workflow, fulfil: WorkflowHandler[[int], Lease], tx: Transaction) -> None:
    assert_type(await wf.step(price, 7), float)
    assert_type(await wf.step(price_sync, order_id=7), float)
    assert_type(await wf.options(key=1, durable=False).step(price, 7), float)
    assert_type(await wf.transaction(reserve, 7, note="n"), bytes)
    await wf.options(name="note").write(("insert into note values (%s)", (7,)), ("update note set n = n", ()))
    assert_type(await wf.event("paid", Lease, timeout=60), Lease)
    assert_type(await wf.gather(fulfil.child(1), fulfil.child(2)), list[Lease])
    assert_type(await wf.result(await wf.spawn(fulfil.child(1))), Lease)
    assert_type(await fulfil.result(await fulfil.start(tx, 7)), Lease)


def sync_steps(wf: SyncWorkflow, fulfil: WorkflowHandler[[int], Lease], plain: ChildJob[Any]) -> None:
    assert_type(wf.step(price_sync, 7), float)
    assert_type(wf.transaction(reserve_sync, 7), bytes)
    assert_type(wf.event("paid", Lease), Lease)
    assert_type(wf.gather(fulfil.child(1)), list[Lease])


def declarations(fp: Fencepost) -> None:
    @fp.workflow("orders", version=3, accepts={2, 3})
    async def fulfil(wf: Workflow, order_id: int) -> Lease:
        raise NotImplementedError

    @fp.workflow("orders")
    def fulfil_sync(wf: SyncWorkflow, order_id: int) -> Lease:
        raise NotImplementedError

    @fp.job("undo")
    async def undo(job: Job, order_id: int) -> None: ...

    graph = fp.graph("fulfil")
    first = graph.add(task(fulfil, 7))
    graph.add(task(undo, order_id=first.result["id"]), when=first.result["paid"].is_false())
    fp.chain(task(undo, order_id=7), fp.group(task(undo, previous), task(fulfil_sync, previous[0])))
    assert_type(fulfil.child(order_id=7), ChildJob[Lease])
    assert_type(fulfil_sync.child(7), ChildJob[Lease])
    assert_type(ChildJob.of(undo.submission(order_id=7)), ChildJob[Any])


async def emissions(fp: Fencepost, tx: Transaction, plain: psycopg.Connection) -> None:
    assert_type(await fp.events.emit(tx, "paid", {"by": "card"}, actor="anna"), bool)
    assert_type(fp.events.emit(plain, "paid"), bool)
