"""Stages on the shared pair."""

from collections.abc import Iterator
from contextlib import closing
from typing import LiteralString

import pytest

from fencepost.embedded import Database
from tests.acceptance.jobs.env import SCHEMA, JobsEnv


@pytest.fixture(scope="session")
def user_tables() -> LiteralString:
    return SCHEMA


@pytest.fixture
def env(database: Database, redis_url: str) -> Iterator[JobsEnv]:
    with closing(JobsEnv(database, redis_url)) as env:
        env.set_up()
        yield env
