"""A login that may only write rows prepares them, where its bookkeeping table exists."""

from typing import LiteralString

from fencepost.flows import Flow, IterableSource
from fencepost.flows.sinks.two_phase_postgres import TwoPhasePostgres
from tests.integration.flows.harness import FlowHarness

PREPARED: LiteralString = """
    create table fencepost_prepared (gid text primary key, at timestamptz default now());
    grant select, insert, delete on fencepost_prepared to fencepost_app;
"""


async def test_a_login_that_may_not_make_tables_prepares_rows(harness: FlowHarness) -> None:
    with harness.database.connect_admin() as admin:
        admin.execute(PREPARED)
    rows = TwoPhasePostgres(harness.database.url, "line", ["value"])

    await harness.run(Flow("rights").source(IterableSource([1, 2, 3])).sink(rows))

    assert harness.rows("select value from line order by value") == [(1,), (2,), (3,)]
