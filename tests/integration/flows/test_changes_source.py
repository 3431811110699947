"""Changes of PostgreSQL tables by logical decoding: each once, whatever ends the task or befalls the slot."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from fencepost.embedded import Database, PostgresServer
from fencepost.flows import Flow, GraphRefused, SourceTrimmed, StartRefused
from fencepost.flows import _flow_store as flow_store
from fencepost.flows.sinks.postgres import PostgresRows, PostgresUpsert
from fencepost.flows.sources import postgres_changes
from fencepost.flows.sources._log import SourceLog
from fencepost.flows.sources.postgres_changes import Change, PostgresChanges
from tests.integration.flows.harness import FlowHarness
from tests.integration.flows.source_matrix import HARDEST, POINTS, check_source
from tests.tmp_dirs import server_directory

_names = itertools.count()


@pytest.fixture(scope="module")
def shop_server() -> Iterator[PostgresServer]:
    settings: dict[str, str | int] = {"wal_level": "logical", "fsync": "off", "max_replication_slots": 20}
    with PostgresServer(server_directory(), settings=settings, ephemeral=True) as server:
        yield server


@dataclass
class Shop:
    """A foreign database, whose tables change."""

    url: str
    server: PostgresServer

    def run(self, *statements: Any) -> list[Any]:
        """One transaction; the rows of the last statement."""
        with psycopg.connect(self.url) as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def put(self, numbers: Sequence[int]) -> None:
        self.run(
            sql.SQL("insert into item (id, word) select n, 'w' || n from unnest({}::int[]) n").format(
                sql.Literal(list(numbers))
            )
        )

    def slots(self) -> list[tuple[str, int]]:
        return self.run(
            "select slot_name, (confirmed_flush_lsn - '0/0')::bigint from pg_replication_slots"
            " where database = current_database()"
        )


@pytest.fixture
def shop(shop_server: PostgresServer) -> Iterator[Shop]:
    database = Database(shop_server, f"shop_{next(_names)}")
    database.create()
    shop = Shop(database.admin_url, shop_server)
    shop.run("create table item (id int primary key, word text)")
    yield shop
    for slot, _ in shop.slots():
        shop.run(
            sql.SQL(
                "select pg_terminate_backend(active_pid, 5000) from pg_replication_slots where slot_name = {}"
            ).format(sql.Literal(slot))
        )
        shop.run(sql.SQL("select pg_drop_replication_slot({})").format(sql.Literal(slot)))
    database.drop()


def changes(shop: Shop, **options: Any) -> PostgresChanges:
    return PostgresChanges(shop.url, options.pop("tables", ["item"]), **options)


def copied(source: PostgresChanges) -> Flow:
    return Flow("cdc").source(source).map(_id).sink(PostgresRows("line", ["value"]))


def _id(change: Change) -> int:
    assert change.row is not None
    return int(change.row["id"])


def values(harness: FlowHarness) -> list[int]:
    return [row[0] for row in harness.rows("select value from line order by ctid")]


@pytest.mark.parametrize("together", [True, False], ids=["one-transaction", "many"])
@pytest.mark.parametrize(
    "points", [pytest.param(HARDEST, id="hardest"), pytest.param(POINTS, id="all", marks=pytest.mark.full)]
)
async def test_rows_and_changes_come_once_wherever_a_task_ends(
    harness: FlowHarness,
    shop: Shop,
    tmp_path: Path,
    points: Sequence[str],
    together: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first numbers are rows of the first copy, of which an entry of the log has few."""
    monkeypatch.setattr(postgres_changes, "COPY_ROWS", 3)
    monkeypatch.setattr(postgres_changes, "FETCH_ROWS", 5)
    monkeypatch.setattr(postgres_changes, "PEEK_ROWS", 12)

    async def feed(given: Sequence[int]) -> None:
        for part in [given] if together else [[n] for n in given]:
            await asyncio.to_thread(shop.put, part)

    await check_source(
        harness, tmp_path / "out", lambda flow: flow.source(changes(shop)).map(_id), feed, points
    )

    assert len(shop.slots()) == 1
    assert harness.rows("select count(*) from fencepost.flow_log_entry") == [(0,)]


@dataclass
class Reading:
    """A reader under a lease, as a task has one."""

    reader: Any

    async def take(self, count: int) -> list[Change]:
        found: list[Change] = []
        async with asyncio.timeout(30):
            while len(found) < count:
                chunk = await self.reader.read(100, 0.1)
                found += chunk.values
                if chunk.values:
                    await self.reader.acknowledge(chunk.offsets[-1])
        assert len(found) == count
        return found


