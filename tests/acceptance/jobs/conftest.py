"""Stages on the shared pair."""

import pytest

from fencepost.embedded import Database
from tests.acceptance.jobs.stage import Stage


@pytest.fixture
def stage(database: Database, redis_url: str) -> Stage:
    stage = Stage(database, redis_url)
    stage.set_up()
    return stage
