"""Stages on the shared pair."""

from collections.abc import Generator
from pathlib import Path

import pytest

from fencepost.embedded import Database
from tests.acceptance.flows.env import FlowsEnv


@pytest.fixture
def stage(database: Database, redis_url: str, tmp_path: Path) -> Generator[FlowsEnv]:
    stage = FlowsEnv(database, redis_url, tmp_path)
    stage.set_up()
    yield stage
    stage.close()
