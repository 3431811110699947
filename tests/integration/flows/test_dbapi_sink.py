"""Rows in SQLite and in MariaDB by their DB-API drivers: each once, wherever a task ends."""

import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.flows import CheckpointId, DeadLetters, Flow, GraphRefused, IterableSource, StartRefused
from fencepost.flows.sinks.dbapi import DbApiTable
from fencepost.testing._flow_sinks import check_sink
from fencepost.testing._flow_windows import PHASES
from tests import mariadb_server as mariadb
from tests.integration.flows.harness import FlowHarness
from tests.tmp_dirs import server_directory

HARDEST = ("flows.commit.before_store", "flows.commit.after_store", "flows.commit.before_flag")
POINTS = pytest.mark.parametrize(
    "points", [pytest.param(HARDEST, id="hardest"), pytest.param(PHASES, id="all", marks=pytest.mark.full)]
)
TABLES = (
    "create table line (value bigint not null)",
    "create table total (name varchar(100) primary key, value bigint not null)",
)


@dataclass
class Elsewhere:
    """A database that is not PostgreSQL."""

    driver: Any
    arguments: dict[str, Any]

    def run(self, *statements: str) -> list[Any]:
        with closing(self.driver.connect(**self.arguments)) as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)
            rows = list(cursor.fetchall()) if cursor.description else []
            connection.commit()
            return rows

    def sink(self, table: str, columns: Sequence[str], **options: Any) -> DbApiTable:
        return DbApiTable(self.driver, self.arguments, table, columns, **options)


@pytest.fixture(scope="module")
def maria() -> Iterator[mariadb.MariaDb]:
    if not mariadb.is_here():
        pytest.skip(mariadb.MISSING)
    with mariadb.mariadb_server(server_directory()) as server:
        yield server


def plain_sqlite() -> Any:
    """SQLite as a database whose way to replace a row is not known."""
    names = ("Error", "DataError", "IntegrityError", "InterfaceError", "ProgrammingError", "connect")
    members = {name: getattr(sqlite3, name) for name in names}
    return SimpleNamespace(__name__="unknown", paramstyle="named", **members)


@pytest.fixture(params=["sqlite", "standard", "mariadb"])
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Elsewhere:
    if request.param == "mariadb":
        server: mariadb.MariaDb = request.getfixturevalue("maria")
        found = Elsewhere(mariadb.driver(), server.arguments())
        found.run("drop database shop", "create database shop")
    else:
        driver = sqlite3 if request.param == "sqlite" else plain_sqlite()
        found = Elsewhere(driver, {"database": str(tmp_path / "shop.db"), "timeout": 30})
    found.run(*TABLES)
    return found


@POINTS
async def test_rows_are_appended_once(
    harness: FlowHarness, elsewhere: Elsewhere, points: Sequence[str]
) -> None:
    async def effects() -> list[int]:
        return [row[0] for row in elsewhere.run("select value from line")]

    await check_sink(harness.fp, lambda: elsewhere.sink("line", ["value"]), effects, points=points)


@pytest.mark.parametrize("on_conflict", ["update", "ignore"])
@POINTS
async def test_rows_are_replaced_or_left_by_their_key(
    harness: FlowHarness, elsewhere: Elsewhere, points: Sequence[str], on_conflict: Any
) -> None:
    async def effects() -> list[int]:
        return [row[0] for row in elsewhere.run("select value from total")]

    for number, point in enumerate(points):
        await check_sink(
            harness.fp,
            lambda: elsewhere.sink("total", ["value"], key=["name"], on_conflict=on_conflict),
            effects,
            value=lambda n, number=number: (f"{number}-{n}", n),  # type: ignore[misc]
            points=[point],
        )
        with harness.database.connect_admin() as connection:
            connection.execute("delete from fencepost.checkpoint")
        elsewhere.run("delete from fencepost_frontier")


async def test_an_older_checkpoint_writes_nothing(harness: FlowHarness, elsewhere: Elsewhere) -> None:
    sink = elsewhere.sink("total", ["value"], key=["name"])
    await sink.open(harness.context())
    assert await sink.position("flow:x/all") is None
    await sink.deliver(CheckpointId("flow:x/all", 2, 8), [("a", 8)])

    await sink.deliver(CheckpointId("flow:x/all", 1, 7), [("a", 7)])
    await sink.deliver(CheckpointId("flow:x/all", 2, 8), [("a", 0)])
    await sink.deliver(CheckpointId("flow:y/all", 1, 1), [("b", 1)])

    assert sorted(elsewhere.run("select name, value from total")) == [("a", 8), ("b", 1)]
    assert await sink.position("flow:x/all") == 8
    await sink.close()


