"""Stages on the shared pair."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from fencepost.embedded import Database
from tests.acceptance.jobs.env import JobsEnv


@pytest.fixture
def env(database: Database, redis_url: str) -> Iterator[JobsEnv]:
    with closing(JobsEnv(database, redis_url)) as env:
        env.set_up()
        yield env
