"""The page about several clusters does what it says, with two servers of their own."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import psycopg

from fencepost.embedded import Database, PostgresServer
from fencepost.kernel.migrate import migrate
from tests.integration.client.page import PageRun
from tests.tmp_dirs import server_directory

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "several-clusters.md"


def test_each_tenant_is_served_by_its_own_cluster(database: Database, tmp_path: Path) -> None:
    with PostgresServer(server_directory(), settings={"fsync": "off"}, ephemeral=True) as server:
        west = Database(server, "west")
        west.create()
        migrate(west.admin_url)
        west.create_logins()
        environment = os.environ | {
            "LOG_LEVEL": "error",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }

        addresses = {
            "$(cd east-cluster && fencepost url)": database.url,
            "$(cd west-cluster && fencepost url)": west.url,
            "$(cd east-cluster && fencepost url owner)": database.admin_url,
            "$(cd west-cluster && fencepost url owner)": west.admin_url,
        }
        instead = {printed: shlex.quote(address) for printed, address in addresses.items()}

        assert PageRun(tmp_path, environment, database.connect_admin, instead=instead).run(PAGE) == 3

        for cluster, tenant in ((database, "ann"), (west, "bob")):
            with psycopg.connect(cluster.admin_url) as connection:
                assert connection.execute("select tenant from receipt").fetchall() == [(tenant,)]