@pytest.fixture
async def reading(harness: FlowHarness, shop: Shop) -> AsyncGenerator[Reading]:
    reader = await changes(shop).open(await harness.leased_context(), "0", None)
    yield Reading(reader)
    await reader.close()


async def test_every_kind_of_change(shop: Shop, reading: Reading) -> None:
    shop.run("insert into item values (1, 'one')")
    shop.run("update item set word = null where id = 1")
    shop.run("update item set id = 2 where id = 1")
    shop.run("delete from item where id = 2")
    shop.run("insert into item values (3, 'three')", "truncate item")

    found = await reading.take(6)

    assert [(each.kind, each.row, each.old) for each in found] == [
        ("insert", {"id": 1, "word": "one"}, None),
        ("update", {"id": 1, "word": None}, None),
        ("update", {"id": 2, "word": None}, {"id": 1}),
        ("delete", None, {"id": 2}),
        ("insert", {"id": 3, "word": "three"}, None),
        ("truncate", None, None),
    ]
    assert {each.table for each in found} == {"public.item"}
    assert found[4].lsn == found[5].lsn > found[3].lsn
    assert all(each.at is not None and each.at.tzinfo is UTC for each in found)


async def test_what_is_rolled_back_never_comes_and_the_order_is_that_of_commits(
    shop: Shop, reading: Reading
) -> None:
    with psycopg.connect(shop.url) as one, psycopg.connect(shop.url) as two:
        one.execute("insert into item values (1)")
        two.execute("insert into item values (2)")
        two.execute("savepoint s")
        two.execute("insert into item values (3)")
        two.execute("rollback to s")
        two.commit()
        one.commit()
        two.execute("insert into item values (4)")
        two.rollback()

    assert [_id(change) for change in await reading.take(2)] == [2, 1]


TYPES = """
    create type mood as enum ('good', 'bad');
    create table typed (id int primary key, a bigint, b numeric, c float8, d timestamptz, e date, f interval,
      g bytea, h jsonb, i uuid, j int[], k bool, l char(4), m mood, n timestamptz, o text)
"""
VALUES = """
    insert into typed values (%s, 9007199254740993, 1.10, 0.1, '2026-01-02 03:04:05.678901+02', '2026-01-02',
      '1 day 2 hours', '\\x00ff', '{"a": [1, null]}', '00000000-0000-0000-0000-000000000001', '{1,null,3}',
      true, 'ab', 'bad', 'infinity', e'line\\nline \\\\ "quoted" \\t ü')
"""


async def test_values_have_their_types_in_the_first_copy_and_later(harness: FlowHarness, shop: Shop) -> None:
    shop.run(TYPES)
    shop.run(VALUES % 1)
    source = changes(shop, tables=["typed"])
    reader = await source.open(await harness.leased_context(), "0", None)
    reading = Reading(reader)
    shop.run(VALUES % 2)

    copy, inserted = await reading.take(2)
    await reader.close()

    assert (copy.kind, inserted.kind) == ("snapshot", "insert")
    assert copy.row is not None
    assert inserted.row is not None
    assert {**copy.row, "id": 2} == inserted.row
    row = inserted.row
    assert (row["a"], row["b"], row["c"], row["k"]) == (9007199254740993, Decimal("1.10"), 0.1, True)
    assert row["d"] == datetime(2026, 1, 2, 1, 4, 5, 678901, tzinfo=UTC)
    assert (row["g"], row["h"], row["j"]) == (b"\x00\xff", {"a": [1, None]}, [1, None, 3])
    assert (row["l"], row["m"], row["n"], row["o"]) == (
        "ab  ",
        "bad",
        "infinity",
        'line\nline \\ "quoted" \t ü',
    )
    assert [type(each).__name__ for each in (row["e"], row["f"], row["i"])] == ["date", "timedelta", "UUID"]


async def test_a_long_value_that_did_not_change(harness: FlowHarness, shop: Shop) -> None:
    shop.run("create table long (id int primary key, n int, word text)")
    shop.run("alter table long alter word set storage external")
    reader = await changes(shop, tables=["long"]).open(await harness.leased_context(), "0", None)
    reading = Reading(reader)
    word = "x" * 10_000
    shop.run(f"insert into long values (1, 1, '{word}')")
    shop.run("update long set n = 2")
    shop.run("alter table long replica identity full")
    shop.run("update long set n = 3")

    inserted, without, whole = await reading.take(3)
    await reader.close()

    assert inserted.row == {"id": 1, "n": 1, "word": word}
    assert (without.row, without.unchanged) == ({"id": 1, "n": 2}, ("word",))
    assert (whole.row, whole.unchanged) == ({"id": 1, "n": 3, "word": word}, ())
    assert whole.old == {"id": 1, "n": 2, "word": word}


