"""Short tortures of the whole: nothing breaks. (`tests/gallery` shows that they would see it.)"""

import json

import pytest

from fencepost.torture.ordeal import Ordeal, Outcome, Plan
from fencepost.torture.schedule import chosen_kinds
from fencepost.torture.systems import PLACES

KINDS = [kind for kind in chosen_kinds([]) if kind != "disk-full"]


def run(*systems: str, seconds: float, seed: int, kinds: list[str] = KINDS) -> Outcome:
    # How fast this machine is must not decide: what is late here is late, and what hangs is lost.
    plan = Plan(
        seed,
        seconds,
        systems,
        kinds,
        gap_seconds=0.3,
        server_settings={"fsync": "off", "full_page_writes": "off"},
        liveness_leases=30,
    )
    return Ordeal(plan).run()


def story(outcome: Outcome) -> str:
    return json.dumps(
        {
            "breaches": [f"{system}: {breach}" for system, breach in outcome.judgement.breaches[:20]],
            "effects": dict(outcome.effects),
            "hit": dict(outcome.tally.hit),
            "log": outcome.log[-4000:],
        },
        indent=2,
    )


@pytest.mark.timeout(300)
def test_a_short_torture_of_everything_breaks_nothing() -> None:
    outcome = run(*PLACES, seconds=5, seed=7)

    assert outcome.judgement.breaches == [], story(outcome)
    assert min(outcome.effects.values()) > 0
    assert outcome.tally.hit.total() > 0


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_a_longer_torture_of_everything_breaks_nothing(seed: int) -> None:
    outcome = run(*PLACES, seconds=120, seed=seed)

    assert outcome.judgement.breaches == [], story(outcome)
