"""Callers of the kernel, and its clock."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime

import pytest

from fencepost.embedded import Database
from fencepost.embedded._database import SERVICE
from fencepost.testing import Clock
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.caller import connect as connect_to
from tests.matrix.pooler import Pooler
from tests.reused_databases import ReusedDatabase

# A full hour, so that the slices of the key ring begin where a reader expects them.
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def connect(database: Database) -> Iterator[Callable[[], Caller]]:
    """Another caller as the application, for tests in which two meet.

    It has a backend of its own, which a test may name and stop, also where a pooler stands before the server.
    """
    url = database.server.url(database.name, SERVICE)
    with ExitStack() as stack:
        yield lambda: stack.enter_context(closing(Caller(url)))


@pytest.fixture
def kept_sessions(request: pytest.FixtureRequest, pooler: Pooler | None) -> Iterator[Callable[[str], Caller]]:
    """Callers on sessions that serve one test after the other."""
    with ExitStack() as stack:
        if pooler is None:
            reused: ReusedDatabase = request.getfixturevalue("reused_database")
            yield lambda url: Caller(url, reused.session(url, connect_to))
        else:
            yield lambda url: stack.enter_context(closing(Caller(url)))


@pytest.fixture
def app(database: Database, kept_sessions: Callable[[str], Caller]) -> Caller:
    """A caller as the application, on the way that services take."""
    return kept_sessions(database.url)


@pytest.fixture
def admin(database: Database, kept_sessions: Callable[[str], Caller]) -> Caller:
    """The superuser, which sees the tables behind the views."""
    return kept_sessions(database.admin_url)


@pytest.fixture
def clock(clock: Clock) -> Clock:
    """The clock of the test's database, standing still until the test moves it."""
    clock.freeze(NOON)
    return clock
