"""A holder that is stopped inside its fenced transaction loses the thing, and its late commit is refused."""

import pytest

from fencepost.embedded._deadline import Deadline
from fencepost.kernel.drivers import run
from fencepost.kernel.eviction import EvictionDelay, evict_job, take_over, take_over_sync
from fencepost.testing import Clock, HistoryLine, check, once, tokens_grow
from tests.acceptance.conftest import Shop
from tests.acceptance.takeovers import (
    JOB_ID,
    LONG_LEASE_SECONDS,
    NOUNS,
    SHORT_LEASE_SECONDS,
    Noun,
    outcome_after_waking,
    paused_holder,
)

IMPATIENT = EvictionDelay(first_pause_seconds=0.1, longest_pause_seconds=0.2, seconds_max=10)

nouns = pytest.mark.parametrize("noun", NOUNS, ids=lambda noun: noun.name)


@nouns
def test_a_holder_that_idles_is_ended_by_its_own_fence(noun: Noun, shop: Shop, clock: Clock) -> None:
    with paused_holder(noun, shop.url, "idle", SHORT_LEASE_SECONDS) as holder, shop.connect() as taker:
        clock.advance(SHORT_LEASE_SECONDS + 1)
        taker.execute("set lock_timeout = '10s'")
        run(taker, noun.takeover(0).attempt)
        noun.work(taker)
        assert outcome_after_waking(holder).startswith("outcome failed")
    assert shop.evicted() == set()
    check_only_the_new_holder_wrote(shop)


@nouns
@pytest.mark.parametrize("posture", ["copy", "unread"])
def test_a_holder_that_no_timeout_ends_is_evicted(noun: Noun, posture: str, shop: Shop, clock: Clock) -> None:
    with paused_holder(noun, shop.url, posture) as holder, shop.connect() as taker:
        clock.advance(LONG_LEASE_SECONDS + 1)
        take_over_sync(shop.connect, noun.takeover(0), IMPATIENT)
        noun.work(taker)
        assert outcome_after_waking(holder).startswith("outcome failed")
        assert shop.evicted() == {holder.backend}
    check_only_the_new_holder_wrote(shop)


@nouns
async def test_the_async_form_evicts_as_well(noun: Noun, shop: Shop, clock: Clock) -> None:
    with paused_holder(noun, shop.url, "copy") as holder, shop.connect() as taker:
        clock.advance(LONG_LEASE_SECONDS + 1)
        await take_over(shop.connect_async, noun.takeover(0), IMPATIENT)
        noun.work(taker)
        assert outcome_after_waking(holder).startswith("outcome failed")
        assert shop.evicted() == {holder.backend}
    check_only_the_new_holder_wrote(shop)


@nouns
@pytest.mark.full
@pytest.mark.parametrize("posture", ["idle", "copy", "unread"])
def test_in_real_time_too_every_paused_holder_loses(noun: Noun, posture: str, shop: Shop) -> None:
    with paused_holder(noun, shop.url, posture, SHORT_LEASE_SECONDS) as holder, shop.connect() as taker:
        Deadline(60, "the lease has run out").wait(shop.nothing_is_held)
        take_over_sync(shop.connect, noun.takeover(0), IMPATIENT)
        noun.work(taker)
        assert outcome_after_waking(holder).startswith("outcome failed")
    check_only_the_new_holder_wrote(shop)


async def test_a_worker_frees_a_job_by_its_id_and_may_come_late(shop: Shop, clock: Clock) -> None:
    _, noun = NOUNS
    with paused_holder(noun, shop.url, "copy") as holder, shop.connect() as taker:
        clock.advance(LONG_LEASE_SECONDS + 1)
        await evict_job(shop.url, JOB_ID, 0)
        await evict_job(shop.url, JOB_ID, 0)
        noun.work(taker)
        await evict_job(shop.url, JOB_ID, 0)
        assert outcome_after_waking(holder).startswith("outcome failed")
    check_only_the_new_holder_wrote(shop)


def check_only_the_new_holder_wrote(shop: Shop) -> None:
    effects = shop.effects()
    check([HistoryLine("asked", "page-1"), *effects], once(), tokens_grow())
    assert [effect.detail["who"] for effect in effects] == ["new"]
