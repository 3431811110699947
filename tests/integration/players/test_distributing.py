"""Rewards inside a transaction of the caller's: with its writes, once for the key, one version."""

import pytest

from fencepost.errors import Duplicate, Mismatch
from fencepost_players import _queries as queries
from fencepost_players.catalog import Reward
from fencepost_players.distributor import PlayerVersionBumper, Summary, distribute_and_sync
from fencepost_players.service import Players
from tests.integration.players.conftest import balances, enrol

REWARDS = (Reward(resource="gold", count=3), Reward(piece="sword", quality=2), Reward(item="potion"))
BUMPER = PlayerVersionBumper()


async def give(players: Players, key: str = "quest-1", *, fails: bool = False) -> Summary:
    async with players.fp.transaction() as tx:
        summary = await distribute_and_sync(tx, "ann", key, "quest", REWARDS, BUMPER)
        if fails:
            raise RuntimeError
        return summary


async def test_rewards_are_granted_once_for_a_key_and_a_repeat_gets_the_first_summary(
    players: Players,
) -> None:
    await enrol(players, "ann")
    first, again = await give(players), await give(players)
    assert again == first
    assert first.version == (await players.player("ann")).version == 2
    assert [next(iter(granted.values())) for granted in first.granted] == ["gold", "sword", "potion"]
    assert await balances(players, "ann") == {"gold": 3, "sword": 1, "potion": 1}
    (event,) = await players.fp.run(queries.history("ann", limit=1))
    assert (event.source, event.request_id, event.version) == ("quest", "quest-1", 2)


async def test_with_the_callers_writes_or_not_at_all(players: Players) -> None:
    await enrol(players, "ann")
    with pytest.raises(RuntimeError):
        await give(players, fails=True)
    assert await balances(players, "ann") == {}
    await give(players)
    assert (await balances(players, "ann"))["gold"] == 3


async def test_several_distributions_in_one_transaction_raise_the_version_once(players: Players) -> None:
    await enrol(players, "ann")
    async with players.fp.transaction() as tx:
        for key in ("a", "b", "c"):
            await distribute_and_sync(tx, "ann", key, "mail", REWARDS[:1], BUMPER)
    assert (await players.player("ann")).version == 2
    assert await balances(players, "ann") == {"gold": 9}


async def test_another_reward_under_the_same_key_is_a_mismatch(players: Players) -> None:
    await enrol(players, "ann")
    await give(players)
    with pytest.raises(Mismatch):
        async with players.fp.transaction() as tx:
            await distribute_and_sync(tx, "ann", "quest-1", "quest", REWARDS[:1], BUMPER)


async def test_a_summary_too_large_to_be_kept_makes_the_repeat_a_duplicate(players: Players) -> None:
    await enrol(players, "ann")
    many = [Reward(piece="sword", count=28) for _ in range(60)]
    async with players.fp.transaction() as tx:
        await distribute_and_sync(tx, "ann", "k", "mail", many, BUMPER)
    with pytest.raises(Duplicate):
        async with players.fp.transaction() as tx:
            await distribute_and_sync(tx, "ann", "k", "mail", many, BUMPER)
    assert (await players.player("ann")).version == 2
