"""A role that may only read holds up no login, import or listing: they wait for a row, or for a table."""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg
import pytest
from psycopg.types.json import Jsonb

from fencepost.embedded import Database
from fencepost.kernel.drivers import run
from fencepost.kernel.migrate import component
from fencepost_server.console._role import ACCOUNTS, Role

LOGIN: LiteralString = (
    "select * from fencepost.account_login_begin('console', 'ada', '127.0.0.1', '15 minutes')"
)
IMPORT: LiteralString = "select fencepost.judge_problem_put('sum', 'Sum', '{}')"
ENTER: LiteralString = (
    "select * from fencepost.judge_worker_enter("
    "'w@h#1', 'h', '1', '{\"c\": 1}', 1, 1, 'box', '[]', '1 minute')"
)
ROLL: LiteralString = "select fencepost.console_roll(1)"
NAMES = (
    "account-login:ada",
    "account:ada",
    "judge_problem:sum",
    "judge_worker",
    "fencepost.console_roll",
)


@pytest.fixture
def accounts_of(database: Database) -> Database:
    with psycopg.connect(database.url, autocommit=True) as connection:
        run(connection, ACCOUNTS.set_user("ada", Role.ADMIN, "a hash", "test", by_service=False))
    return database


def impatient(database: Database) -> psycopg.Connection[Any]:
    connection = psycopg.connect(database.url)
    connection.execute("set lock_timeout = '1s'")
    connection.commit()
    return connection


@pytest.mark.parametrize("statement", [LOGIN, IMPORT, ENTER, ROLL])
def test_a_reader_cannot_hold_it_up(accounts_of: Database, statement: LiteralString) -> None:
    with psycopg.connect(accounts_of.viewer_url) as reader, impatient(accounts_of) as service:
        for name in NAMES:
            reader.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", (name,))
        (answer,) = service.execute(statement).fetchall()
        # The roll does not wait; it answers 0 when it leaves the counting to another one.
        assert statement is not ROLL or answer[0] > 0


@pytest.mark.parametrize("statement", [LOGIN, IMPORT, ENTER])
def test_two_of_them_still_take_turns(accounts_of: Database, statement: LiteralString) -> None:
    with impatient(accounts_of) as first, impatient(accounts_of) as second:
        first.execute(statement)
        with pytest.raises(psycopg.errors.LockNotAvailable):
            second.execute(statement)
        second.rollback()
        first.commit()
        second.execute(statement)


def test_imports_of_two_problems_are_versions_in_order(accounts_of: Database) -> None:
    put: LiteralString = "select fencepost.judge_problem_put('sum', 'Sum', %s)"
    with psycopg.connect(accounts_of.url, autocommit=True) as service:
        found = [service.execute(put, (Jsonb({"n": n}),)).fetchone() for n in (1, 1, 2)]
    assert found == [(1,), (1,), (2,)]


@pytest.mark.parametrize("name", ["accounts", "console", "judge"])
def test_no_function_for_people_waits_for_an_advisory_lock(name: str) -> None:
    functions = component(name).functions
    assert functions
    for file, text in functions:
        assert "pg_advisory" not in text, file
        assert "pg_try_advisory" not in text, file
