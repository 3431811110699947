"""The minutes behind the charts: counted once, counted again, and the past counted afterwards."""

from __future__ import annotations

from typing import Any

from fencepost.console import people
from fencepost.embedded import Database
from fencepost.kernel.drivers import run
from fencepost.testing import Clock
from tests.integration.console.crowd import Crowd


def minutes(database: Database) -> list[tuple[Any, ...]]:
    with database.connect_admin() as connection:
        return connection.execute(
            "select finished, dead, cancelled, workers, waiting, running, refused is not null"
            " from fencepost.console_minute where finished + dead + cancelled > 0 order by minute"
        ).fetchall()


def roll(database: Database, missing: int) -> int:
    with database.connect() as connection:
        return run(connection, people.roll(missing))


def test_a_minute_is_counted_again_and_not_twice(database: Database) -> None:
    clock = Clock(database.admin_url).install()
    clock.freeze()
    Crowd(database)
    roll(database, 0)
    roll(database, 0)
    assert minutes(database) == [(1, 3, 1, 1, 1, 1, True)]


def test_minutes_that_nobody_counted_are_counted_afterwards(database: Database) -> None:
    clock = Clock(database.admin_url).install()
    clock.freeze()
    Crowd(database)
    clock.advance(2 * 3600)
    missing = roll(database, 30)
    assert 1400 < missing < 1440
    while (left := roll(database, 500)) > 0:
        assert left < missing
        missing = left
    assert [row[:4] for row in minutes(database)] == [(1, 3, 1, 1)]


def test_what_is_older_than_eight_days_is_forgotten(database: Database) -> None:
    clock = Clock(database.admin_url).install()
    clock.freeze()
    Crowd(database)
    roll(database, 0)
    clock.advance(9 * 86_400)
    roll(database, 0)
    assert minutes(database) == []
