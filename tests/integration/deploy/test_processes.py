"""Every command of compose, run with its own arguments and variables on real servers: it becomes healthy by
the check that compose has for it, answers the chart's probes, and ends when it is told to."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from fencepost.cli._servers import _psql_program  # pyright: ignore[reportPrivateUsage]
from fencepost.cli.exit_codes import ExitCode
from fencepost.embedded import Database
from tests.deployment import DEPLOY, compose_services, ours
from tests.integration.deploy.deployed import ENDS_WITHIN_SECONDS, MAIN, TOKEN, Deployed
from tests.waiting_for import until

SERVICES = compose_services(HTTP_TOKEN=TOKEN)
PROCESSES = [name for name in ours(SERVICES) if name != "migrate"]


@pytest.mark.parametrize("name", PROCESSES)
async def test_a_process_becomes_healthy_and_ends_when_it_is_told(
    name: str, tmp_path: Path, database: Database, redis_url: str
) -> None:
    environment = {key: str(value) for key, value in SERVICES[name]["environment"].items()}
    deployed = Deployed(SERVICES[name]["command"], environment, tmp_path, database, redis_url)
    with deployed.running() as process:

        def is_healthy() -> bool:
            assert process.poll() is None, deployed.log()
            return deployed.is_healthy(SERVICES[name]["healthcheck"]["test"])

        await until(f"{name} is healthy", is_healthy)
        for path in ("/healthz", "/readyz"):
            assert deployed.ask(path).status_code == httpx.codes.OK, "a probe has no token"
        has_token = "HTTP_TOKEN" in SERVICES[name]["environment"]
        bare = deployed.ask("/metrics").status_code
        assert bare == (httpx.codes.UNAUTHORIZED if has_token else httpx.codes.OK)
        metrics = deployed.ask("/metrics", Authorization=f"Bearer {TOKEN}").text
        assert "fencepost_database_reachable 1.0" in metrics
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        assert process.wait(ENDS_WITHIN_SECONDS) == ExitCode.OK, deployed.log()
        assert time.monotonic() - began < grace_seconds(SERVICES[name])
        assert "Traceback" not in deployed.log()


def grace_seconds(service: dict[str, Any]) -> float:
    """Docker's own is ten seconds."""
    return {"1m": 60.0, "30s": 30.0}[service["stop_grace_period"]] if "stop_grace_period" in service else 10.0


def test_the_migration_runs_as_the_owner(tmp_path: Path, database: Database) -> None:
    service = SERVICES["migrate"]
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *service["command"]],
        cwd=tmp_path,
        env={**os.environ, "DATABASE_URL": database.url, "MIGRATION_DATABASE_URL": database.admin_url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == ExitCode.OK, done.stderr


def test_the_logins_have_the_rights_of_their_groups_and_no_others(database: Database, tmp_path: Path) -> None:
    """As compose calls psql, with other names for the logins: all tests of this machine share the server."""
    mine = f"mine_{database.name}".replace("-", "_")[:40]
    text = (DEPLOY / "compose" / "logins.sql").read_text()
    script = tmp_path / "logins.sql"
    script.write_text(re.sub(r"fencepost_(service|viewer)", rf"{mine}_\1", text))
    command: list[str] = [
        word.replace("/logins.sql", str(script)) if "--file" in word else word
        for word in SERVICES["logins"]["command"]
        if "--dbname" not in word
    ]
    psql = _psql_program()
    try:
        for _ in range(2):  # It may run any number of times.
            subprocess.run(
                [psql, *command[1:], f"--dbname={database.admin_url}"], check=True, capture_output=True
            )
        with database.connect_admin() as connection:
            found = connection.execute(
                """select m.rolname, g.rolname from pg_auth_members a join pg_roles m on m.oid = a.member
                   join pg_roles g on g.oid = a.roleid where m.rolname like %s order by 1""",
                (f"{mine}%",),
            ).fetchall()
        assert found == [(f"{mine}_service", "fencepost_app"), (f"{mine}_viewer", "fencepost_read")]
    finally:
        with psycopg.connect(database.admin_url, autocommit=True) as connection:
            for one in ("service", "viewer"):
                connection.execute(f"drop role if exists {mine}_{one}".encode())
