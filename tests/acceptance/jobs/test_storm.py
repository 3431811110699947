"""Everything at once: several workers, kill -9, SIGSTOP, crash points, PostgreSQL restarts, Redis wipes."""

import json
import sys
from contextlib import closing

import pytest

from fencepost.embedded import Database, PostgresServer, ValkeyServer
from fencepost.kernel.migrate import migrate
from tests.acceptance.jobs.env import JobsEnv
from tests.acceptance.jobs.storm import Storm
from tests.acceptance.jobs.test_crash_points import POINTS
from tests.tmp_dirs import server_directory

LEASE_SECONDS = 2.0


def through_a_storm(jobs: int, faults: int, workers: int, seed: int, *, durable: bool) -> None:
    settings: dict[str, str | int] = {"max_connections": 300} | ({} if durable else {"fsync": "off"})
    with (
        PostgresServer(server_directory(), settings=settings, ephemeral=True) as postgres,
        ValkeyServer(server_directory(), ephemeral=True) as valkey,
    ):
        database = Database(postgres, "storm")
        database.create()
        migrate(database.admin_url)
        database.create_logins()
        with closing(JobsEnv(database, valkey.url, LEASE_SECONDS)) as env:
            env.set_up()
            storm = Storm(env, postgres, valkey, POINTS, jobs, workers, faults, seed)
            storm.rage()
            env.check()
            figures = storm.figures()
        sys.stdout.write(json.dumps(figures, indent=2) + "\n")
        assert figures["finishing_writes"] == jobs
        assert sum(storm.count.values()) >= faults


def test_a_storm_loses_and_doubles_nothing() -> None:
    through_a_storm(jobs=800, faults=10, workers=3, seed=7, durable=False)


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [11])
def test_a_long_storm_loses_and_doubles_nothing(seed: int) -> None:
    through_a_storm(jobs=20_000, faults=120, workers=5, seed=seed, durable=True)
