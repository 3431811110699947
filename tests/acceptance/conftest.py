"""A user's own tables beside the kernel's, and their rows as a history."""

import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from fencepost.embedded import Database
from fencepost.testing import HistoryLine


@dataclass(frozen=True)
class Shop:
    """A database with a ledger of effects, written in the same transaction as whatever guards them."""

    database: Database

    @property
    def url(self) -> str:
        return self.database.url

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        return self.database.connect()

    def mutate(self, signature: str, right: str, wrong: str) -> None:
        """Plant a bug in a function of the kernel, in this database alone."""
        with self.database.connect_admin() as admin:
            row = admin.execute("select pg_get_functiondef(%s::regprocedure)", (signature,)).fetchone()
            assert row is not None
            definition = str(row[0])
            assert right in definition, f"{signature} has no {right!r} to be replaced"
            admin.execute(definition.replace(right, wrong).encode())

    def effects(self) -> list[HistoryLine]:
        """The effects that committed, in the order in which they were written."""
        with self.database.connect_admin() as admin:
            rows = admin.execute("select key, token, who from ledger order by id").fetchall()
        return [HistoryLine("done", key, token, {"who": who}) for key, token, who in rows]

    @asynccontextmanager
    async def connect_async(self) -> AsyncGenerator[psycopg.AsyncConnection[Any]]:
        async with await psycopg.AsyncConnection.connect(self.url, autocommit=True) as connection:
            yield connection

    def nothing_is_held(self) -> bool:
        """Whether every lease has run out by itself."""
        with self.database.connect_admin() as admin:
            row = admin.execute("""
                select not exists (select from fencepost.lease where expires_at > fencepost.clock())
                   and not exists (select from fencepost.job_running where expires_at > fencepost.clock())
            """).fetchone()
        return row is not None and bool(row[0])

    def evicted(self) -> set[int]:
        """The backends that were ended so that a takeover could go on."""
        with self.database.connect_admin() as admin:
            rows = admin.execute("select detail -> 'pid' from fencepost.events where event = 'evicted'")
            return {int(pid) for (pid,) in rows}


def seeded_chance() -> random.Random:
    """Chance that can be had again: the seed stands in a failure's output."""
    seed = random.getrandbits(32)
    print(f"seed {seed}")  # noqa: T201
    return random.Random(seed)  # noqa: S311 - No secrets.


@pytest.fixture
def shop(database: Database) -> Shop:
    with database.connect_admin() as admin:
        admin.execute("""
            create table ledger (id bigint generated always as identity, key text, token bigint, who text);
            create table note (text text);
            grant select, insert on ledger, note to fencepost_app;
        """)
    return Shop(database)
