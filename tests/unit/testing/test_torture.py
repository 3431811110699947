"""A torture in a user's own test: it fails when a promise is broken, and when nothing was proved."""

import pytest

from fencepost.testing import Breach, HistoryBroken
from fencepost_torture._run import RunResult, TortureRun
from fencepost_torture._tally import Tally
from fencepost_torture._verdict import Hardness, judge
from fencepost_torture.kit import Floors, RunTooEasy, torment

EASY = Hardness(10.0, {"shop": 100}, hits=0, ambiguous=0)


def answering(monkeypatch: pytest.MonkeyPatch, *breaches: Breach) -> None:
    """Every run is as easy as that, and is judged by the floors of its plan."""

    def run(torture_run: TortureRun) -> RunResult:
        found = judge([("shop", breach) for breach in breaches], EASY, torture_run.plan.floors)
        return RunResult(torture_run.plan, 10.0, Tally(), {"shop": 100}, {}, EASY, 0, 0, [], 0.0, found, [])

    monkeypatch.setattr(TortureRun, "run", run)


def test_a_run_that_proved_nothing_fails_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch)

    with pytest.raises(RunTooEasy, match="0 faults that hit, at least 3 were needed"):
        torment("leases", seconds=10)


def test_a_lower_guarantee_must_be_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch)

    outcome = torment("leases", seconds=10, floors=Floors(hits_per_second=0, ambiguous_per_second=0))

    assert outcome.judgement.verdict == "passed"


def test_a_broken_promise_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, Breach("lost", "a", "was requested and never took effect"))

    with pytest.raises(HistoryBroken, match="shop: lost: a was requested"):
        torment("leases", seconds=10)
