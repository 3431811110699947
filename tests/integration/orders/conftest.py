"""A market with one broker, and the database's clock."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime

import pytest

from fencepost.embedded import Database
from fencepost.testing import Clock
from tests.integration.orders.env import OrdersEnv

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def clock(clock: Clock) -> Clock:
    """Standing still until the test moves it."""
    clock.freeze(NOON)
    return clock


@pytest.fixture
def connect(database: Database) -> Iterator[Callable[[], OrdersEnv]]:
    """Another one at the market, for tests in which two meet."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(closing(OrdersEnv(database.url)))


@pytest.fixture
def market(clock: Clock, connect: Callable[[], OrdersEnv]) -> OrdersEnv:
    """The application's own connection; the broker bears everything."""
    market = connect()
    market.declare(rate_per_second=1e6, burst=1e6)
    return market
