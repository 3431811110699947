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

from fencepost import Call, Claim, Fencepost, Lease, SyncFencepost, SyncTransaction, Transaction, run
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
        await tx.execute("select %s", (1,))


def sync_client(fp: Fencepost) -> None:
    with fp.sync() as sync_fp:
        assert_type(sync_fp, SyncFencepost)
        assert_type(sync_fp.run(ACQUIRE), Lease)
        with sync_fp.transaction() as tx:
            assert_type(tx, SyncTransaction)
            assert_type(tx.claim("scope", "key"), Claim)
            tx.execute("select %s", (1,))
