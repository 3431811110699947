"""Databases full of rows, whose statistics are fresh, missing or stale.

They have a server of their own: autovacuum must not come and mend what a test has left out.
"""

import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from fencepost.embedded import Database, PostgresServer
from fencepost.kernel.migrate import migrate
from tests.integration.plans.hot_calls import HOT_CALLS
from tests.integration.plans.observation import Observer, observer
from tests.tmp_dirs import server_directory

# Rows in each table that grows: few, and many. What a call costs must not depend on which.
FEW = 1_000
MANY = 100_000
MILLION = 1_000_000
STEPS = 10
"""Of a workflow. Among many rows it has one: they would be most of what the quick form waits for."""

# What a connection has seen when it makes its plans, and what it works on later. The server tries this many
# plans for the arguments at hand before it keeps one for all of them.
HANDFUL = 60
GROWN = 20_000
CUSTOM_PLANS = 5

BIG_TABLES = frozenset(
    {"checkpoint", "event", "idempotency_key", "lease", "outbox", "outbox_settled", "refusal"}
    | {"job", "job_finished", "job_label", "job_running", "job_unique", "job_waiting"}
    | {"job_batch", "job_batch_member", "job_batch_part", "job_bucket", "job_tick"}
    | {"workflow_event", "workflow_result", "workflow_step", "workflow_undo", "workflow_wait"}
    | {f"idempotency_ring_{slot}" for slot in range(8)}
)
DISK = "/var/tmp"  # noqa: S108 - Only a name of our own making is used in it.
"""Where `/tmp` is in memory too, this is not."""
POPULATION = ("population_jobs.sql", "population.sql", "population_workflows.sql")
WORKFLOWS_ALONE = ("population_jobs.sql", "population_workflows.sql")

SETTINGS: dict[str, str | int] = {
    "autovacuum": "off",
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "shared_buffers": "256MB",
    "max_wal_size": "8GB",
    "wal_level": "minimal",
    "max_wal_senders": 0,
    "log_checkpoints": "off",
}


@dataclass(frozen=True)
class PlanDatabase:
    """A database with this many rows in each table that grows."""

    database: Database
    size: int


@dataclass(frozen=True)
class PlanDatabases:
    """Two houses that differ in nothing but their size."""

    small: PlanDatabase
    crowded: PlanDatabase


@dataclass(frozen=True)
class AgedDatabase:
    """A connection with old plans, and the system as it is now."""

    observer: Observer
    plan_database: PlanDatabase


@pytest.fixture(scope="session")
def plan_server() -> Iterator[PostgresServer]:
    directory = server_directory()
    with PostgresServer(directory, settings=SETTINGS, ephemeral=True) as server:
        yield server


@pytest.fixture(scope="session")
def empty_plan_database(plan_server: PostgresServer) -> PlanDatabase:
    """A migrated database without rows, to copy."""
    database = Database(plan_server, "empty")
    database.create()
    migrate(database.admin_url)
    return PlanDatabase(database, 0)


@pytest.fixture(scope="session")
def small_plan_database(empty_plan_database: PlanDatabase) -> PlanDatabase:
    return _furnish(_copy(empty_plan_database, "small"), FEW)


@pytest.fixture(scope="session")
def crowded_plan_database(empty_plan_database: PlanDatabase) -> PlanDatabase:
    return _furnish(_copy(empty_plan_database, "crowded"), MANY)


@pytest.fixture(scope="session")
def million_plan_database() -> Iterator[PlanDatabase]:
    """On a server of its own, on the disk: tens of gigabytes would be most of a machine's memory."""
    directory = Path(tempfile.mkdtemp(prefix="fencepost-test-", dir=DISK))
    with PostgresServer(directory, settings=SETTINGS, ephemeral=True) as server:
        database = Database(server, "million")
        database.create()
        migrate(database.admin_url)
        yield _furnish(PlanDatabase(database, 0), MILLION)


@pytest.fixture(scope="session")
def million_workflows() -> Iterator[PlanDatabase]:
    """A million workflows that wait and a million that run, of ten steps each; other tables are empty."""
    directory = Path(tempfile.mkdtemp(prefix="fencepost-test-", dir=DISK))
    with PostgresServer(directory, settings=SETTINGS, ephemeral=True) as server:
        database = Database(server, "workflows")
        database.create()
        migrate(database.admin_url)
        with database.connect_admin() as connection:
            _populate(connection, MILLION, WORKFLOWS_ALONE)
        yield PlanDatabase(database, MILLION)


