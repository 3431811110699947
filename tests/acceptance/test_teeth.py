"""The gallery of mutants: a guarantee is broken on purpose, and the test that guards it must fail.

Each mutant is planted in the kernel of one test's own database.
"""

import psycopg
import pytest
from psycopg.errors import LockNotAvailable

from fencepost.errors import Refusal
from fencepost.kernel.drivers import run
from fencepost.kernel.eviction import EvictionDelay
from fencepost.testing import Clock, HistoryBroken
from tests.acceptance import test_eviction, test_heartbeat, test_paused_holder
from tests.acceptance.conftest import Shop
from tests.acceptance.takeovers import (
    LONG_LEASE_SECONDS,
    NOUNS,
    SHORT_LEASE_SECONDS,
    Noun,
    outcome_after_waking,
    paused_holder,
)

LEASE_FENCE = "fencepost.lease_fence(text,bigint)"
JOB_FENCE = "fencepost.job_fence(bigint,bigint,text)"
EVICT = "fencepost._evict(text,text,integer,regclass,integer[])"
# Longer than the idle time that a fence allows.
BLOCKED = "set lock_timeout = '1100ms'"

nouns = pytest.mark.parametrize("noun", NOUNS, ids=lambda noun: noun.name)


@nouns
def test_without_its_idle_time_a_fence_blocks_the_takeover(noun: Noun, shop: Shop, clock: Clock) -> None:
    shop.mutate("fencepost._bound_idle_time(interval)", "if v_now_ms = 0", "if false and v_now_ms = 0")
    shop.mutate("fencepost._bound_idle_time(interval)", "or v_now_ms > v_want_ms", "")
    shop.mutate(JOB_FENCE, "case when current_setting", "case when true or current_setting")
    with paused_holder(noun, shop.url, "idle", SHORT_LEASE_SECONDS) as holder, shop.connect() as taker:
        clock.advance(SHORT_LEASE_SECONDS + 1)
        taker.execute(BLOCKED)
        with pytest.raises(LockNotAvailable):
            run(taker, noun.takeover(0).attempt)
        assert outcome_after_waking(holder) == "outcome committed"


@nouns
@pytest.mark.parametrize("posture", ["copy", "unread"])
def test_without_eviction_a_busy_holder_blocks_the_takeover(
    noun: Noun, posture: str, shop: Shop, clock: Clock
) -> None:
    with paused_holder(noun, shop.url, posture, SHORT_LEASE_SECONDS) as holder, shop.connect() as taker:
        clock.advance(SHORT_LEASE_SECONDS + 1)
        taker.execute(BLOCKED)
        with pytest.raises(LockNotAvailable):
            run(taker, noun.takeover(0).attempt)
        assert outcome_after_waking(holder) == "outcome committed"


def test_a_fence_that_does_not_lock_lets_a_zombie_commit(shop: Shop, clock: Clock) -> None:
    shop.mutate(LEASE_FENCE, "for key share", "")
    with paused_holder(NOUNS[0], shop.url, "copy") as holder, shop.connect() as taker:
        clock.advance(LONG_LEASE_SECONDS + 1)
        run(taker, NOUNS[0].takeover(0).attempt)
        NOUNS[0].work(taker)
        assert outcome_after_waking(holder) == "outcome committed"
    with pytest.raises(HistoryBroken, match="page-1 took effect 2 times"):
        test_paused_holder.check_only_the_new_holder_wrote(shop)


def test_a_fence_that_locks_too_much_blocks_the_heartbeat_of_a_lease(shop: Shop, clock: Clock) -> None:
    shop.mutate(LEASE_FENCE, "for key share", "for share")
    renewal = test_heartbeat.test_a_lease_is_renewed_while_its_fenced_transaction_writes
    with (
        shop.connect() as handler,
        test_heartbeat.impatient(shop) as heartbeat,
        pytest.raises(LockNotAvailable),
    ):
        renewal(handler, heartbeat, clock)


def test_a_fence_that_locks_too_much_blocks_the_heartbeat_of_a_job(shop: Shop, clock: Clock) -> None:
    shop.mutate(JOB_FENCE, "for key share", "for share")
    renewal = test_heartbeat.test_a_job_is_renewed_while_its_fenced_transaction_writes
    with shop.connect() as handler, test_heartbeat.impatient(shop) as heartbeat, pytest.raises(Refusal):
        renewal(handler, heartbeat, clock)


def test_a_renewal_that_waits_is_held_up_by_one_open_finish(shop: Shop, clock: Clock) -> None:
    shop.mutate("fencepost.job_renew_many(bigint[],bigint[],text)", "skip locked", "")
    renewal = test_heartbeat.test_one_open_finish_does_not_hold_up_the_other_renewals
    with (
        shop.connect() as handler,
        test_heartbeat.impatient(shop) as heartbeat,
        pytest.raises(LockNotAvailable),
    ):
        renewal(handler, heartbeat, clock)


def test_a_finish_that_asks_the_clock_again_loses_fenced_work(shop: Shop, clock: Clock) -> None:
    shop.mutate("fencepost._job_is_fenced(bigint,bigint)", "> 0", "< 0")
    with shop.connect() as handler, pytest.raises(Refusal):
        test_heartbeat.test_an_open_finish_commits_after_its_lease_ran_out_if_no_caller_took_over(
            handler, clock
        )


def test_an_eviction_that_ends_its_direct_blocker_ends_fellow_takers(shop: Shop, clock: Clock) -> None:
    shop.mutate(EVICT, "pg_blocking_pids(v_first)", "pg_blocking_pids(p_waiter)")
    with pytest.raises(AssertionError):
        test_eviction.test_a_caller_that_waits_second_has_the_holder_ended_and_not_the_first_in_line(
            shop, clock
        )


def test_an_eviction_that_forgets_what_was_seen_ends_the_winner(shop: Shop, clock: Clock) -> None:
    shop.mutate(EVICT, "p_seen is null or v_pid = any (p_seen)", "true")
    with pytest.raises(psycopg.OperationalError):
        test_eviction.test_a_taker_that_has_the_row_and_is_about_to_commit_is_spared(shop, clock)


def test_an_eviction_that_does_not_ask_for_the_grace_ends_a_holder_too_early(
    shop: Shop, clock: Clock
) -> None:
    shop.mutate(
        "fencepost.lease_evict(text,integer,interval,integer[])",
        "+ p_grace > fencepost.clock()",
        "< '-infinity'",
    )
    # It gets what it waits for at the second look, which on a busy machine comes late: so it has the time.
    with pytest.raises(pytest.fail.Exception):
        test_eviction.check_nobody_is_evicted_within_the_grace(
            NOUNS[0], shop, clock, EvictionDelay(0.05, 0.05, 30)
        )
