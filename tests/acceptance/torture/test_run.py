"""Short tortures of the whole: nothing breaks. (`tests/gallery` shows that they would see it.)

What they record is also replayed by the specifications, so that code and specification cannot drift apart.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import LiteralString

import pytest

from fencepost_torture._goals import GOALS
from fencepost_torture._pace import RunPace
from fencepost_torture._plan import RunPlan
from fencepost_torture._run import RunResult, TortureRun
from fencepost_torture._schedule import NODE_CLOCK, POSTGRES_CLOCK, chosen_kinds
from fencepost_torture._system_environment import SystemEnvironment
from fencepost_torture._tally import Tally
from fencepost_torture.systems import PLACES
from tests.specs import traces

# A disk and clocks that can be moved are not on every machine, and have tests of their own.
KINDS = [kind for kind in chosen_kinds([]) if kind not in ("disk-full", NODE_CLOCK, POSTGRES_CLOCK)]
# Its first nine blows have something of every goal.
SEED = 18054
HITS_MIN = 8


@dataclass
class Recorder:
    """Takes the histories of a run as behaviours of the specifications, by their names."""

    found: dict[str, dict[str, traces.Trace]] = field(default_factory=dict[str, dict[str, traces.Trace]])

    def before(self, env: SystemEnvironment) -> None:
        journals: dict[str, LiteralString] = {
            "jobs": traces.JOURNAL,
            "orders": traces.MESSAGES,
            "flows": traces.COMMITS,
        }
        if env.name in journals:
            with env.database.connect_admin() as admin:
                admin.execute(journals[env.name])

    def after(self, env: SystemEnvironment) -> None:
        match env.name:
            case "leases":
                self.found["Lease"] = traces.of_leases(env.operation_log.operations())
            case "jobs":
                self.found["Attempt"] = traces.of_jobs(env)
            case "players":
                self.found["IdempotencyKey"] = traces.of_requests(env)
            case "orders":
                self.found["Outbox"] = traces.of_messages(env)
            case "flows":
                self.found["Sink"] = traces.of_commits(env)
            case _:
                pass


def run(
    *systems: str,
    seconds: float,
    seed: int,
    recorder: Recorder,
    pace: RunPace | None = None,
    enough: Callable[[Tally, Mapping[str, int]], bool] = lambda tally, effects: False,
) -> RunResult:
    # How fast this machine is must not decide: what is late here is late, and what hangs is lost.
    plan = RunPlan(
        seed,
        seconds,
        systems,
        KINDS,
        gap_seconds=0.3,
        pace=pace or RunPace(),
        server_settings={"fsync": "off", "full_page_writes": "off"},
        liveness_leases=30,
        enough=enough,
        before=recorder.before,
        after=recorder.after,
    )
    return TortureRun(plan).run()


def story(outcome: RunResult) -> str:
    return json.dumps(
        {
            "breaches": [f"{system}: {breach}" for system, breach in outcome.judgement.breaches[:20]],
            "effects": dict(outcome.effects),
            "hit": dict(outcome.tally.hit),
            "log": outcome.log[-4000:],
        },
        indent=2,
    )


def check_by_specification(recorder: Recorder) -> None:
    assert set(recorder.found) == {"Lease", "Attempt", "IdempotencyKey", "Outbox", "Sink"}
    for specification, histories in recorder.found.items():
        assert histories, specification
        rejected = traces.replay(specification, histories)
        assert rejected is None, f"{rejected}\n{rejected.output}"


def something_of_every_goal(tally: Tally, _effects: Mapping[str, int]) -> bool:
    """Power is cut, and clusters fail over, in tests of their own; what has no kinds is counted in
    effects, or point by point."""
    sizes = [
        size
        for name, goal in GOALS.items()
        if name not in ("power", "failover")
        for size in goal.sizes
        if size.kinds
    ]
    return tally.hit.total() >= HITS_MIN and all(
        any(tally.hit[kind] for kind in size.kinds) for size in sizes
    )


@pytest.mark.timeout(300)
def test_a_short_torture_of_everything_breaks_nothing() -> None:
    """The short form of the goals: all of their systems, and each of their faults at least once."""
    recorder = Recorder()
    # Each fault meets some work of every system; as much as there is time for is asked for in the long form.
    pace = RunPace(helpings_per_second=dict.fromkeys(PLACES, 2.0))
    outcome = run(
        *PLACES, seconds=120, seed=SEED, recorder=recorder, pace=pace, enough=something_of_every_goal
    )

    assert outcome.judgement.breaches == [], story(outcome)
    assert [reason for reason in outcome.judgement.too_easy if "undecided" in reason] == []
    assert min(outcome.effects.values()) > 0
    assert something_of_every_goal(outcome.tally, outcome.effects), story(outcome)
    check_by_specification(recorder)


def test_what_is_lost_or_left_behind_is_seen_and_effects_of_the_calm_do_not_count() -> None:
    plan = RunPlan(
        7,
        1.0,
        ["tests.acceptance.torture.broken:Untidy", "tests.acceptance.torture.broken:Forgetful"],
        ["pause"],
        server_settings={"fsync": "off"},
        liveness_leases=0.0,
        patience_seconds=0.0,
    )

    outcome = TortureRun(plan).run()

    left = {breach.key for _, breach in outcome.judgement.breaches if breach.rule == "left behind"}
    assert left == {
        "connections",
        "connections to Redis",
        "leases",
        "running jobs",
        "prepared transactions",
    }
    assert (outcome.judgement.verdict, outcome.judgement.lost) == ("violated", 1)
    assert "0 effects, at least" in str(outcome.judgement.too_easy)
    assert sum(outcome.effects.values()) == 1000 + 3


@pytest.mark.timeout(120)
def test_a_run_whose_asker_gives_up_ends_at_once_and_says_why() -> None:
    plan = RunPlan(
        7,
        3600.0,
        ["tests.acceptance.torture.broken:GivesUp"],
        ["pause"],
        server_settings={"fsync": "off"},
    )

    with pytest.raises(RuntimeError, match=r"(?s)The asker of .*GivesUp failed.*nobody answers"):
        TortureRun(plan).run()


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_a_longer_torture_of_everything_breaks_nothing(seed: int) -> None:
    recorder = Recorder()
    outcome = run(*PLACES, seconds=120, seed=seed, recorder=recorder)

    assert outcome.judgement.breaches == [], story(outcome)
    check_by_specification(recorder)
