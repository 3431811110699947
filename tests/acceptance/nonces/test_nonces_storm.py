"""Many nodes on the same signers, killed, paused and jumped: no repeat, no gap kept, linearizable."""

import time
from collections import Counter

import pytest

from fencepost.embedded import Database
from fencepost.testing import Clock
from tests.acceptance.nonces.payments_check import Told, breaches, of_answers, of_rows
from tests.acceptance.nonces.storm import Plan, Storm
from tests.isolation.planted_bug import Edit, PlantedBug


def run(database: Database, clock: Clock, plan: Plan, *, seed: int, within: float = 240.0) -> list[str]:
    Storm(database, clock, plan, seed, within).run()
    return breaches(database, requests=plan.requests, signers=plan.signers)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "modes",
    [("basic",) * 4, ("queue", "basic", "queue")],
    ids=["basic", "both modes beside each other"],
)
def test_no_nonce_is_given_twice_and_none_is_left_out(
    database: Database, clock: Clock, modes: tuple[str, ...]
) -> None:
    plan = Plan(requests=600, signers=2, modes=modes, troubles=5)

    assert run(database, clock, plan, seed=11) == []


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_a_million_nonces_over_four_nodes(
    database: Database, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = Plan(
        requests=250_000, signers=4, block=500, modes=("basic", "queue", "basic", "queue"), troubles=60
    )
    begun, storm = time.monotonic(), Storm(database, clock, plan, 5, 3000)

    storm.run()

    with capsys.disabled():
        took, seen = time.monotonic() - begun, Counter(storm.troubles)
        print(f"\n{took:.0f} s: {seen}, {acquisitions(database)} acquisitions")  # noqa: T201 - The figures.
    assert breaches(database, requests=plan.requests, signers=plan.signers) == []
    assert len(seen) == 4, "some kind of trouble did not happen"


def acquisitions(database: Database) -> int:
    with database.connect_admin() as admin:
        return int(admin.execute("select sum(fencing_token) from fencepost.nonce_signer").fetchall()[0][0])


BUGS = (
    PlantedBug(
        "a gap is left where it is",
        "is RELEASED",
        (
            Edit(
                "_nonce_reserve", "limit cardinality(v_fresh) for no key update", "limit 0 for no key update"
            ),
        ),
    ),
    PlantedBug(
        "a nonce that is given out again has the number of its old hold",
        "was given to",
        (Edit("_nonce_reserve", "hold = a.hold + 1", "hold = a.hold"),),
    ),
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.title)
def test_a_planted_bug_is_seen(database: Database, clock: Clock, bug: PlantedBug) -> None:
    bug.plant(database)
    plan = Plan(requests=60, signers=1, modes=("basic", "basic"), troubles=0)

    found = run(database, clock, plan, seed=1)

    assert any(bug.noticed_by in breach for breach in found), found


def test_the_ledger_sees_what_it_is_for() -> None:
    assert list(of_rows([(0, "CONSUMED", "0", "tx-0"), (1, "CONSUMED", "1", "tx-1")], 2)) == []
    assert len(list(of_rows([(0, "CONSUMED", "0", "tx-0"), (2, "CONSUMED", "1", "tx-1")], 2))) == 1
    assert len(list(of_rows([(0, "RELEASED", None, None)], 1))) == 1
    assert len(list(of_rows([(0, "CONSUMED", "0", "tx-9")], 1))) == 1
    twice = [Told("a", 0, 1, 0.0, 1.0), Told("b", 0, 1, 0.5, 2.0)]
    assert len(list(of_answers(twice))) == 1
    backwards = [Told("a", 5, 1, 0.0, 1.0), Told("b", 4, 1, 2.0, 3.0)]
    assert len(list(of_answers(backwards))) == 1
    overlapping = [Told("a", 5, 1, 0.0, 2.5), Told("b", 4, 1, 2.0, 3.0)]
    assert list(of_answers(overlapping)) == []
