"""A console of the test's own."""

from collections.abc import Iterator

import pytest

from fencepost.embedded import Database
from tests.integration.console.stage import Stage, console


@pytest.fixture
def stage(database: Database) -> Iterator[Stage]:
    with console(database) as stage:
        yield stage
