"""Stages on the shared pair."""

from collections.abc import Generator
from pathlib import Path

import pytest

from fencepost.embedded import Database
from tests.acceptance.flows.env import FlowsEnv


@pytest.fixture
def env(database: Database, redis_url: str, tmp_path: Path) -> Generator[FlowsEnv]:
    env = FlowsEnv(database, redis_url, tmp_path)
    env.set_up()
    yield env
    env.close()
