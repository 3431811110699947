"""Starting and emitting on any connection is part of its transaction."""

import asyncio
from typing import Any, cast

import asyncpg
import psycopg
import pytest
from django.db import connection as django_connection
from django.db import transaction as django_transaction
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from fencepost import Fencepost, Workflow, WorkflowHandler
from fencepost.embedded import Database
from tests.integration.drivers.django_ports import configured
from tests.integration.jobs.harness import JobHarness

Approve = WorkflowHandler[[int], Any]


@pytest.fixture
def approve(harness: JobHarness) -> Approve:
    @harness.fp.workflow("orders")
    async def approve(wf: Workflow, order_id: int) -> Any:
        return await wf.event(f"approve:{order_id}")

    return approve


def use(fp: Fencepost, approve: Approve, connection: Any, number: int) -> tuple[Any, Any]:
    start, emit = cast("Any", approve).start, cast("Any", fp.events).emit
    return start(connection, number), emit(connection, f"approve:{number}", {"n": number})


async def use_psycopg(fp: Fencepost, approve: Approve, url: str, number: int, keep: bool) -> None:
    with psycopg.connect(url) as connection:
        use(fp, approve, connection, number)
        connection.commit() if keep else connection.rollback()


async def use_psycopg_async(fp: Fencepost, approve: Approve, url: str, number: int, keep: bool) -> None:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        for awaitable in use(fp, approve, connection, number):
            await awaitable
        await (connection.commit() if keep else connection.rollback())


async def use_asyncpg(fp: Fencepost, approve: Approve, url: str, number: int, keep: bool) -> None:
    connection: Any = await asyncpg.connect(url)
    try:
        transaction = connection.transaction()
        await transaction.start()
        for awaitable in use(fp, approve, connection, number):
            await awaitable
        await (transaction.commit() if keep else transaction.rollback())
    finally:
        await connection.close()


async def use_sqlalchemy(fp: Fencepost, approve: Approve, url: str, number: int, keep: bool) -> None:
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with Session(engine) as session:
        use(fp, approve, session, number)
        session.commit() if keep else session.rollback()
    engine.dispose()


async def use_sqlalchemy_async(fp: Fencepost, approve: Approve, url: str, number: int, keep: bool) -> None:
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    async with engine.connect() as connection:
        for awaitable in use(fp, approve, connection, number):
            await awaitable
        await (connection.commit() if keep else connection.rollback())
    await engine.dispose()


async def use_django(fp: Fencepost, approve: Approve, url: str, number: int, keep: bool) -> None:
    def inside() -> None:
        with configured(url), django_transaction.atomic():
            use(fp, approve, django_connection, number)
            django_transaction.set_rollback(not keep)

    await asyncio.to_thread(inside)


WAYS = [use_psycopg, use_psycopg_async, use_asyncpg, use_sqlalchemy, use_sqlalchemy_async, use_django]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.removeprefix("use_"))
async def test_what_commits_starts_and_is_emitted_and_what_rolls_back_never_was(
    harness: JobHarness, approve: Approve, database: Database, way: Any
) -> None:
    await way(harness.fp, approve, database.url, 1, False)
    assert harness.rows("select 1 from fencepost.jobs") == []
    assert harness.rows("select 1 from fencepost.workflow_events") == []

    await way(harness.fp, approve, database.url, 2, True)

    [(job_id, payload)] = harness.rows("select job_id, payload from fencepost.jobs")
    assert payload == {"order_id": 2}
    async with harness.working():
        assert await approve.result(job_id) == {"n": 2}
