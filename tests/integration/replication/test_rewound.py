"""A database that lost commits is noticed by the clients that were answered from them."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from fencepost import Fencepost, Refusal, Rewound
from fencepost.embedded import Database
from fencepost.kernel import _lineage as lineage
from fencepost.kernel._recover import recover
from fencepost.kernel.drivers import run
from fencepost.settings import Settings
from tests.integration.replication.replicas import Replicas
from tests.reused_databases import release

MINUTE = timedelta(minutes=1)
REFUSE = Settings(recover="refuse")


def look(database: Database, mark: str | None = None, *, auto: bool = True) -> lineage.Lineage:
    with closing(database.connect()) as connection:
        return run(connection, lineage.check(mark, recover=auto))


def epochs(database: Database) -> list[Any]:
    with closing(database.connect_admin()) as admin:
        rows = admin.execute("select token from fencepost.event where event = 'epoch_raised' order by token")
        return [epoch for (epoch,) in rows]


def forget_second(database: Database) -> None:
    """As if the last mark were more than a second old: the next look makes another."""
    with closing(database.connect_admin()) as admin:
        admin.execute("update fencepost.lineage_mark set at = at - interval '2 seconds'")


@pytest.fixture
def backup(database: Database) -> Any:
    """A copy of the database, made when it is called: the way of a nightly backup."""
    copy = Database(database.server, f"{database.name}_b")

    def make() -> Database:
        release(database)
        copy.create(template=database.name)
        return copy

    yield make
    copy.drop()


def test_a_mark_that_the_database_gave_and_lost_is_evidence(database: Database, backup: Any) -> None:
    before = look(database)
    restored = backup()
    forget_second(database)
    after = look(database, before.mark)
    assert (after.state, before.mark != after.mark) == ("in_order", True)

    assert look(restored, before.mark).state == "in_order"
    found = look(restored, after.mark)
    assert (found.state, found.epoch, found.evidence["why"]) == ("recovered", 2, "a mark is lost")
    # The same evidence is spent, and so is that of every other client of the lost time.
    assert look(restored, after.mark).state == "in_order"
    assert epochs(restored) == [2]


def test_a_mark_is_missed_also_when_the_numbers_have_grown_past_it(database: Database, backup: Any) -> None:
    mark = look(database).mark
    restored = backup()
    forget_second(database)
    lost = look(database, mark).mark
    for _ in range(3):
        forget_second(restored)
        mark = look(restored, mark).mark
    assert look(restored, lost).state == "recovered"


def test_a_lost_epoch_is_evidence_and_its_tokens_are_passed(database: Database, backup: Any) -> None:
    """The same backup, restored twice: the second recovery goes above what the first one issued."""
    look(database)
    restored = backup()
    recover(database.admin_url, "anna")
    issued = look(database)
    found = look(restored, issued.mark)
    assert (found.state, found.epoch, found.evidence["why"]) == ("recovered", 3, "an epoch is lost")
    floors: list[Any] = []
    for each in (database, restored):
        with closing(each.connect_admin()) as admin:
            floors += admin.execute("select floor from fencepost.token_floor").fetchall()
    assert floors[0] < floors[1]


@pytest.mark.parametrize("forged", ["", "9:x", "999:00000000-0000-0000-0000-000000000000:9:9:" + "0" * 64])
def test_a_mark_of_another_database_says_nothing(database: Database, forged: str) -> None:
    look(database)
    assert look(database, forged).state == "in_order"
    assert epochs(database) == []


def test_until_it_is_recovered_every_client_is_refused(database: Database, backup: Any) -> None:
    mark = look(database).mark
    restored = backup()
    forget_second(database)
    lost = look(database, mark).mark
    assert look(restored, lost, auto=False).state == "rewound"
    # Also a client that knows nothing.
    assert look(restored, auto=False).state == "rewound"
    recover(restored.admin_url, "anna")
    assert look(restored, lost, auto=False).state == "in_order"


async def test_a_client_that_may_not_recover_raises_rewound(database: Database) -> None:
    async with Fencepost(database.url, settings=REFUSE) as fp:
        await fp.leases.acquire("printer", ttl=MINUTE)
    with closing(database.connect_admin()) as admin:
        admin.execute("update fencepost.lineage set timeline = timeline + 1")
    async with Fencepost(database.url, settings=REFUSE) as fp:
        with pytest.raises(Rewound, match="fencepost recover"):
            await fp.leases.acquire("printer", ttl=MINUTE)
        recover(database.admin_url, "anna")
        await fp.leases.acquire("printer", ttl=MINUTE)


async def test_of_many_clients_that_notice_one_raises_the_epoch(database: Database) -> None:
    look(database)
    with closing(database.connect_admin()) as admin:
        admin.execute("update fencepost.lineage set timeline = timeline + 1")
    found = await asyncio.gather(*(asyncio.to_thread(look, database) for _ in range(8)))
    assert sorted(each.state for each in found) == ["in_order"] * 7 + ["recovered"]
    assert epochs(database) == [2]


async def test_a_promotion_that_lost_commits_refuses_the_tokens_of_the_lost_time(pair: Replicas) -> None:
    async with Fencepost(pair.database.url) as fp:
        old = await fp.leases.acquire("printer", ttl=MINUTE)
        pair.wait_until_caught_up()
        pair.standby.kill()
        await fp.leases.release(old)
        lost = await fp.leases.acquire("printer", ttl=MINUTE, owner="lost/boot-1")
    pair.primary.kill()
    pair.standby.start()
    async with Fencepost(pair.promote().url) as fp:
        again = await fp.leases.acquire("printer", ttl=MINUTE, owner="next/boot-1")
        assert again.token > lost.token
        with pytest.raises(Refusal):
            await fp.leases.renew(lost, ttl=MINUTE)
    assert epochs(pair.successor) == [2]


async def test_a_promotion_without_loss_raises_nothing(pair: Replicas) -> None:
    pair.require_standby(True)
    async with Fencepost(pair.database.url) as fp:
        held = await fp.leases.acquire("printer", ttl=MINUTE, owner="me/boot-1")
    pair.primary.kill()
    async with Fencepost(pair.promote().url) as fp:
        renewed = await fp.leases.acquire("printer", ttl=MINUTE, owner="me/boot-1")
        assert renewed.token == held.token
    assert epochs(pair.successor) == []


@pytest.mark.full
async def test_without_the_guard_a_token_is_issued_twice(pair: Replicas) -> None:
    """The control: the same lossy promotion, and the database adopts it as if nothing had happened."""
    async with Fencepost(pair.database.url) as fp:
        old = await fp.leases.acquire("printer", ttl=MINUTE)
        pair.wait_until_caught_up()
        pair.standby.kill()
        await fp.leases.release(old)
        lost = await fp.leases.acquire("printer", ttl=MINUTE, owner="lost/boot-1")
    pair.primary.kill()
    pair.standby.start()
    database = pair.promote()
    with closing(database.connect_admin()) as admin:
        admin.execute("update fencepost.lineage set timeline = null")
        admin.execute("update fencepost.lease set owner = null")
    async with Fencepost(database.url) as fp:
        again = await fp.leases.acquire("printer", ttl=MINUTE, owner="next/boot-1")
        assert again.token == lost.token


def test_callers_that_come_together_to_a_new_database_are_all_given_its_first_mark(
    database: Database,
) -> None:
    check = "select state, mark from fencepost.lineage_check(null, false)"
    with ThreadPoolExecutor(1) as pool, database.connect() as first, database.connect() as second:
        # The first mark is made and not committed; the second caller waits for it.
        first.autocommit = False
        [made] = first.execute(check).fetchall()
        pid = second.info.backend_pid
        answer = pool.submit(lambda: second.execute(check).fetchall())
        blocked_by_first = ([first.info.backend_pid],)
        with database.connect_admin() as admin:
            blocking = "select pg_blocking_pids(%s)"
            while not answer.done() and admin.execute(blocking, (pid,)).fetchone() != blocked_by_first:
                pass
        first.commit()

        assert answer.result(30) == [made]
