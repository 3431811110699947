"""Stages on the shared pair."""

from collections.abc import Generator
from pathlib import Path
from typing import LiteralString

import pytest

from fencepost.embedded import Database
from tests.acceptance.flows import kafka_model
from tests.acceptance.flows.env import SCHEMA, FlowsEnv


@pytest.fixture(scope="session")
def user_tables() -> LiteralString:
    return SCHEMA + kafka_model.SCHEMA


@pytest.fixture
def env(database: Database, redis_url: str, tmp_path: Path) -> Generator[FlowsEnv]:
    env = FlowsEnv(database, redis_url, tmp_path)
    env.set_up()
    yield env
    env.close()
