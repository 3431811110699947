"""The endpoint, served by one framework after the other."""

from collections.abc import Iterator
from typing import LiteralString

import psycopg
import pytest

from fencepost.embedded import Database
from tests.integration.contrib import django_endpoint, fastapi_endpoint, flask_endpoint
from tests.integration.contrib.endpoint import Endpoint, Serve

FRAMEWORKS: dict[str, Serve] = {
    "fastapi": fastapi_endpoint.serve,
    "flask": flask_endpoint.serve,
    "django": django_endpoint.serve,
}


@pytest.fixture(scope="session")
def user_tables() -> LiteralString:
    return "create table public.note (word text not null); grant select, insert on public.note to public"


@pytest.fixture
def admin(database: Database) -> Iterator[psycopg.Connection]:
    """The superuser, which sees what is committed."""
    with database.connect_admin() as connection:
        yield connection


@pytest.fixture(params=FRAMEWORKS)
def serve(request: pytest.FixtureRequest, admin: psycopg.Connection) -> Serve:
    return FRAMEWORKS[request.param]


@pytest.fixture
def endpoint(serve: Serve, database: Database) -> Iterator[Endpoint]:
    with serve(database.url) as served:
        yield served
