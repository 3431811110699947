"""A service of one's own, as the how-to describes it: installed as a plugin, migrated, used."""

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from fencepost.embedded import Database

EXAMPLE = Path(__file__).parents[3] / "examples" / "coupons"
ENTRY_POINTS = "[fencepost.plugins]\ncoupons = coupons.plugin:PLUGIN\n"


class Installed:
    """The example beside Fencepost, as an installer leaves it: on the path, with its entry points."""

    def __init__(self, folder: Path, database: Database) -> None:
        described = folder / "coupons-0.1.0.dist-info"
        described.mkdir()
        (described / "METADATA").write_text("Metadata-Version: 2.1\nName: coupons\nVersion: 0.1.0\n")
        (described / "entry_points.txt").write_text(ENTRY_POINTS)
        self._environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(EXAMPLE / "src"), str(folder)]),
            "DATABASE_URL": database.url,
            "MIGRATION_DATABASE_URL": database.admin_url,
            "LOG_LEVEL": "error",
        }

    def fencepost(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "fencepost.cli._main", *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )


@pytest.fixture
def installed(tmp_path: Path, database: Database) -> Installed:
    return Installed(tmp_path, database)


def test_a_plugin_brings_tables_functions_and_commands(installed: Installed, database: Database) -> None:
    migrated = installed.fencepost("migrate", "--only", "coupons")
    assert (migrated.returncode, "coupons/0001_coupon" in migrated.stdout) == (0, True), migrated.stderr

    assert installed.fencepost("coupons", "issue", "SPRING").stdout == "Issued SPRING.\n"
    first = installed.fencepost("coupons", "redeem", "SPRING", "ann")
    second = installed.fencepost("coupons", "redeem", "SPRING", "bob")

    assert (first.returncode, first.stdout[:20]) == (0, "ann redeemed SPRING "), first.stderr
    assert (second.returncode, "already_finished" in second.stderr) == (1, True), second.stderr
    with psycopg.connect(database.admin_url) as connection:
        assert connection.execute("select redeemed_by from fencepost.coupon").fetchall() == [("ann",)]


def test_the_service_cannot_write_its_table_past_its_functions(
    installed: Installed, database: Database
) -> None:
    assert installed.fencepost("migrate", "--only", "coupons").returncode == 0
    with psycopg.connect(database.url) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("insert into fencepost.coupon (code) values ('FREE')")


def test_doctor_lists_it_and_an_unknown_component_is_named(installed: Installed) -> None:
    found = installed.fencepost("doctor")
    assert "coupons, each redeemed once" in found.stdout

    unknown = installed.fencepost("migrate", "--only", "coupon")
    assert unknown.returncode != 0
    assert "Unknown component 'coupon'" in unknown.stderr
