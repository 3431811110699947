"""A login that may only write rows prepares them, where its table of markers is there."""

from typing import LiteralString

from fencepost.flows import Flow, IterableSource
from fencepost.flows.sinks.prepared import PreparedRows
from tests.integration.flows.scene import Scene

MARKERS: LiteralString = """
    create table fencepost_prepared (gid text primary key, at timestamptz default now());
    grant select, insert, delete on fencepost_prepared to fencepost_app;
"""


async def test_a_login_that_may_not_make_tables_prepares_rows(scene: Scene) -> None:
    with scene.database.connect_admin() as admin:
        admin.execute(MARKERS)
    rows = PreparedRows(scene.database.url, "line", ["value"])

    await scene.run(Flow("rights").source(IterableSource([1, 2, 3])).sink(rows))

    assert scene.rows("select value from line order by value") == [(1,), (2,), (3,)]
