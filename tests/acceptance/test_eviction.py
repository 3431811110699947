"""Only the holder of what has expired is ended, and no session that merely waits beside us."""

import asyncio
import threading
from concurrent.futures import Future
from contextlib import closing

import psycopg
import pytest

from fencepost.embedded._deadline import Deadline
from fencepost.errors import NotOwner, Refusal
from fencepost.kernel import lease
from fencepost.kernel.drivers import run
from fencepost.kernel.eviction import EvictionDelay, of_lease, take_over, take_over_sync
from fencepost.testing import Clock, HistoryLine, check, once
from tests.acceptance.conftest import Shop
from tests.acceptance.takeovers import LONG_LEASE_SECONDS, NOUNS, Noun, outcome_after_waking, paused_holder

IMPATIENT = EvictionDelay(first_pause_seconds=0.1, longest_pause_seconds=0.2, seconds_max=10)
LEASE = NOUNS[0]


@pytest.mark.parametrize("noun", NOUNS, ids=lambda noun: noun.name)
def test_within_the_grace_no_backend_is_evicted(noun: Noun, shop: Shop, clock: Clock) -> None:
    check_nobody_is_evicted_within_the_grace(noun, shop, clock, EvictionDelay(0.05, 0.05, 0.3))


def check_nobody_is_evicted_within_the_grace(
    noun: Noun, shop: Shop, clock: Clock, patience: EvictionDelay
) -> None:
    with paused_holder(noun, shop.url, "copy") as holder:
        clock.advance(LONG_LEASE_SECONDS + 1)
        with pytest.raises(psycopg.errors.LockNotAvailable):
            take_over_sync(shop.connect, noun.takeover(3600), patience)
        assert shop.evicted() == set()
        assert outcome_after_waking(holder) == "outcome committed"
    check([HistoryLine("asked", "page-1"), *shop.effects()], once())


def test_the_holder_of_a_valid_lease_is_left_alone(shop: Shop) -> None:
    with paused_holder(LEASE, shop.url, "copy") as holder:
        with pytest.raises(NotOwner):
            take_over_sync(shop.connect, LEASE.takeover(0), IMPATIENT)
        assert outcome_after_waking(holder) == "outcome committed"
    assert shop.evicted() == set()


def test_of_many_takers_one_wins_and_only_the_holder_is_ended(shop: Shop, clock: Clock) -> None:
    """The second taker waits for the first in line, which is as innocent as it is."""
    outcomes: list[str] = []

    def take(owner: str) -> None:
        takeover = of_lease("printer", owner, 60, grace_seconds=0)
        try:
            outcomes.append(take_over_sync(shop.connect, takeover, IMPATIENT).owner)
        except Refusal as refusal:
            outcomes.append(refusal.reason)

    with paused_holder(LEASE, shop.url, "copy") as holder:
        clock.advance(LONG_LEASE_SECONDS + 1)
        takers = [threading.Thread(target=take, args=(f"taker-{n}",)) for n in range(4)]
        for taker in takers:
            taker.start()
        for taker in takers:
            taker.join()
        assert shop.evicted() == {holder.backend}
    assert sorted(outcomes)[:3] == ["not_owner"] * 3
    assert sorted(outcomes)[3].startswith("taker-")


def test_a_caller_that_waits_second_has_the_holder_ended_and_not_the_first_in_line(
    shop: Shop, clock: Clock
) -> None:
    # The holder is closed first, so that nothing waits for it when an assertion has failed.
    with shop.connect() as first, shop.connect() as second, closing(shop.connect()) as holder:
        held = run(holder, lease.acquire("printer", "old", LONG_LEASE_SECONDS))
        holder.execute("begin")
        run(holder, lease.fence("printer", held.token))
        clock.advance(LONG_LEASE_SECONDS + 1)
        takers = [_wait_in_line(shop, taker) for taker in (first, second)]
        with shop.connect() as evictor:
            evict = "select fencepost.lease_evict('printer', %s, '0')"
            assert evictor.execute(evict, (second.info.backend_pid,)).fetchall() == [
                (holder.info.backend_pid,)
            ]
        assert [taker.result() for taker in takers] == ["acquired", "not_owner"]


def test_a_taker_that_has_the_row_and_is_about_to_commit_is_spared(shop: Shop, clock: Clock) -> None:
    with shop.connect() as second, shop.connect() as evictor, closing(shop.connect()) as first:
        run(first, lease.acquire("printer", "old", LONG_LEASE_SECONDS))
        clock.advance(LONG_LEASE_SECONDS + 1)
        first.execute("begin")
        run(first, lease.acquire("printer", "first", 60))
        waiting = _wait_in_line(shop, second)
        evict = of_lease("printer", "second", 60, grace_seconds=0).evict
        assert run(evictor, evict(second.info.backend_pid, [])) == [first.info.backend_pid]
        first.execute("commit")
        assert waiting.result() == "not_owner"
    assert shop.evicted() == set()


async def test_a_cancelled_takeover_leaves_no_caller_waiting(shop: Shop, clock: Clock) -> None:
    with paused_holder(LEASE, shop.url, "copy"):
        clock.advance(LONG_LEASE_SECONDS + 1)
        patient = EvictionDelay(first_pause_seconds=30)
        takeover = asyncio.create_task(take_over(shop.connect_async, LEASE.takeover(0), patient))
        await asyncio.to_thread(Deadline(60, "the taker waits").wait, lambda: _waits(shop))
        takeover.cancel()
        assert (await asyncio.wait([takeover], timeout=60))[0], "the cancelled takeover still waits"
        assert takeover.cancelled()
        assert not _waits(shop)


def test_the_looks_are_spaced_and_end() -> None:
    assert list(EvictionDelay(0.5, 2, 6).pauses()) == [0.5, 1.0, 2, 2, 0.5]


def _wait_in_line(shop: Shop, connection: psycopg.Connection[tuple[object, ...]]) -> Future[str]:
    """Let a plain taker wait behind those that wait already; the future has its answer."""
    owner = f"taker-{connection.info.backend_pid}"
    outcome: Future[str] = Future()

    def acquire() -> None:
        try:
            run(connection, lease.acquire("printer", owner, 60))
        except Refusal as refusal:
            outcome.set_result(refusal.reason)
        except psycopg.OperationalError:
            outcome.set_result("ended")
        else:
            outcome.set_result("acquired")

    threading.Thread(target=acquire).start()
    Deadline(60, f"{owner} waits").wait(lambda: _waits(shop, connection.info.backend_pid))
    return outcome


def _waits(shop: Shop, pid: int | None = None) -> bool:
    with shop.database.connect_admin() as admin:
        query = "select exists (select from pg_locks where not granted and pid = coalesce(%s, pid))"
        row = admin.execute(query, (pid,)).fetchone()
    return row is not None and bool(row[0])
