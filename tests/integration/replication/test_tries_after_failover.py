"""A lease that ends while the database is away is no evidence against its worker: no try is charged."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest

from fencepost.embedded import Database
from fencepost.testing import Clock
from tests.integration.replication.replicas import Replicas

OWNER = "worker/boot-1"
NO_LOOK = """
    create or replace function fencepost._was_away_since(p_at timestamptz) returns boolean
    language sql as 'select false'"""
ALWAYS_AWAY = NO_LOOK.replace("select false", "select true")
CLAIM_SUSPECTS = """
    select fencepost.job_claim_suspects('{mail}', '{"kinds": {"send": "*"}}', %s, 10, '5 seconds')"""
MARK = "select mark from fencepost.lineage_check(null, false)"
LOSSES_MAX = 20


def promoted(pair: Replicas) -> Database:
    pair.wait_until_caught_up()
    pair.primary.kill()
    return pair.promote()


def restarted(pair: Replicas) -> Database:
    pair.primary.restart()
    return pair.database


def another_standby_required(pair: Replicas) -> Database:
    pair.require_standby(True)
    return pair.database


def nothing(pair: Replicas) -> Database:
    return pair.database


def claim(database: Database) -> int:
    """A worker with one job."""
    with closing(database.connect_admin()) as admin:
        admin.execute(MARK)
        [(job,)] = admin.execute("select job_id from fencepost.job_submit('mail', 'send', '{}')").fetchall()
        admin.execute("select fencepost.job_claim(%s, %s, '5 seconds')", (job, OWNER))
        return int(job)


def reclaim(database: Database, clock: Clock) -> list[tuple[Any, ...]]:
    """Its lease ends; the answer has state and whether the try was charged."""
    with closing(database.connect_admin()) as admin:
        admin.execute(MARK)
        clock.advance(10)
        return admin.execute("select state, charged from fencepost.job_reclaim(10)").fetchall()


@pytest.fixture
def clock(pair: Replicas) -> Clock:
    return Clock(pair.database.admin_url).install()


@pytest.mark.parametrize(
    ("away", "charged"),
    [(nothing, True), (restarted, False), (promoted, False), (another_standby_required, False)],
)
def test_a_lease_that_ends_while_the_database_is_away_charges_no_try(
    pair: Replicas, clock: Clock, away: Callable[[Replicas], Database], charged: bool
) -> None:
    job = claim(pair.database)
    database = away(pair)
    assert reclaim(database, Clock(database.admin_url)) == [("pending", charged)]
    with closing(database.connect_admin()) as admin:
        [(tries, error)] = admin.execute(
            "select tries, last_error from fencepost.job_waiting where job_id = %s", (job,)
        ).fetchall()
    assert tries == int(charged)
    assert ("the database was away" in error) is not charged


def test_a_lease_that_ends_while_commits_wait_for_a_standby_charges_no_try(
    pair: Replicas, clock: Clock
) -> None:
    pair.require_standby(True)
    claim(pair.database)
    pair.standby.restart()
    # Every statement of it waits until the standby is there.
    assert reclaim(pair.database, clock) == [("pending", False)]


def test_planted_bug_without_the_look_a_failover_charges_a_try(pair: Replicas, clock: Clock) -> None:
    with closing(psycopg.connect(pair.database.admin_url, autocommit=True)) as admin:
        admin.execute(NO_LOOK)
    claim(pair.database)
    database = promoted(pair)
    assert reclaim(database, Clock(database.admin_url)) == [("pending", True)]


def test_a_job_that_ends_the_database_each_time_is_charged_in_the_end(pair: Replicas, clock: Clock) -> None:
    claim(pair.database)
    with closing(pair.database.connect_admin()) as admin:
        admin.execute(ALWAYS_AWAY)
        seen: list[bool] = []
        for _ in range(LOSSES_MAX + 1):
            clock.advance(10)
            [(charged,)] = admin.execute("select charged from fencepost.job_reclaim(10)").fetchall()
            seen.append(charged)
            admin.execute(CLAIM_SUSPECTS, (OWNER,))
    assert seen == [False] * LOSSES_MAX + [True]
