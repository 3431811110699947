"""A table that a sink cannot write is refused at start, and the statement that is told helps."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, LiteralString

import pytest

from fencepost.flows import Flow, IterableSource, Sink, StartRefused
from fencepost.flows.sinks.external_postgres import ExternalPostgres
from fencepost.flows.sinks.files import JsonLines
from fencepost.flows.sinks.postgres import PostgresRows, PostgresUpsert
from fencepost.flows.sinks.redis import RedisSink
from fencepost.flows.sinks.two_phase_postgres import TwoPhasePostgres
from tests.integration.flows.harness import FlowHarness

Make = Callable[[FlowHarness], Sink]


def rows(harness: FlowHarness) -> Sink:
    return PostgresRows("spent", ["key", "value"])


def upsert(harness: FlowHarness) -> Sink:
    return PostgresUpsert("spent", ["key"], ["value"])


def elsewhere(harness: FlowHarness) -> Sink:
    return ExternalPostgres(harness.database.url, "spent", ["key"], ["value"])


def prepared(harness: FlowHarness) -> Sink:
    return TwoPhasePostgres(harness.database.url, "spent", ["key", "value"])


OWN: LiteralString = """
    create table if not exists fencepost_frontier (resource text primary key, number bigint not null);
    create table if not exists fencepost_prepared (gid text primary key, at timestamptz default now());
    grant all on fencepost_frontier, fencepost_prepared to fencepost_app;
"""
KEYED: LiteralString = "create table spent (key text primary key, value text);"
GRANT: LiteralString = "grant all on spent to fencepost_app;"
NO_STAGING: LiteralString = """
    do $$ begin execute format('revoke temporary on database %I from public', current_database()); end $$"""
CASES: list[tuple[str, Make, LiteralString, str]] = [
    ("no table", rows, "select", "there is no such table"),
    ("no table to replace in", upsert, "select", "there is no such table"),
    ("no table elsewhere", elsewhere, "select", "there is no such table"),
    ("no table to prepare in", prepared, "select", "there is no such table"),
    (
        "wrong column",
        rows,
        "create table spent (key text, amount text);" + GRANT,
        "it has no column value; it has key, amount",
    ),
    (
        "wrong column to replace",
        elsewhere,
        "create table spent (key text primary key);" + GRANT,
        "it has no column value; it has key",
    ),
    (
        "no key",
        upsert,
        "create table spent (key text, value text);" + GRANT,
        "nothing makes (key) unique",
    ),
    (
        "a key of another kind",
        upsert,
        "create table spent (key text, value text, unique (key) deferrable);" + GRANT,
        "its constraint spent_key_key is deferrable",
    ),
    (
        "a row needs more",
        rows,
        "create table spent (key text, value text, who text not null);" + GRANT,
        "every row needs who",
    ),
    ("no right", rows, KEYED, "lacks INSERT"),
    ("no right to replace", upsert, KEYED, "lacks SELECT, INSERT, UPDATE"),
    (
        "half of a right",
        upsert,
        KEYED + "grant select, insert on spent to fencepost_app",
        "lacks UPDATE",
    ),
    ("no right to prepare", prepared, KEYED, "lacks INSERT"),
    (
        "no right to stage",
        upsert,
        KEYED + GRANT + NO_STAGING,
        "may not make temporary tables",
    ),
]


@pytest.mark.parametrize(("name", "make", "made", "told"), CASES, ids=[case[0] for case in CASES])
async def test_what_is_told_helps(
    harness: FlowHarness, name: str, make: Make, made: LiteralString, told: str
) -> None:
    def flow() -> Flow:
        return Flow("refused").source(IterableSource([("a", "1")])).sink(make(harness))

    with harness.database.connect_admin() as admin:
        admin.execute(OWN)
        admin.execute(made)
    refusals: list[str] = []
    # One refusal tells one thing: a table that was just made may lack rights.
    while len(refusals) < 4:
        try:
            await harness.run(flow())
            break
        except StartRefused as refusal:
            refusals.append(str(refusal))
        [statement] = re.findall(r"Run: (.*?;)", refusals[-1])
        with harness.database.connect_admin() as admin:
            admin.execute(statement)

    assert told in refusals[0]
    assert all("cannot write public.spent: " in words for words in refusals)
    assert harness.rows("select key, value from spent") == [("a", "1")]


async def test_a_schema_that_is_not_there_or_not_open(harness: FlowHarness) -> None:
    flow = Flow("refused").source(IterableSource([("a", 1)]))
    with pytest.raises(StartRefused, match=r'no schema shop\. Run: create schema "shop";'):
        await harness.run(flow.sink(PostgresRows("spent", ["key"], schema="shop")))
    with harness.database.connect_admin() as admin:
        admin.execute("create schema shop; create table shop.spent (key text)")
    with pytest.raises(StartRefused, match=r'Run: grant usage on schema "shop" to "fencepost_service"'):
        await harness.run(flow.sink(PostgresRows("spent", ["key"], schema="shop")))


async def test_a_column_that_the_database_computes(harness: FlowHarness) -> None:
    with harness.database.connect_admin() as admin:
        admin.execute("create table spent (key int, twice int generated always as (key * 2) stored)")
        admin.execute("grant all on spent to fencepost_app")
    flow = Flow("refused").source(IterableSource([(1, 2)])).sink(PostgresRows("spent", ["key", "twice"]))
    with pytest.raises(StartRefused, match="computes its column twice itself"):
        await harness.run(flow)


async def test_a_trigger_may_fill_what_a_row_needs(harness: FlowHarness) -> None:
    with harness.database.connect_admin() as admin:
        admin.execute("""
            create table spent (key text, who text not null);
            create function fill() returns trigger language plpgsql as
              $$ begin new.who := 'trigger'; return new; end $$;
            create trigger fills before insert on spent for each row execute function fill();
            grant all on spent to fencepost_app""")
    await harness.run(Flow("filled").source(IterableSource(["a"])).sink(PostgresRows("spent", ["key"])))

    assert harness.rows("select * from spent") == [("a", "trigger")]


@pytest.mark.parametrize("make", [elsewhere, prepared])
async def test_a_login_that_may_not_make_the_sinks_own_table_is_told_the_statement(
    harness: FlowHarness, make: Make
) -> None:
    with harness.database.connect_admin() as admin:
        admin.execute(KEYED)
        admin.execute("grant all on spent to fencepost_app; revoke create on schema public from public")
    flow = Flow("refused").source(IterableSource([("a", "1")])).sink(make(harness))
    with pytest.raises(StartRefused, match=r"may not make it") as refused:
        await harness.run(flow)
    statements: Any = str(refused.value).partition("Run as its owner: ")[2]
    with harness.database.connect_admin() as admin:
        admin.execute(statements)

    await harness.run(Flow("refused").source(IterableSource([("a", "1")])).sink(make(harness)))
    assert harness.rows("select key, value from spent") == [("a", "1")]


async def test_a_key_of_redis_that_holds_something_else(harness: FlowHarness) -> None:
    client: Any = harness.redis
    client.sadd("out", "x")
    with pytest.raises(StartRefused, match=r"writes a list, and that key holds a set.*redis-cli del out"):
        await harness.run(Flow("refused").source(IterableSource([1])).sink(RedisSink("list", "out")))


async def test_a_folder_that_cannot_be_made(harness: FlowHarness, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    sink = JsonLines(tmp_path / "file" / "out")
    with pytest.raises(StartRefused, match=r"JsonLines cannot make .*Run: mkdir -p"):
        await harness.run(Flow("refused").source(IterableSource([1])).sink(sink))