async def test_the_last_value_of_a_key_counts_or_the_first(
    harness: FlowHarness, elsewhere: Elsewhere
) -> None:
    elsewhere.run("insert into total values ('old', 1)")
    rows = [("old", 2), ("new", 3), ("new", 4)]
    for on_conflict, wanted in (("ignore", [("new", 3), ("old", 1)]), ("update", [("new", 4), ("old", 2)])):
        sink = elsewhere.sink("total", ["value"], key=["name"], on_conflict=on_conflict)
        await sink.open(harness.context())
        await sink.deliver(CheckpointId(f"flow:{on_conflict}/all", 1, 1), rows)
        await sink.close()
        assert sorted(elsewhere.run("select name, value from total")) == wanted


async def test_rows_that_the_database_refuses_go_to_the_dead_letters_once(
    harness: FlowHarness, elsewhere: Elsewhere
) -> None:
    values: list[Any] = [("a", 1), ("b", None), ("c", 3), ("d",), ("e", 5), ("f" * 200, 6), ("g", {"a": 1})]
    letters = DeadLetters("bad", replays=False)
    sink = elsewhere.sink("total", ["value"], key=["name"], on_reject=letters)
    await harness.run(Flow("rejecting").source(IterableSource(values)).sink(sink))

    dead = harness.rows("select error from fencepost.flow_dead order by id")
    taken = dict(elsewhere.run("select name, value from total"))
    assert {"a": 1, "c": 3, "e": 5}.items() <= taken.items()
    assert "b" not in taken
    assert len(dead) == len(values) - len(taken)

    again = elsewhere.sink("total", ["value"], key=["name"], on_reject=letters)
    await again.open(harness.context())
    first = await again.deliver(CheckpointId("flow:z/all", 1, 1), values)
    repeat = await again.deliver(CheckpointId("flow:z/all", 1, 1), values)
    await again.close()
    assert first
    assert [each.value for each in repeat or ()] == [each.value for each in first]


async def test_what_cannot_be_written_is_refused_at_start(harness: FlowHarness, elsewhere: Elsewhere) -> None:
    def refused(sink: DbApiTable, told: str) -> Any:
        return pytest.raises(StartRefused, match=told), Flow("refused").source(IterableSource([1])).sink(sink)

    elsewhere.run("create table keyless (name varchar(100), value bigint)")
    cases = [
        (elsewhere.sink("nowhere", ["value"]), "cannot read nowhere"),
        (elsewhere.sink("line", ["x"]), "line"),
    ]
    if elsewhere.driver.__name__ != "unknown":
        cases.append((elsewhere.sink("keyless", ["value"], key=["name"]), "unique"))
    for sink, told in cases:
        raised, flow = refused(sink, told)
        with raised:
            await harness.run(flow)
    automatic = {"autocommit": True} if elsewhere.driver is mariadb.driver() else {"isolation_level": None}
    sink = DbApiTable(elsewhere.driver, {**elsewhere.arguments, **automatic}, "line", ["value"])
    raised, flow = refused(sink, "cannot roll back")
    with raised:
        await harness.run(flow)
    assert elsewhere.run("select * from fencepost_frontier") == []


async def test_a_table_without_transactions_is_refused(harness: FlowHarness, maria: mariadb.MariaDb) -> None:
    elsewhere = Elsewhere(mariadb.driver(), maria.arguments())
    elsewhere.run("create table old_style (value bigint) engine = MyISAM")
    sink = elsewhere.sink("old_style", ["value"])
    with pytest.raises(StartRefused, match="alter table `old_style` engine = InnoDB"):
        await harness.run(Flow("refused").source(IterableSource([1])).sink(sink))


def test_what_cannot_be_meant_is_refused() -> None:
    make: Callable[..., DbApiTable] = DbApiTable
    cases: tuple[tuple[tuple[Any, ...], str], ...] = (
        ((sqlite3, {}, 'a"b', ["x"]), "can be quoted"),
        ((sqlite3, {}, "a", []), "has no columns"),
        ((sys, {}, "a", ["x"]), "driver of the DB-API"),
    )
    for given, told in cases:
        with pytest.raises(GraphRefused, match=told):
            make(*given)
    options: dict[str, Any] = {"on_conflict": "no"}
    with pytest.raises(GraphRefused, match="on_conflict is 'no'"):
        make(sqlite3, {}, "a", ["x"], **options)
