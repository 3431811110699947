"""The minutes behind the charts: counted once, counted again, and the past counted afterwards."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from fencepost.embedded import Database
from fencepost.jobs._worker_registry import WorkerRegistry
from fencepost.kernel._job_need import Serves
from fencepost.kernel.drivers import run
from fencepost.testing import Clock
from fencepost_server.console import _minutes as minutes
from tests.integration.console.watchers import Watchers


def counted(database: Database) -> list[tuple[Any, ...]]:
    with database.connect_admin() as connection:
        return connection.execute(
            "select finished, dead, cancelled, workers, waiting, running, refused is not null"
            " from fencepost.console_minute where finished + dead + cancelled > 0 order by minute"
        ).fetchall()


def roll(database: Database, missing: int) -> int:
    with database.connect() as connection:
        return run(connection, minutes.roll(missing))


def test_a_minute_is_counted_again_and_not_twice(database: Database) -> None:
    clock = Clock(database.admin_url).install()
    clock.freeze()
    Watchers(database)
    roll(database, 0)
    roll(database, 0)
    assert counted(database) == [(1, 3, 1, 1, 1, 1, True)]


def test_missed_minutes_are_counted_afterwards(database: Database) -> None:
    clock = Clock(database.admin_url).install()
    clock.freeze()
    Watchers(database)
    clock.advance(2 * 3600)
    missing = roll(database, 30)
    assert 1400 < missing < 1440
    while (left := roll(database, 500)) > 0:
        assert left < missing
        missing = left
    assert [row[:4] for row in counted(database)] == [(1, 3, 1, 1)]


def test_what_is_older_than_eight_days_is_forgotten(database: Database) -> None:
    clock = Clock(database.admin_url).install()
    clock.freeze()
    Watchers(database)
    roll(database, 0)
    clock.advance(9 * 86_400)
    roll(database, 0)
    assert counted(database) == []


def test_a_minute_has_the_lag_and_the_deliveries_of_the_outbox_and_the_workers(
    database: Database,
) -> None:
    clock = Clock(database.admin_url).install()
    clock.freeze(datetime(2030, 1, 1, 12, 0, 10, tzinfo=UTC))
    with database.connect() as connection:
        connection.execute("select fencepost.outbox_put('mail', n::text, '{}') from generate_series(1, 3) n")
        clock.advance(20)
        took = connection.execute("select id, take from fencepost.outbox_take('mail', 'w', '1 hour', 2)")
        for message, take in took.fetchall():
            clock.advance(5)
            connection.execute("select fencepost.outbox_settle(%s, %s, 'w', 'sent')", (message, take))
        WorkerRegistry("idle", ["mail"], Serves({"send": None}), ttl_seconds=20).keep(connection)
        roll(database, 0)
        clock.advance(60)
        # Counted once more, when the worker is gone and the minute over: what was seen in it stays.
        roll(database, 0)
    with psycopg.connect(database.viewer_url) as connection:
        told = connection.execute(
            "select at, workers, delivered, delivery_p50_seconds, delivery_p95_seconds, outbox_lag_seconds"
            " from fencepost.console_series('2030-01-01', '1 minute') where at >= '2030-01-01 12:00'"
        ).fetchall()
    noon = datetime(2030, 1, 1, 12, tzinfo=UTC)
    assert told == [
        (noon, 1, 2, 27.5, pytest.approx(29.75), 30),
        (noon + timedelta(minutes=1), 0, 0, None, None, 90),
    ]
