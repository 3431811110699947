"""Workflows under faults: a short torture, whose histories are behaviours of their specification."""

from collections.abc import Mapping

import pytest

from fencepost_torture._goals import GOALS
from fencepost_torture._pace import RunPace
from fencepost_torture._plan import RunPlan
from fencepost_torture._run import RunResult, TortureRun
from fencepost_torture._system_environment import SystemEnvironment
from fencepost_torture._tally import Tally
from fencepost_torture.systems._workflows import Workflows
from tests.specs import traces

FAULTS = GOALS["workflows"].faults
HITS_MIN = 8
STEPS_MIN = 100


def something_of_everything(tally: Tally, effects: Mapping[str, int]) -> bool:
    """A death at a crash point, a stopped process, and each server once."""
    kinds = ("crash", "pause", "postgres-kill", "redis-wipe")
    return (
        tally.hit.total() >= HITS_MIN
        and all(tally.hit[kind] for kind in kinds)
        and sum(effects.values()) >= STEPS_MIN
    )


def every_point_was_hit(tally: Tally, _effects: Mapping[str, int]) -> bool:
    return all(tally.points[point] for point in Workflows.points)


class Lives:
    """Takes the lives of the workflows as behaviours of the specification."""

    def __init__(self) -> None:
        self.found: dict[str, traces.Trace] = {}

    def before(self, env: SystemEnvironment) -> None:
        with env.database.connect_admin() as admin:
            admin.execute(traces.WORKFLOW_JOURNAL)

    def after(self, env: SystemEnvironment) -> None:
        self.found = traces.of_workflows(env)


def torture(plan: RunPlan) -> RunResult:
    outcome = TortureRun(plan).run()
    assert outcome.judgement.breaches == [], (outcome.judgement.breaches[:20], outcome.log[-4000:])
    return outcome


@pytest.mark.timeout(300)
def test_a_short_torture_breaks_nothing_and_its_histories_are_behaviours() -> None:
    lives = Lives()
    plan = RunPlan(
        4,
        120.0,
        ["workflows"],
        FAULTS,
        gap_seconds=0.3,
        lease_seconds=1.0,
        # Each fault meets a few workflows; the long form has as many as there is time for.
        pace=RunPace(helpings_per_second={"workflows": 2.0}),
        server_settings={"fsync": "off", "full_page_writes": "off"},
        liveness_leases=60,
        enough=something_of_everything,
        before=lives.before,
        after=lives.after,
    )

    outcome = torture(plan)

    assert something_of_everything(outcome.tally, outcome.effects), outcome.tally.hit
    assert lives.found
    rejected = traces.replay("Workflow", lives.found)
    assert rejected is None, f"{rejected}\n{rejected.output}"


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_longer_torture_strikes_every_point_and_breaks_nothing() -> None:
    plan = RunPlan(
        5,
        600.0,
        ["workflows"],
        ["crash"],
        gap_seconds=0.05,
        lease_seconds=1.0,
        pace=RunPace(evenly=True),
        server_settings={"fsync": "off", "full_page_writes": "off"},
        liveness_leases=60,
        enough=every_point_was_hit,
    )

    outcome = torture(plan)

    assert every_point_was_hit(outcome.tally, {}), outcome.tally.points
