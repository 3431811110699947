"""Managed transactions under crashes, on a real chain: nothing breaks, and what is broken is seen."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from fencepost.embedded._errors import BinaryMissingError
from fencepost_nonces.testing.anvil import running_anvil
from fencepost_torture._pace import RunPace
from fencepost_torture._plan import RunPlan
from fencepost_torture._run import RunResult, TortureRun
from fencepost_torture._system_environment import SystemEnvironment
from fencepost_torture._tally import Tally
from fencepost_torture.systems._transactions import Transactions
from tests.isolation.planted_bug import Edit, PlantedBug

ROOT = Path(__file__).parents[3]
SYSTEM = "fencepost_torture.systems._transactions:TRANSACTIONS"
needs_a_chain = pytest.mark.skipif(
    shutil.which("anvil") is None and shutil.which("npm") is None, reason="neither anvil nor npm is installed"
)

# A process that takes a signer over gives what is signed another nonce, and forgets whose the first one is.
SIGNED_TWICE = PlantedBug(
    "what is signed is signed again with another nonce",
    "doubled",
    (
        Edit("_nonce_tx_requeue", "a.status = 'HELD'", "a.status <> 'CONSUMED'"),
        Edit(
            "_nonce_settle",
            "a set fencing_token = p_token\n",
            "a set fencing_token = p_token, request_id = null\n",
        ),
    ),
)
NEVER_QUEUED_AGAIN = PlantedBug(
    "what a dead owner had taken and not signed waits for ever",
    "lost",
    (Edit("_nonce_tx_requeue", "a.fencing_token < p_token", "a.fencing_token > p_token"),),
)
BUGS = (SIGNED_TWICE, NEVER_QUEUED_AGAIN)


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the chain is installed for all tests."""
    monkeypatch.chdir(ROOT)


def everywhere_once(tally: Tally, _effects: Mapping[str, int]) -> bool:
    return all(tally.points[point] for point in Transactions.points)


def run(
    bug: PlantedBug | None = None, *, seconds: float = 120.0, patience_seconds: float = 60.0
) -> RunResult:
    def before(env: SystemEnvironment) -> None:
        if bug is not None:
            bug.plant(env.database)

    plan = RunPlan(
        7,
        seconds,
        [SYSTEM],
        ["crash"],
        gap_seconds=0.02,
        lease_seconds=1.0,
        pace=RunPace(evenly=True),
        server_settings={"fsync": "off", "full_page_writes": "off"},
        # How fast this machine is must not decide.
        liveness_leases=5 if bug else 30,
        patience_seconds=patience_seconds,
        enough=everywhere_once,
        before=before,
    )
    return TortureRun(plan).run()


@needs_a_chain
@pytest.mark.timeout(300)
def test_senders_that_die_at_every_crash_point_pay_everything_once() -> None:
    outcome = run()

    breaches = [str(breach) for _, breach in outcome.judgement.breaches]
    assert breaches == [], json.dumps([*breaches[:20], outcome.log[-4000:]], indent=2)
    assert everywhere_once(outcome.tally, {}), outcome.tally.points
    assert outcome.ended_by_themselves == 0
    assert min(outcome.hardness.effects.values()) > 0


@needs_a_chain
@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.title)
def test_a_planted_bug_is_seen_on_the_chain(bug: PlantedBug) -> None:
    outcome = run(bug, seconds=8, patience_seconds=1)

    assert outcome.judgement.verdict == "violated"
    assert bug.noticed_by in {breach.rule for _, breach in outcome.judgement.breaches}


def test_where_there_is_no_chain_it_is_said_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with (
        pytest.raises(BinaryMissingError, match=r"Node\.js with npm, or Foundry"),
        running_anvil(home=tmp_path),
    ):
        pytest.fail("there was one")
