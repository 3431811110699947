"""A console of the test's own, and the clock of its database."""

from collections.abc import Iterator

import pytest

from fencepost.embedded import Database
from tests.integration.console.env import ConsoleEnv, console
from tests.integration.kernel.conftest import clock

__all__ = ["clock", "env"]


@pytest.fixture
def env(database: Database) -> Iterator[ConsoleEnv]:
    with console(database) as env:
        yield env
