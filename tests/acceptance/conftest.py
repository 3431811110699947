"""A user's own tables beside the kernel's, and their rows as a history."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from fencepost.embedded import Database
from fencepost.testing import Clock, Entry


@dataclass(frozen=True)
class Shop:
    """A database with a ledger of effects, written in the same transaction as whatever guards them."""

    database: Database

    @property
    def url(self) -> str:
        return self.database.url

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        return self.database.connect()

    def plant(self, mutant: str) -> None:
        """Replace a function of the kernel by a broken one, in this database alone."""
        with self.database.connect_admin() as admin:
            admin.execute(mutant.encode())

    def effects(self) -> list[Entry]:
        """The effects that committed, in the order in which they were written."""
        with self.database.connect_admin() as admin:
            rows = admin.execute("select key, token, who from ledger order by id").fetchall()
        return [Entry("done", key, token, {"who": who}) for key, token, who in rows]

    @asynccontextmanager
    async def connect_async(self) -> AsyncGenerator[psycopg.AsyncConnection[Any]]:
        async with await psycopg.AsyncConnection.connect(self.url, autocommit=True) as connection:
            yield connection

    def evicted(self) -> set[int]:
        """The backends that were ended so that a takeover could go on."""
        with self.database.connect_admin() as admin:
            rows = admin.execute("select detail -> 'pid' from fencepost.events where event = 'evicted'")
            return {int(pid) for (pid,) in rows}


@pytest.fixture
def shop(database: Database) -> Shop:
    with database.connect_admin() as admin:
        admin.execute("""
            create table ledger (id bigint generated always as identity, key text, token bigint, who text);
            create table note (text text);
            grant select, insert on ledger, note to fencepost_app;
        """)
    return Shop(database)


@pytest.fixture
def clock(database: Database) -> Iterator[Clock]:
    with Clock(database.admin_url) as clock:
        yield clock
