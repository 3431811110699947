"""Every driver, as a port."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import LiteralString

import pytest

from fencepost.embedded import Database
from tests.integration.drivers import asyncpg_ports, django_ports, psycopg_ports, sqlalchemy_ports
from tests.integration.drivers.port import Port

PORTS: dict[str, Callable[[str], AbstractContextManager[Port]]] = {
    "psycopg": psycopg_ports.plain,
    "psycopg-dict-rows": psycopg_ports.dict_rows,
    "psycopg-namedtuple-rows": psycopg_ports.namedtuple_rows,
    "psycopg-client-cursor": psycopg_ports.client_cursor,
    "psycopg-raw-cursor": psycopg_ports.raw_cursor,
    "psycopg-async": psycopg_ports.plain_async,
    "psycopg-async-dict-rows": psycopg_ports.dict_rows_async,
    "psycopg-async-raw-cursor": psycopg_ports.raw_cursor_async,
    "asyncpg": asyncpg_ports.plain,
    "asyncpg-pool": asyncpg_ports.from_pool,
    "asyncpg-json-codecs": asyncpg_ports.with_json_codecs,
    "sqlalchemy-connection": sqlalchemy_ports.connection,
    "sqlalchemy-session": sqlalchemy_ports.session,
    "sqlalchemy-scoped-session": sqlalchemy_ports.scoped,
    "sqlalchemy-async-connection-psycopg": sqlalchemy_ports.async_connection_on_psycopg,
    "sqlalchemy-async-connection-asyncpg": sqlalchemy_ports.async_connection_on_asyncpg,
    "sqlalchemy-async-session-psycopg": sqlalchemy_ports.async_session_on_psycopg,
    "sqlalchemy-async-session-asyncpg": sqlalchemy_ports.async_session_on_asyncpg,
    "django": django_ports.plain,
    "django-server-side-binding": django_ports.wrapper,
}


@pytest.fixture(scope="session")
def user_tables() -> LiteralString:
    return "create table public.note (word text not null); grant select, insert on public.note to public"


@pytest.fixture
def users_database(database: Database) -> Database:
    """A database with a table of the user's own."""
    return database


@pytest.fixture(params=PORTS)
def port(request: pytest.FixtureRequest, users_database: Database) -> Iterator[Port]:
    """One driver after the other, connected as a service."""
    with PORTS[request.param](users_database.url) as opened:
        yield opened
