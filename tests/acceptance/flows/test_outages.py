"""Servers that are restarted and wiped under three workers, and workers that come and go."""

import os
import signal
import uuid
from collections.abc import Generator
from pathlib import Path

import pytest

from fencepost.embedded import Database, PostgresServer, ValkeyServer
from fencepost.kernel.migrate import migrate
from tests.acceptance.flows.env import FlowsEnv
from tests.acceptance.flows.worker_processes import SINKS
from tests.tmp_dirs import server_directory

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]
ROUNDS = 3


@pytest.fixture
def own_valkey() -> Generator[ValkeyServer]:
    with ValkeyServer(server_directory(), ephemeral=True, append_only=True) as server:
        yield server


@pytest.fixture
def own_env(own_valkey: ValkeyServer, tmp_path: Path) -> Generator[FlowsEnv]:
    settings: dict[str, str | int] = {"fsync": "off", "max_prepared_transactions": 20}
    with PostgresServer(server_directory(), settings=settings, ephemeral=True) as server:
        database = Database(server, f"t_{uuid.uuid4().hex}")
        database.create()
        migrate(database.admin_url)
        database.create_logins()
        env = FlowsEnv(database, own_valkey.url, tmp_path)
        env.set_up()
        yield env
        env.close()


@pytest.mark.parametrize("sink", ["rows", "prepared", "files", "redis"])
def test_postgresql_is_killed_and_started_again(own_env: FlowsEnv, sink: str) -> None:
    own_env.play(sink, groups=3)
    for _ in range(3):
        own_env.worker()
    for _ in range(ROUNDS):
        own_env.arrive(100)
        own_env.database.server.kill()
        own_env.database.server.start()
    own_env.arrive(100)

    own_env.settle()


@pytest.mark.parametrize("sink", ["rows", "prepared", "files"])
def test_redis_loses_all_that_is_not_the_source(own_env: FlowsEnv, sink: str) -> None:
    own_env.play(sink, source="stream", groups=3)
    for _ in range(3):
        own_env.worker()
    for _ in range(ROUNDS):
        own_env.arrive(100)
        own_env.lose_all_but_the_source()
    own_env.arrive(100)

    own_env.settle()


IN_REDIS = [sink for sink in SINKS if sink.startswith("redis")]


@pytest.mark.parametrize("sink", IN_REDIS)
@pytest.mark.parametrize("groups", [None, 3])
def test_a_sink_in_redis_that_loses_everything_gets_everything_again(
    own_env: FlowsEnv, sink: str, groups: int | None
) -> None:
    source = "group" if sink == "redis-acknowledging" else "stream"
    own_env.play(sink, source=source, groups=groups)
    for _ in range(3 if groups else 1):
        own_env.worker()
    for _ in range(ROUNDS):
        own_env.arrive(100)
        own_env.settle()
        own_env.lose_all_but_the_source()
    own_env.arrive(100)

    own_env.settle()


def test_redis_is_wiped_whole_when_the_source_is_elsewhere(
    own_env: FlowsEnv, own_valkey: ValkeyServer
) -> None:
    own_env.play("rows", groups=3)
    for _ in range(3):
        own_env.worker()
    for _ in range(ROUNDS):
        own_env.arrive(100)
        own_valkey.wipe()
    own_env.arrive(100)

    own_env.settle()


@pytest.mark.parametrize("sink", ["rows", "redis", "redis-stream"])
def test_redis_is_killed_and_started_again(own_env: FlowsEnv, own_valkey: ValkeyServer, sink: str) -> None:
    own_env.play(sink, source="stream", groups=3)
    for _ in range(3):
        own_env.worker()
    for _ in range(ROUNDS):
        own_env.arrive(100)
        own_valkey.kill()
        own_valkey.start()
    own_env.arrive(100)

    own_env.settle()


@pytest.mark.parametrize("sink", ["rows", "prepared", "files", "redis"])
def test_workers_come_and_go_in_the_middle(env: FlowsEnv, sink: str) -> None:
    env.play(sink, groups=6)
    first = env.worker()
    env.arrive(200)
    more = [env.worker() for _ in range(2)]
    env.arrive(200)
    os.kill(first.pid, signal.SIGTERM)
    env.arrive(200)
    os.kill(more[0].pid, signal.SIGTERM)
    env.arrive(200)

    env.settle()
