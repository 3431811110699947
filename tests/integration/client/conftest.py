"""A database with a table of the user's own, and the client in both of its faces."""

from collections.abc import Callable, Iterator
from typing import LiteralString

import psycopg
import pytest

from fencepost import Fencepost
from fencepost.embedded import Database
from fencepost.settings import Settings
from tests.integration.client.facade import AsyncFacade, Facade, SyncFacade

MakeFacade = Callable[[Fencepost], Facade]


@pytest.fixture(scope="session")
def user_tables() -> LiteralString:
    return "create table public.note (word text not null); grant select, insert on public.note to public"


@pytest.fixture
def admin(database: Database) -> Iterator[psycopg.Connection]:
    """The superuser, which sees what is committed."""
    with database.connect_admin() as connection:
        yield connection


@pytest.fixture(params=["async", "sync"])
def face(request: pytest.FixtureRequest) -> MakeFacade:
    """Makes the async or the sync face of a client, not opened."""
    return AsyncFacade if request.param == "async" else SyncFacade


@pytest.fixture
def small_pool() -> Settings:
    """One connection, so that what a call leaves on it is seen by the next."""
    return Settings(pool_min=1, pool_max=1, pool_wait_seconds=5, connect_seconds=5)


@pytest.fixture
def facade(
    database: Database, admin: psycopg.Connection, face: MakeFacade, small_pool: Settings
) -> Iterator[Facade]:
    """An open client with one connection."""
    opened = face(Fencepost(database.url, settings=small_pool))
    opened.open()
    yield opened
    opened.close()


def words(admin: psycopg.Connection) -> list[str]:
    """What is committed in the user's own table."""
    return [word for (word,) in admin.execute("select word from public.note order by ctid")]
