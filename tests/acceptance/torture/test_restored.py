"""Backups that are restored in the middle of a torture: `recover` leaves no client a valid token of the
lost time."""

from collections.abc import Callable, Mapping

import pytest

from fencepost_torture import _backup as backup
from fencepost_torture._plan import RunPlan
from fencepost_torture._run import RunResult, TortureRun
from fencepost_torture._tally import Tally


def run(
    *systems: str,
    seconds: float,
    kinds: tuple[str, ...] = ("restore",),
    gap_seconds: float = 0.4,
    enough: Callable[[Tally, Mapping[str, int]], bool] = lambda tally, effects: False,
) -> RunResult:
    plan = RunPlan(
        5,
        seconds,
        systems,
        kinds,
        gap_seconds=gap_seconds,
        server_settings={"fsync": "off", "full_page_writes": "off"},
        liveness_leases=30,
        patience_seconds=1.0,
        enough=enough,
    )
    return TortureRun(plan).run()


def rules(outcome: RunResult) -> set[str]:
    return {breach.rule for _, breach in outcome.judgement.breaches}


@pytest.mark.timeout(300)
def test_a_backup_restored_under_holders_that_go_on_breaks_nothing() -> None:
    outcome = run("leases", seconds=120, enough=lambda tally, _: tally.hit["restore"] > 1)

    assert outcome.judgement.breaches == []
    assert outcome.tally.hit["restore"] > 1
    assert outcome.effects["leases"] > 0


@pytest.mark.full
@pytest.mark.timeout(900)
def test_backups_restored_among_other_faults_break_nothing() -> None:
    outcome = run("leases", "jobs", seconds=60, kinds=("restore", "kill", "pause", "redis-wipe", "net-cut"))

    assert outcome.judgement.breaches == []
    assert outcome.tally.hit["restore"] > 0


@pytest.mark.full
@pytest.mark.timeout(300)
def test_without_recover_two_holders_have_one_token(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgotten(_url: str, _actor: str) -> None: ...

    monkeypatch.setattr(backup, "recover", forgotten)

    assert "tokens grow" in rules(run("leases", seconds=15, gap_seconds=1.5))
