"""Callers of the kernel, and its clock."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime

import pytest

from fencepost.embedded import Database
from fencepost.embedded._database import SERVICE
from fencepost.testing import Clock
from tests.integration.kernel.caller import Caller

# A full hour, so that the slices of the key ring begin where a reader expects them.
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def connect(database: Database) -> Iterator[Callable[[], Caller]]:
    """Another caller as the application, for tests in which two meet.

    It has a backend of its own, whom a test may name and stop, also where a pooler stands before the server.
    """
    url = database.server.url(database.name, SERVICE)
    with ExitStack() as stack:
        yield lambda: stack.enter_context(closing(Caller(url)))


@pytest.fixture
def app(database: Database) -> Iterator[Caller]:
    """A caller as the application, on the way that services take."""
    with closing(Caller(database.url)) as caller:
        yield caller


@pytest.fixture
def admin(database: Database) -> Iterator[Caller]:
    """The superuser, who sees the tables behind the views."""
    with closing(Caller(database.admin_url)) as caller:
        yield caller


@pytest.fixture
def clock(clock: Clock) -> Clock:
    """The clock of the test's database, standing still until the test moves it."""
    clock.freeze(NOON)
    return clock
