"""Clocks that jump: of nodes, which nothing may use, and PostgreSQL's own, which everything uses."""

import sys
from collections.abc import Mapping
from typing import Any

import pytest

from fencepost_torture._pace import RunPace
from fencepost_torture._plan import RunPlan
from fencepost_torture._run import RunResult, TortureRun
from fencepost_torture._schedule import NODE_CLOCK, POSTGRES_CLOCK
from fencepost_torture._tally import Tally
from fencepost_torture._wall_clocks import choose_clocks

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="wall clocks jump by libfaketime, on Linux"),
]
WATCH = "tests.acceptance.torture.broken:GoesByItsWatch"


def run(*systems: str, kind: str, hits: int = 3, **how: Any) -> RunResult:
    def enough(tally: Tally, _effects: Mapping[str, int]) -> bool:
        return tally.hit[kind] >= hits

    faketime, kinds = choose_clocks([kind])
    assert kinds == [kind], "the wheel of libfaketime is among what we develop with"
    settings: dict[str, str | int] = {"fsync": "off", "full_page_writes": "off"}
    plan = RunPlan(5, 60, systems, kinds, enough=enough, server_settings=settings, **how)
    return TortureRun(plan, faketime=faketime).run()


def rules(outcome: RunResult) -> set[str]:
    return {breach.rule for _, breach in outcome.judgement.breaches}


def test_a_caller_that_goes_by_the_clock_of_a_node_is_found_out() -> None:
    assert "doubled" in rules(run(WATCH, kind=NODE_CLOCK, liveness_leases=0, patience_seconds=0))


def test_a_clock_of_postgres_that_jumps_is_no_clock_of_a_node() -> None:
    """So each of the two is moved by itself, and what is found out above was found out by the node's."""
    outcome = run(WATCH, kind=POSTGRES_CLOCK)

    assert outcome.judgement.breaches == []
    assert outcome.tally.hit[POSTGRES_CLOCK] >= 3


@pytest.mark.parametrize("hits", [1, pytest.param(6, marks=pytest.mark.full)])
@pytest.mark.parametrize("kind", [NODE_CLOCK, POSTGRES_CLOCK])
def test_holders_and_workers_bear_clocks_that_jump(kind: str, hits: int) -> None:
    systems = ("leases", "jobs", "nonces")
    # The short form asks for little: a clock jumps however much is done.
    pace = RunPace(helpings_per_second=dict.fromkeys(systems, 2.0)) if hits == 1 else RunPace()

    outcome = run(*systems, kind=kind, hits=hits, liveness_leases=30, pace=pace)

    assert outcome.judgement.breaches == [], outcome.log
    assert outcome.tally.hit[kind] >= hits
