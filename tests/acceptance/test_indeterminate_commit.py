"""The reply to a COMMIT is lost: it may have happened. The same claim again tells, and nothing is doubled."""

import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fencepost import Fencepost, IndeterminateCommit
from fencepost.settings import Settings
from fencepost.testing import DropRule, History, HistoryBroken, Proxy, check, once
from tests.acceptance import callers
from tests.acceptance.conftest import Shop, seeded_chance

QUICK_CYCLES = 150
FULL_CYCLES = 3000
CYCLES_TO_CATCH = 30


@pytest.fixture
def proxy(shop: Shop) -> Iterator[Proxy]:
    with Proxy.for_postgres(shop.url) as proxy:
        yield proxy


@pytest.fixture
async def fp(proxy: Proxy) -> AsyncIterator[Fencepost]:
    async with Fencepost(proxy.url, settings=Settings(pool_min=1, pool_max=2)) as fp:
        yield fp


async def test_a_lost_reply_is_said_to_be_indeterminate(fp: Fencepost, proxy: Proxy, shop: Shop) -> None:
    proxy.lose_commit_reply()
    with pytest.raises(IndeterminateCommit, match="claim the same request again"):
        await _insert(fp, "a")
    proxy.lose_commit()
    with pytest.raises(IndeterminateCommit):
        await _insert(fp, "b")
    assert [effect.key for effect in shop.effects()] == ["a"]


def test_the_sync_form_says_the_same(fp: Fencepost, proxy: Proxy, shop: Shop) -> None:
    with fp.sync() as sync:
        proxy.lose_commit_reply()
        with pytest.raises(IndeterminateCommit), sync.transaction() as tx:
            tx.execute("insert into ledger (key) values ('a')")
        with sync.transaction() as tx:
            tx.execute("insert into ledger (key) values ('b')")
    assert [effect.key for effect in shop.effects()] == ["a", "b"]


@pytest.mark.parametrize("caller", [callers.settles_by_its_key, callers.settles_without_a_response])
async def test_an_effect_happens_once_whichever_way_its_commit_went(
    caller: callers.Caller, fp: Fencepost, proxy: Proxy, shop: Shop, tmp_path: Path
) -> None:
    await _try_and_check(caller, fp, proxy, shop, tmp_path, cycles=QUICK_CYCLES)


@pytest.mark.full
@pytest.mark.timeout(900)
async def test_an_effect_happens_once_in_thousands_of_lost_commits(
    fp: Fencepost, proxy: Proxy, shop: Shop, tmp_path: Path
) -> None:
    await _try_and_check(callers.settles_by_its_key, fp, proxy, shop, tmp_path, cycles=FULL_CYCLES)


@pytest.mark.parametrize(
    ("wrong", "breach"),
    [
        (callers.takes_unknown_for_failed, "took effect [0-9]+ times"),
        (callers.takes_unknown_for_done, "was lost"),
        (callers.claims_before_in_another_transaction, "was lost"),
        (callers.claims_after_in_another_transaction, "took effect [0-9]+ times"),
    ],
)
async def test_a_wrong_caller_is_caught(
    wrong: callers.Caller, breach: str, fp: Fencepost, proxy: Proxy, shop: Shop, tmp_path: Path
) -> None:
    with pytest.raises(HistoryBroken, match=breach):
        await _try_and_check(wrong, fp, proxy, shop, tmp_path, cycles=CYCLES_TO_CATCH)


async def _try_and_check(
    caller: callers.Caller, fp: Fencepost, proxy: Proxy, shop: Shop, tmp_path: Path, *, cycles: int
) -> None:
    chance = seeded_chance()
    history = History(tmp_path / "history")
    drop_rules = [await _one_cycle(caller, fp, proxy, history, f"grant-{n}", chance) for n in range(cycles)]
    fired = sum(drop_rule.fired.is_set() for drop_rule in drop_rules)
    assert fired > cycles / 2, f"only {fired} of {cycles} commits were hit"
    check([*history.entries(), *shop.effects()], once())


async def _one_cycle(
    caller: callers.Caller, fp: Fencepost, proxy: Proxy, history: History, key: str, chance: random.Random
) -> DropRule:
    lose = chance.choice([proxy.lose_commit_reply, proxy.lose_commit])
    # A caller with two transactions has two commits to lose; one with a single commit escapes now and then.
    drop_rule = lose(nth=chance.choice([1, 1, 2]))
    history.record("asked", key)
    await caller(fp, key)
    return drop_rule


async def _insert(fp: Fencepost, key: str) -> None:
    async with fp.transaction() as tx:
        await tx.execute("insert into ledger (key) values (%s)", (key,))