async def test_a_table_that_changes_its_columns_in_the_middle(shop: Shop, reading: Reading) -> None:
    shop.run(
        "insert into item values (1, 'a')",
        "alter table item add column more int default 7",
        "insert into item values (2, 'b', 8)",
    )
    shop.run("alter table item rename column word to text")
    shop.run("insert into item values (3, 'c')")
    shop.run("alter table item drop column text")
    shop.run("alter table item alter more type numeric")
    shop.run("insert into item values (4, 1.5)")

    assert [change.row for change in await reading.take(4)] == [
        {"id": 1, "word": "a"},
        {"id": 2, "word": "b", "more": 8},
        {"id": 3, "text": "c", "more": 7},
        {"id": 4, "more": Decimal("1.5")},
    ]


async def test_writers_go_on_while_the_rows_are_copied(
    harness: FlowHarness, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the copy fails in its middle: what it had is removed, and no row of it was read."""
    monkeypatch.setattr(postgres_changes, "FETCH_ROWS", 10)
    shop.put(range(50))
    true_append, calls = SourceLog.append, itertools.count()

    async def append(self: SourceLog, *given: Any, **options: Any) -> int:
        number = next(calls)
        await asyncio.to_thread(shop.put, [1000 + number])
        if number == 3:
            raise ConnectionError("the copy ends here")
        return await true_append(self, *given, **options)

    monkeypatch.setattr(SourceLog, "append", append)
    flow = Flow("cdc").source(changes(shop)).map(_id).key_by(str).count()
    async with harness.running(harness.worker(flow.sink(PostgresUpsert("total", ["key"], ["value"])))):
        await harness.until(lambda: len(harness.rows("select * from total where key::int < 1000")) == 50)
        monkeypatch.setattr(SourceLog, "append", true_append)
        [(written,)] = shop.run("select count(*) from item")
        await harness.until(lambda: len(harness.rows("select * from total")) == written)

    assert harness.rows("select key from total where value <> 1") == []
    assert len(shop.slots()) == 1


async def test_without_a_first_copy_only_changes_come(harness: FlowHarness, shop: Shop) -> None:
    shop.put([1])
    await harness.run(copied(changes(shop, snapshot=False)))
    shop.put([2])
    await harness.run(copied(changes(shop, snapshot=False)))

    assert values(harness) == [2]


async def test_a_slot_whose_tables_rest_is_moved_on(
    harness: FlowHarness, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the server would keep the log of all other tables. It is no loss for a later start, and one
    for a savepoint from before changes that are committed."""
    monkeypatch.setattr(postgres_changes, "IDLE_SECONDS", 0.0)
    shop.run("create table other (n int)")
    shop.put([1])
    async with harness.running(harness.worker(copied(changes(shop)))):
        await harness.until(lambda: values(harness) == [1])
        await harness.fp.run(flow_store.save("cdc", "early"))
        shop.put([2])
        await harness.until(lambda: values(harness) == [1, 2])
        [(_, before)] = shop.slots()
        shop.run("insert into other select generate_series(1, 1000)")
        await harness.until(lambda: shop.slots()[0][1] > before + 50_000)
    shop.put([3])
    await harness.run(copied(changes(shop)))
    assert values(harness) == [1, 2, 3]

    await harness.fp.run(flow_store.restore("cdc", "early"))
    with pytest.raises(SourceTrimmed):
        await harness.run(copied(changes(shop)))


@pytest.mark.parametrize("what", ["dropped", "advanced", "anew"])
async def test_a_slot_that_lost_changes_is_refused(harness: FlowHarness, shop: Shop, what: str) -> None:
    shop.put([1])
    await harness.run(copied(changes(shop)))
    shop.put([2])
    [(slot, _)] = shop.slots()
    name = sql.Literal(slot)
    if what == "advanced":
        shop.run(sql.SQL("select pg_replication_slot_advance({}, pg_current_wal_flush_lsn())").format(name))
    else:
        shop.run(sql.SQL("select pg_drop_replication_slot({})").format(name))
        if what == "anew":
            shop.run(sql.SQL("select pg_create_logical_replication_slot({}, 'pgoutput')").format(name))

    with pytest.raises(
        SourceTrimmed, match=r"is gone" if what == "dropped" else r"advanced by another reader"
    ):
        await harness.run(copied(changes(shop)))
    assert values(harness) == [1]


async def test_a_frozen_worker_that_goes_on_touches_only_its_own_slot(
    harness: FlowHarness, shop: Shop
) -> None:
    """It stands before it makes its slot; its successor has copied and streams by then."""
    shop.put([1, 2])
    context = await harness.leased_context()
    source = changes(shop)
    assert context.lease is not None
    control = await source._connected()  # pyright: ignore[reportPrivateUsage]
    stale = SourceLog(context, "changes:0")
    await stale.state()
    harness.lose_units()
    successor = await source.open(await harness.leased_context(), "0", None)

    server = postgres_changes._Server(shop_version(shop), "x")  # pyright: ignore[reportPrivateUsage]
    [(key,)] = harness.rows("select cursor ->> 'key' from fencepost.flow_log")
    cursor = postgres_changes._Cursor(  # pyright: ignore[reportPrivateUsage]
        f"fencepost_changes_{key}_1", key, "x", False, 0, "0-0", 1
    )
    with pytest.raises(Exception, match=r"not_owner|expired|NotOwner|taken"):
        await source._copied(control, stale, server, cursor)  # pyright: ignore[reportPrivateUsage]
    await control.close()
    assert [_id(change) for change in await Reading(successor).take(2)] == [1, 2]
    await successor.close()
    assert len(shop.slots()) == 2

    again = await source.open(await harness.leased_context(), "0", "0-100002")
    await again.close()
    assert len(shop.slots()) == 1


async def test_two_flows_over_one_database_have_slots_of_their_own(harness: FlowHarness, shop: Shop) -> None:
    """Also with one name for the slot: a slot rests between two peeks, and must not look like a left one."""
    shop.put([1])
    for _ in range(2):
        for name in ("cdc", "cdc-2"):
            source = changes(shop)
            await harness.run(Flow(name).source(source).map(_id).sink(PostgresRows("line", ["value"])))
    shop.put([2])
    for name in ("cdc", "cdc-2"):
        await harness.run(Flow(name).source(changes(shop)).map(_id).sink(PostgresRows("line", ["value"])))

    assert len(shop.slots()) == 2
    assert sorted(values(harness)) == [1, 1, 2, 2]


def shop_version(shop: Shop) -> int:
    return int(shop.run("select current_setting('server_version_num')")[0][0])


async def test_the_slot_survives_a_failover_where_the_server_can(harness: FlowHarness, shop: Shop) -> None:
    if shop_version(shop) < 170000:
        pytest.skip("failover slots came with PostgreSQL 17")
    await harness.run(copied(changes(shop)))
    assert shop.run("select failover from pg_replication_slots where database = current_database()") == [
        (True,)
    ]


async def test_what_a_server_or_a_table_lacks_is_told_with_the_statement(
    harness: FlowHarness, shop: Shop
) -> None:
    shop.run("create table keyless (n int)", "create table item2 (n int primary key)")
    for tables, told in (
        (["keyless"], 'alter table "public"."keyless" replica identity full'),
        (["nowhere"], "there is no such table"),
    ):
        with pytest.raises(StartRefused, match=told):
            await harness.run(copied(changes(shop, tables=tables)))
    assert shop.slots() == []

    shop.run("create publication fencepost_changes for table item2")
    with pytest.raises(
        StartRefused, match=r'alter publication "fencepost_changes" add table "public"."item"'
    ):
        await harness.run(copied(changes(shop)))
    with pytest.raises(StartRefused, match="wal_level of the database"):
        await harness.run(copied(PostgresChanges(harness.database.admin_url, ["line"])))
    with pytest.raises(GraphRefused, match="is no name for a slot"):
        changes(shop, slot="A b")
    with pytest.raises(GraphRefused, match="as a list"):
        changes(shop, tables="item")


async def test_a_login_without_rights_is_told_which(harness: FlowHarness, shop: Shop) -> None:
    shop.run("drop role if exists reader", "create role reader login")
    url = make_conninfo(shop.url, user="reader")
    with pytest.raises(StartRefused, match='alter role "reader" replication'):
        await harness.run(copied(PostgresChanges(url, ["item"])))
    shop.run("alter role reader replication")
    with pytest.raises(
        StartRefused, match=r'create publication "fencepost_changes" for table "public"."item"'
    ):
        await harness.run(copied(PostgresChanges(url, ["item"])))
    shop.run("create publication fencepost_changes for table item")
    with pytest.raises(StartRefused, match=r'grant select on "public"."item"'):
        await harness.run(copied(PostgresChanges(url, ["item"])))
    shop.run("grant select on item to reader")
    shop.put([1])
    await harness.run(copied(PostgresChanges(url, ["item"])))
    shop.run("drop owned by reader", "drop role reader")

    assert values(harness) == [1]
