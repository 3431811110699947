"""The page about several clusters does what it says, with two servers of their own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psycopg

from fencepost.embedded import Database, PostgresServer
from fencepost.kernel.migrate import migrate
from tests.integration.client.page import PageRun
from tests.tmp_dirs import server_directory

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "several-clusters.md"
TABLE = "create table receipt (tenant text, amount int); grant select, insert on receipt to fencepost_app"


def test_each_tenant_is_served_by_its_own_cluster(database: Database, tmp_path: Path) -> None:
    with PostgresServer(server_directory(), settings={"fsync": "off"}, ephemeral=True) as server:
        west = Database(server, "west")
        west.create()
        migrate(west.admin_url)
        west.create_logins()
        for cluster in (database, west):
            with cluster.connect_admin() as admin:
                admin.execute(TABLE)
        environment = os.environ | {
            "EAST_URL": database.url,
            "WEST_URL": west.url,
            "LOG_LEVEL": "error",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }

        assert PageRun(tmp_path, environment, database.connect_admin).run(PAGE) == 1

        for cluster, tenant in ((database, "ann"), (west, "bob")):
            with psycopg.connect(cluster.admin_url) as connection:
                assert connection.execute("select tenant from receipt").fetchall() == [(tenant,)]
