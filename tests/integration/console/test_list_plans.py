"""No page reads a large table from end to end: in any order, with any filter and search, at any depth."""

from __future__ import annotations

from bench.console import PAGE_BYTES_MAX, pages
from bench.console_fixture_data import FixtureData, fill
from fencepost.embedded import Database
from fencepost_server.console._role import Role
from fencepost_server.console._settings import ConsoleSettings
from tests.integration.console.env import console

STOCK = FixtureData(jobs=12_000, orders=6_000, leases=4_000, workflows=12_000)
LARGE = 8_000
"""A table with as many rows is large: of a smaller one PostgreSQL may rightly read all."""
SCANS = """
    select s.relname, s.seq_scan from pg_stat_user_tables s join pg_class c on c.oid = s.relid
    where s.schemaname = 'fencepost' and c.reltuples >= %s and s.seq_scan > 0
"""


def scanned(database: Database) -> dict[str, int]:
    """The large tables that were read from end to end, and how often."""
    with database.connect_admin() as connection:
        return dict(connection.execute(SCANS, (LARGE,)).fetchall())


def test_no_page_reads_a_large_table_from_end_to_end(database: Database) -> None:
    fill(database, STOCK)
    # The counters are not reset: by them the database is cleaned for the next test.
    before = scanned(database)
    settings = ConsoleSettings(look_seconds=60, scan_max=1000)
    with console(database, settings) as env, env.program(Role.ADMIN) as client:
        for path in pages(STOCK):
            answer = client.get(f"/console{path}")
            assert answer.status_code == 200, (path, answer.text[-300:])
            assert len(answer.content) <= PAGE_BYTES_MAX, (path, len(answer.content))
    # The connections are closed: what they counted is there.
    assert scanned(database) == before
