"""The four who may come: the service, the viewer, a stranger, and the superuser who watches."""

from collections.abc import Iterator
from contextlib import closing, suppress

import psycopg
import pytest

from fencepost.embedded import Database
from tests.integration.kernel.caller import Caller

STRANGER = "fencepost_stranger"


@pytest.fixture
def service(database: Database) -> Iterator[Caller]:
    """A login with the application's rights."""
    with closing(Caller(database.url)) as caller:
        yield caller


@pytest.fixture
def viewer(database: Database) -> Iterator[Caller]:
    """A login with the right to look."""
    with closing(Caller(database.viewer_url)) as caller:
        yield caller


@pytest.fixture
def admin(database: Database) -> Iterator[Caller]:
    """The superuser."""
    with closing(Caller(database.admin_url)) as caller:
        yield caller


@pytest.fixture
def stranger(database: Database, admin: Caller) -> Iterator[Caller]:
    """A login that is a member of nothing. Logins belong to the server, so one serves all tests of a run."""
    with suppress(psycopg.errors.DuplicateObject):
        admin.execute("create role fencepost_stranger login")
    with closing(Caller(database.server.url(database.name, STRANGER))) as caller:
        yield caller
