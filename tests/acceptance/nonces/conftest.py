"""A chain for every test, at its beginning; and the clock of the database."""

from collections.abc import Iterator

import pytest

from fencepost.embedded import Database
from fencepost.testing import Clock
from tests.acceptance.nonces.anvil import Anvil, running_anvil


@pytest.fixture(scope="session")
def chain() -> Iterator[Anvil]:
    with running_anvil() as anvil:
        yield anvil


@pytest.fixture
def anvil(chain: Anvil) -> Anvil:
    chain.rpc("anvil_reset")
    return chain


@pytest.fixture
def clock(database: Database) -> Iterator[Clock]:
    with Clock(database.admin_url) as clock:
        yield clock
