"""A pipeline of a service that is not ours."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost import Fencepost
from fencepost.embedded import Database
from fencepost_players.mutations.metrics import MutationMetrics
from fencepost_players.mutations.pipeline import Pipeline
from fencepost_players.mutations.settings import MutationSettings
from tests.integration.mutations.counter import Addition, CounterStore

SCHEMA = (Path(__file__).parent / "counter.sql").read_text()


@pytest.fixture
async def fp(database: Database) -> AsyncIterator[Fencepost]:
    with database.connect_admin() as admin:
        admin.execute("set role fencepost_owner")
        admin.execute(SCHEMA.encode())
    async with Fencepost(database.url) as fp:
        yield fp


@pytest.fixture
def counters(fp: Fencepost) -> Pipeline[str, Addition]:
    return Pipeline(fp, CounterStore(), MutationSettings(), MutationMetrics.on(fp.metrics))