@pytest.fixture(scope="session")
def few_workflows(small_plan_database: PlanDatabase) -> Iterator[PlanDatabase]:
    """What a million of them are compared with."""
    plan_database = _copy(small_plan_database, "few_workflows")
    yield plan_database
    plan_database.database.drop()


def _leave_missing(database: Database) -> None:
    """These tables have no statistics yet."""


def _analyse(database: Database) -> None:
    with database.connect_admin() as connection:
        connection.execute("analyze")


def _pretend_empty(database: Database) -> None:
    """What ANALYZE notes of a table without rows, which is when it last came by here."""
    with database.connect_admin() as connection:
        connection.execute(
            "update pg_class set reltuples = 0, relpages = 0, relallvisible = 0 "
            "where relnamespace = 'fencepost'::regnamespace and relkind in ('r', 'i')"
        )


STATISTICS: dict[str, Callable[[Database], None]] = {
    "fresh": _analyse,
    "missing": _leave_missing,
    "stale": _pretend_empty,
}


# A veteran's plans are made on statistics that are stale, so the quick form leaves these out.
@pytest.fixture(scope="session", params=["fresh", "missing"])
def street(
    request: pytest.FixtureRequest, small_plan_database: PlanDatabase, crowded_plan_database: PlanDatabase
) -> Iterator[PlanDatabases]:
    """A small system and a crowded one, with statistics of one kind."""
    with _open(small_plan_database, crowded_plan_database, request.param) as street:
        yield street


@pytest.fixture(scope="session", params=STATISTICS)
def long_street(
    request: pytest.FixtureRequest, small_plan_database: PlanDatabase, million_plan_database: PlanDatabase
) -> Iterator[PlanDatabases]:
    """The same with a million rows in each table: a million workflows of ten steps each among them."""
    with _open(small_plan_database, million_plan_database, request.param) as street:
        yield street


@pytest.fixture
def scratch_plan_database(small_plan_database: PlanDatabase) -> Iterator[PlanDatabase]:
    """A small system to plant a bug in."""
    plan_database = _copy(small_plan_database, "scratch")
    yield plan_database
    plan_database.database.drop()


@contextmanager
def _open(small: PlanDatabase, crowded: PlanDatabase, statistics: str) -> Generator[PlanDatabases]:
    street = PlanDatabases(
        *(
            # Two fixtures copy the small one, and both may be open.
            _copy(plan_database, f"{plan_database.database.name}_{statistics}_{crowded.database.name}")
            for plan_database in (small, crowded)
        )
    )
    for plan_database in (street.small, street.crowded):
        STATISTICS[statistics](plan_database.database)
    yield street
    for plan_database in (street.small, street.crowded):
        plan_database.database.drop()


@pytest.fixture(scope="session")
def veteran(empty_plan_database: PlanDatabase) -> Iterator[AgedDatabase]:
    """A connection that made its plans among a handful of rows, in a system that has grown since."""
    plan_database = _furnish(_copy(empty_plan_database, "grown"), HANDFUL)
    with (
        observer(plan_database.database, BIG_TABLES) as watcher,
        plan_database.database.connect_admin() as connection,
    ):
        connection.execute("analyze")
        for call in HOT_CALLS:
            watcher.repeat(call, HANDFUL, times=CUSTOM_PLANS + 2)
        for table in sorted(BIG_TABLES | {"job_queue", "job_rate", "job_schedule"}):
            connection.execute(sql.SQL("delete from fencepost.{}").format(sql.Identifier(table)))
        _populate(connection, GROWN)
        yield AgedDatabase(watcher, PlanDatabase(plan_database.database, GROWN))
    plan_database.database.drop()


def _copy(plan_database: PlanDatabase, name: str) -> PlanDatabase:
    database = Database(plan_database.database.server, name)
    database.create(template=plan_database.database.name)
    return PlanDatabase(database, plan_database.size)


def _furnish(plan_database: PlanDatabase, size: int) -> PlanDatabase:
    with plan_database.database.connect_admin() as connection:
        _populate(connection, size)
    return PlanDatabase(plan_database.database, size)


def _populate(connection: psycopg.Connection, size: int, parts: Sequence[str] = POPULATION) -> None:
    """Fill the tables with this many rows each."""
    connection.execute("select set_config('plans.size', %s, false)", (str(size),))
    connection.execute("select set_config('plans.steps', %s, false)", (str(1 if size == MANY else STEPS),))
    # The rows are right by construction; triggers would look up each one's foreign key.
    connection.execute("set session_replication_role = replica")
    for part in parts:
        connection.execute(Path(__file__).with_name(part).read_bytes())
    connection.execute("reset session_replication_role")
