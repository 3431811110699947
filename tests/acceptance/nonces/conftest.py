"""A chain for every test, at its beginning; and the clock of the database."""

from collections.abc import Iterator

import pytest

from tests.acceptance.nonces.anvil import Anvil, running_anvil


@pytest.fixture(scope="session")
def chain() -> Iterator[Anvil]:
    with running_anvil() as anvil:
        yield anvil


@pytest.fixture
def anvil(chain: Anvil) -> Anvil:
    chain.rpc("anvil_reset")
    return chain
