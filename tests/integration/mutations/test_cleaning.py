"""Forgetting keys: all that are past their retention, none before it, and a lag that can be seen."""

from typing import Any

import structlog.testing

from fencepost import Fencepost
from fencepost.embedded import Database
from fencepost.kernel import idempotency
from fencepost.retention import Retention, RetentionMetrics
from fencepost.settings import Settings
from fencepost.testing import Clock
from fencepost_players import _queries as queries
from fencepost_players import catalog
from fencepost_players.requests import CreatePlayer
from fencepost_players.service import Players

KEEP = Settings(key_keep_seconds=60, key_clean_batch=10, key_clean_seconds=5, key_lag_alert_seconds=30)


def lag(metrics: RetentionMetrics) -> float:
    value: Any = metrics.idempotency_lag._value  # pyright: ignore[reportPrivateUsage]
    return float(value.get())


async def claim(fp: Fencepost, name: str, count: int) -> None:
    await fp.run(idempotency.claim_many("player:ann", [f"{name}-{n}" for n in range(count)]))


async def test_a_tick_forgets_everything_that_is_past_its_retention_and_nothing_else(
    database: Database,
) -> None:
    with Clock(database.admin_url) as clock:
        async with Fencepost(database.url) as fp:
            metrics = RetentionMetrics.on(fp.metrics)
            retention = Retention(fp, KEEP, metrics)
            await claim(fp, "old", 35)
            clock.advance(61)
            await claim(fp, "new", 5)
            wait_seconds = await retention.delete_expired_keys()
            assert 4 <= wait_seconds <= 6
            with database.connect_admin() as admin:
                rows = admin.execute(
                    "select request_id from fencepost.player_mutation_idempotency"
                ).fetchall()
            assert sorted(row[0] for row in rows) == [f"new-{n}" for n in range(5)]
            assert lag(metrics) == 0


async def test_a_cleaning_that_falls_behind_shows_its_lag_and_keeps_the_retention(database: Database) -> None:
    with Clock(database.admin_url) as clock:
        async with Fencepost(database.url) as fp:
            metrics = RetentionMetrics.on(fp.metrics)
            retention = Retention(fp, KEEP, metrics)
            await claim(fp, "old", 1)
            clock.advance(160)
            # A transaction holds the row, so that nothing can delete it.
            with database.connect_admin() as admin, admin.transaction():
                admin.execute("select from fencepost.idempotency_key for update")
                with structlog.testing.capture_logs() as logs:
                    await retention.delete_expired_keys()
            assert 99 < lag(metrics) < 120
            assert [entry["event"] for entry in logs if entry["log_level"] == "warning"] == [
                "idempotency_cleanup_behind"
            ]
            await retention.delete_expired_keys()
            assert lag(metrics) == 0


async def test_every_node_cleans_and_none_waits_for_another(database: Database) -> None:
    with Clock(database.admin_url) as clock:
        async with Fencepost(database.url) as one, Fencepost(database.url) as two:
            await claim(one, "old", 40)
            clock.advance(61)
            first = idempotency.clean(60, 20)
            async with one.transaction() as tx:
                assert await tx.run(first) == 20
                assert await two.run(first) == 20
            assert await two.run(first) == 0


async def test_a_key_with_a_retention_of_its_own_goes_by_it(database: Database) -> None:
    """Players keep an hour, the library a day: each key is removed in its own time, by either."""
    kept = "select key from fencepost.idempotency_keys order by key"
    with Clock(database.admin_url) as clock:
        async with Fencepost(database.url) as fp:
            retention = Retention(fp, Settings(), RetentionMetrics.on(fp.metrics))
            await fp.run(queries.define("resource", "gold", catalog.Resource()))
            await Players(fp).run(CreatePlayer(player_id="ann"), request_id="of-a-player")
            await claim(fp, "of-the-library", 1)
            with database.connect_admin() as admin:
                admin.autocommit = True
                for seconds, left in (
                    (3599, ["of-a-player", "of-the-library-0"]),
                    (2, ["of-the-library-0"]),
                    (86_400 - 3602, ["of-the-library-0"]),
                    (2, []),
                ):
                    clock.advance(seconds)
                    await retention.delete_expired_keys()
                    assert [row[0] for row in admin.execute(kept)] == left


async def test_the_lag_is_that_of_whichever_key_is_most_overdue(database: Database) -> None:
    with Clock(database.admin_url) as clock:
        async with Fencepost(database.url) as fp:
            await Players(fp).run(CreatePlayer(player_id="ann"), request_id="r1")
            clock.advance(3610)
            assert 9 < await fp.run(idempotency.lag(86_400)) < 40
            await claim(fp, "other", 1)
            clock.advance(100)
            assert 90 < await fp.run(idempotency.lag(50)) < 160
