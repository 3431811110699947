"""A database as after a year of work: a million jobs, refusals, audit entries, orders, leases."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from fencepost.embedded import Database

STATEMENTS = [
    Path(__file__).parent / "fixture_data" / name
    for name in ("console.sql", "console_workflows.sql", "console_lists.sql")
]


@dataclass(frozen=True, slots=True)
class FixtureData:
    """The number of rows of each kind."""

    jobs: int
    orders: int
    leases: int
    workflows: int


def fill(database: Database, stock: FixtureData) -> None:
    """Fill it as the superuser: no other role may write the tables."""
    with database.connect_admin() as connection:
        for name, count in asdict(stock).items():
            connection.execute("select set_config(%s, %s, false)", (f"bench.{name}", str(count)))
        for statements in STATEMENTS:
            connection.execute(statements.read_bytes())
        connection.execute("vacuum analyze")
