"""A stage without a run: what is judged is what lies there."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.embedded import Database
from fencepost.testing import Clock, Proxy
from fencepost.torture.stage import Stage


@pytest.fixture
def stage(database: Database, clock: Clock, tmp_path: Path) -> Iterator[Stage]:
    # Nobody comes by the wires.
    with Proxy.for_postgres(database.url) as wire:
        chance = random.Random(1)  # noqa: S311 - Repeatable, no secret.
        stage = Stage("bulk", database, wire, wire, clock, tmp_path, chance, redis_address="nowhere")
        yield stage
        stage.close()
