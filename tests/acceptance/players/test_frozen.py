"""A transaction that stands still while it holds a player is ended by a process that waits for the player."""

import asyncio
import time
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta

import pytest

from fencepost import Fencepost
from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from fencepost.kernel.eviction import EvictionDelay
from fencepost.testing import Child, Clock
from fencepost_players import _queries as queries
from fencepost_players.catalog import Reward
from fencepost_players.distributor import distribute_and_sync
from fencepost_players.mutations.errors import Aborted
from fencepost_players.requests import CreatePlayer, GrantItems
from fencepost_players.service import Players
from tests.acceptance import actors
from tests.acceptance.conftest import Shop
from tests.acceptance.takeovers import Holder, outcome_after_waking
from tests.integration.kernel.caller import Caller
from tests.integration.players import env
from tests.integration.players.guards import WAITS

BOUND_SECONDS = 20
LOOKING = EvictionDelay(first_pause_seconds=0.1, longest_pause_seconds=0.1, seconds_max=60)
BLIND = EvictionDelay(first_pause_seconds=3600, seconds_max=3600)
GRANT = GrantItems(player_id="ann", resources={"gold": 1})
EVICTED = """
    select subject, detail -> 'pid' as pid from fencepost.events where noun = 'player' and event = 'evicted'
"""


@pytest.fixture
async def fp(shop: Shop, clock: Clock) -> AsyncIterator[Fencepost]:
    """With one player. The clock comes first: it is put into no database that has work in it."""
    async with Fencepost(shop.url) as fp:
        await env.load(fp)
        async with Fencepost(shop.url) as other:
            await Players(other).run(CreatePlayer(player_id="ann"), request_id="create")
        yield fp


@pytest.fixture
def admin(database: Database) -> Iterator[Caller]:
    with closing(Caller(database.admin_url)) as caller:
        yield caller


@contextmanager
def frozen_holder(url: str, posture: str = "copy") -> Generator[Holder]:
    with Child(actors.hold_player, url, posture, "ann") as child:
        backend = int(child.line("holding").split()[1])
        child.stop()
        yield Holder(child, backend)


async def wait_until_blocked(admin: Caller) -> None:
    await asyncio.to_thread(Deadline(60, "a process waits for it").wait, lambda: bool(admin.value(WAITS)))


@pytest.mark.parametrize("posture", ["copy", "unread"])
async def test_a_mutation_that_has_waited_for_the_bound_ends_the_holder_and_goes_on(
    posture: str, fp: Fencepost, shop: Shop, admin: Caller, clock: Clock
) -> None:
    players = Players(fp, patience=LOOKING)
    with frozen_holder(shop.url, posture) as holder:
        granting = asyncio.create_task(players.run(GRANT, request_id="r1"))
        await wait_until_blocked(admin)
        clock.advance(BOUND_SECONDS + 1)
        assert (await granting).layer == "executed"
        assert admin.rows(EVICTED) == [{"subject": "ann", "pid": holder.backend}]
        assert outcome_after_waking(holder).startswith("outcome failed")
    assert players.metrics.evictions.labels("players")._value.get() == 1  # pyright: ignore[reportPrivateUsage]
    assert await fp.run(queries.audit_check("ann")) == []


async def test_no_backend_is_terminated_before_the_bound_nor_without_a_waiter(
    fp: Fencepost, shop: Shop, admin: Caller, clock: Clock
) -> None:
    evict = "select fencepost.player_evict(array['ann', 'nobody'])"
    with frozen_holder(shop.url) as holder, closing(Caller(shop.url)) as app:
        clock.freeze(clock.now() + timedelta(hours=1))
        assert app.column(evict) == []
        clock.freeze(clock.now() - timedelta(hours=1))
        granting = asyncio.create_task(Players(fp, patience=LOOKING).run(GRANT, request_id="r1"))
        await wait_until_blocked(admin)
        assert app.column(evict) == []
        assert outcome_after_waking(holder) == "outcome committed"
        assert (await granting).layer == "executed"
    assert admin.rows(EVICTED) == []


async def test_a_caller_that_waits_inside_a_transaction_of_its_own_ends_the_holder_too(
    fp: Fencepost, shop: Shop, clock: Clock
) -> None:
    players = Players(fp, patience=LOOKING)
    with frozen_holder(shop.url):
        clock.advance(BOUND_SECONDS + 1)
        async with fp.transaction() as tx:
            await players.join(tx, GRANT, request_id="r1")
    with frozen_holder(shop.url):
        rewards = [Reward(resource="gold")]
        async with fp.transaction() as tx:
            await distribute_and_sync(tx, "ann", "quest-1", "quest", rewards, players.version_bumper)
    assert (await players.player("ann")).state["resources"] == {"gold": 2}
    assert await fp.run(queries.audit_check("ann")) == []


async def test_without_the_looks_the_holder_blocks_the_player_and_the_request_is_aborted(
    fp: Fencepost, shop: Shop, admin: Caller, clock: Clock
) -> None:
    admin.execute(
        "alter function fencepost.player_execute(text,text,text,text,text,text,bigint,jsonb,interval,boolean)"
        " set lock_timeout = '300ms'"
    )
    clock.advance(BOUND_SECONDS + 1)
    with frozen_holder(shop.url) as holder:
        with pytest.raises(Aborted) as aborted:
            await Players(fp, patience=BLIND).run(GRANT, request_id="r1")
        assert aborted.value.meta["reason"] == "contention"
        assert outcome_after_waking(holder) == "outcome committed"


async def test_another_login_than_the_waiters_terminates_no_backend(
    fp: Fencepost, shop: Shop, admin: Caller, database: Database, clock: Clock
) -> None:
    with frozen_holder(shop.url) as holder:
        granting = asyncio.create_task(Players(fp, patience=BLIND).run(GRANT, request_id="r1"))
        await wait_until_blocked(admin)
        clock.advance(BOUND_SECONDS + 1)
        assert admin.column("select fencepost.player_evict(array['ann'])") == []
        with closing(Caller(database.viewer_url)) as viewer:
            viewer.failed("42501", "select fencepost.player_evict(array['ann'])")
        assert outcome_after_waking(holder) == "outcome committed"
        await granting


@pytest.mark.full
async def test_in_real_time_too_the_holder_is_ended_at_the_bound(fp: Fencepost, shop: Shop) -> None:
    with frozen_holder(shop.url) as holder:
        began = time.monotonic()
        assert (await Players(fp).run(GRANT, request_id="r1")).layer == "executed"
        assert BOUND_SECONDS <= time.monotonic() - began <= BOUND_SECONDS + 10
        assert outcome_after_waking(holder).startswith("outcome failed")
