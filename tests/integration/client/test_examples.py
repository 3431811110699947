"""Every example runs, does what it says, and is short enough to be read."""

import importlib
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from fencepost import Fencepost
from fencepost.embedded import Database
from fencepost.kernel import lease
from fencepost.testing import Proxy
from tests.reused_databases import ReusedDatabases

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
LINES_MAX = 60


@pytest.fixture(scope="module")
def reused_databases(
    template_database: Database, registrar: psycopg.Connection[Any]
) -> Iterator[ReusedDatabases]:
    """With the tables of the examples. They are made once, as a reader does: each test has a copy."""
    furnished = Database(template_database.server, f"examples_{uuid.uuid4().hex}")
    furnished.create(template=template_database.name)
    Example(furnished).run("tables.py")
    with closing(ReusedDatabases(furnished, registrar)) as databases:
        yield databases
    furnished.drop()


@pytest.fixture
def example(database: Database) -> "Example":
    return Example(database)


class Example:
    """Runs an example as a reader does, against the test's database."""

    def __init__(self, database: Database) -> None:
        self._environment = os.environ | {
            "DATABASE_URL": database.url,
            "MIGRATION_DATABASE_URL": database.admin_url,
            "LOG_LEVEL": "error",
        }

    def run(self, name: str, *arguments: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-W", "error", EXAMPLES / name, *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


def swords(database: Database) -> int:
    with database.connect() as connection:
        row = connection.execute("select count(*) from inventory").fetchone()
    assert row is not None
    return int(row[0])


def test_a_grant_that_is_sent_twice_happens_once(example: Example, database: Database) -> None:
    first = example.run("grant_once.py", "7", "request-1")
    second = example.run("grant_once.py", "7", "request-1")

    assert first == ["{'player': 7, 'granted': 'sword', 'repeated': False}"]
    assert second == ["{'player': 7, 'granted': 'sword', 'repeated': True}"]
    assert swords(database) == 1


async def test_a_grant_whose_reply_was_lost_happens_once(example: Example, database: Database) -> None:
    sys.path.insert(0, str(EXAMPLES))
    try:
        grant = importlib.import_module("grant_once").grant
    finally:
        sys.path.remove(str(EXAMPLES))

    with Proxy.for_postgres(database.url) as proxy:
        async with Fencepost(proxy.url) as fp:
            drop_rule = proxy.lose_commit_reply()
            answer = await grant(fp, 7, "request-1", "sword")
            assert drop_rule.fired.is_set()

    assert answer == {"player": 7, "granted": "sword", "repeated": True}
    assert swords(database) == 1


def test_a_nightly_report_is_made_once_a_day(example: Example, database: Database) -> None:
    example.run("grant_once.py", "7", "request-1")

    assert example.run("nightly_report.py", "2030-01-01") == ["2030-01-01: 1 lines, now."]
    assert example.run("nightly_report.py", "2030-01-01") == ["2030-01-01: 1 lines, before."]
    assert example.run("nightly_report.py", "2030-01-02") == ["2030-01-02: 1 lines, now."]


async def test_a_nightly_report_leaves_the_work_to_its_holder(example: Example, database: Database) -> None:
    async with Fencepost(database.url) as fp:
        await fp.run(lease.acquire("nightly-report", "another machine", 60))

    assert example.run("nightly_report.py", "2030-01-01") == ["another machine is at it."]


def test_letters_go_out_for_what_was_bought(example: Example, database: Database) -> None:
    letters = example.run("outbox_relay.py", "ann", "5", "ben", "7", "ann", "9")

    assert [line.partition(" to ")[2] for line in letters if "ann" in line] == [
        "ann: 5 euros",
        "ann: 9 euros",
    ]
    assert len(letters) == 3
    with database.connect() as connection:
        states = connection.execute("select distinct state from fencepost.outbox_messages").fetchall()
    assert states == [("sent",)]


def test_a_django_view_takes_effect_once(example: Example, database: Database) -> None:
    first, second = example.run("django_view.py")

    assert first == "201 {'player': 7, 'granted': 'sword'}"
    assert second == "200 {'player': 7, 'granted': 'sword'}"
    assert swords(database) == 1


def test_a_session_submits_a_job_with_its_rows(example: Example, admin: psycopg.Connection) -> None:
    assert example.run("sqlalchemy_session.py") == [
        "job 1",
        "nothing: A purchase is not negative.",
        "1 purchase, 1 job",
    ]


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.py")), ids=lambda file: file.stem)
def test_an_example_is_short(file: Path) -> None:
    assert len(file.read_text(encoding="utf-8").splitlines()) <= LINES_MAX


def test_files_of_orders_are_imported_once(example: Example, database: Database, tmp_path: Path) -> None:
    (tmp_path / "monday.csv").write_text("customer,euros\nann,3\nbob,4\n")
    assert example.run("import_orders.py", str(tmp_path)) == ["2 orders, 7 euros"]
    assert example.run("import_orders.py", str(tmp_path)) == ["2 orders, 7 euros"]
    (tmp_path / "tuesday.csv").write_text('customer,euros\n"cid, the last",5\n')
    assert example.run("import_orders.py", str(tmp_path)) == ["3 orders, 12 euros"]

    with database.connect_admin() as connection:
        [[receipts]] = connection.execute("select count(*) from fencepost.job").fetchall()
    assert receipts == 3
