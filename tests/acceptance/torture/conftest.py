"""A stage without a run: what is judged is what lies there."""

import random
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from fencepost.embedded import Database
from fencepost.embedded._valkey import ValkeyServer
from fencepost.testing import Clock, Proxy
from fencepost_torture._system_environment import SystemEnvironment


@pytest.fixture
def env(
    database: Database, valkey: ValkeyServer, clock: Clock, tmp_path: Path
) -> Iterator[SystemEnvironment]:
    with open_environment(database, valkey, clock, tmp_path) as env:
        yield env


@contextmanager
def open_environment(
    database: Database, valkey: ValkeyServer, clock: Clock, directory: Path
) -> Generator[SystemEnvironment]:
    valkey.flush()
    with ExitStack() as stack:
        postgres = stack.enter_context(Proxy.for_postgres(database.url))
        redis = stack.enter_context(Proxy.for_redis(valkey.url))
        chance = random.Random(1)  # noqa: S311 - Repeatable, no secret.
        env = SystemEnvironment(
            "alone", database, postgres, redis, clock, directory, chance, redis_address=valkey.url
        )
        stack.callback(env.close)
        yield env
