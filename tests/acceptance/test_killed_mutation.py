"""A process is killed at any step of a mutation; another one repeats the request. The effect happens once."""

from collections.abc import Awaitable, Callable

import pytest

from fencepost.testing import Child, HistoryBroken, HistoryLine, Signals, check, once
from tests.acceptance import mutations
from tests.acceptance.conftest import Shop, seeded_chance

KEYS = 40
QUICK_KILLS = 4
FULL_KILLS = 30


@pytest.mark.parametrize("step", mutations.STEPS)
async def test_killed_at_a_step_and_repeated_the_effect_happens_once(step: str, shop: Shop) -> None:
    with Child(mutations.grant, shop.url, "grant-1", crash=f"mutation.{step}:kill") as victim:
        victim.be_killed()
    answer = await mutations.grant(shop.url, "grant-1")
    check([HistoryLine("asked", "grant-1"), *shop.effects()], once())
    assert answer == ("replay" if step == "after_commit" else "claimed")


def test_killed_again_and_again_each_effect_happens_once(shop: Shop) -> None:
    _kill_at_random(shop, QUICK_KILLS, keys=KEYS)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_killed_for_minutes_each_effect_happens_once(shop: Shop) -> None:
    _kill_at_random(shop, FULL_KILLS, keys=5 * KEYS)


@pytest.mark.parametrize(
    ("wrong", "breach"),
    [(mutations.claim_then_grant, "was lost"), (mutations.grant_then_claim, "took effect 2 times")],
)
async def test_a_key_in_a_transaction_of_its_own_is_caught(
    wrong: Callable[[str, str], Awaitable[None]], breach: str, shop: Shop
) -> None:
    with Child(wrong, shop.url, "grant-1", crash="mutation.between:kill") as victim:
        victim.be_killed()
    await wrong(shop.url, "grant-1")
    with pytest.raises(HistoryBroken, match=breach):
        check([HistoryLine("asked", "grant-1"), *shop.effects()], once())


def _kill_at_random(shop: Shop, kills: int, *, keys: int) -> None:
    chance = seeded_chance()
    for _ in range(kills):
        with Signals() as signals, Child(mutations.grant_many, shop.url, keys, signals=signals) as victim:
            signals.expect("mutation.settled", count=chance.randrange(1, keys), within=60)
            victim.kill()
    with Child(mutations.grant_many, shop.url, keys) as survivor:
        survivor.succeed(within=60)
    check([*(HistoryLine("asked", f"grant-{n}") for n in range(keys)), *shop.effects()], once())
