"""What the runs of a goal have reached together."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fencepost_torture._goals import EACH_POINT, EFFECTS, Goal, Size, Yield
from fencepost_torture._report import facts_of, keep, keep_run, keep_score, read_score
from fencepost_torture._score import KEPT, Score, hours_left, yield_of
from fencepost_torture._tally import Tally
from fencepost_torture.systems import system_of
from tests.unit.torture.test_report import outcome

POINTS = list(system_of("orders").points)
GOAL = Goal(
    ("orders",),
    ("crash", "kill"),
    0.1,
    (Size("crashes", 100, ("crash", "kill")), Size(EFFECTS, 1000), Size(EACH_POINT, 5)),
)


def run(seed: int, verdict: str = "passed", **changes: Any) -> dict[str, Any]:
    """Ten seconds with 20 crashes, 100 effects under faults and one hit of each point."""
    facts: dict[str, Any] = {
        **dict.fromkeys(KEPT),
        "seed": seed,
        "seconds": 10.0,
        "verdict": verdict,
        "effects": 130,
        "lost": 0,
        "doubled": 0,
        "effects_under_faults": {"orders": 100},
        "faults_by_kind": {"crash": 15, "kill": 5, "pause": 7},
        "crash_points": dict.fromkeys(POINTS, 1),
    }
    return facts | changes


def score(*runs: dict[str, Any]) -> Score:
    whole = Score("few", GOAL)
    for each in runs:
        whole = whole.with_run(each)
    return whole


def reached(whole: Score) -> list[int]:
    return [size["reached"] for size in whole.facts()["sizes"]]


def test_the_first_claims_of_all_runs_have_a_median_and_a_p95() -> None:
    claims = [second / 10 for second in range(1, 101)]
    facts = score(
        run(101, first_claim_seconds=claims[50:]), run(102, first_claim_seconds=claims[:50])
    ).facts()

    assert (facts["first_claim_p50_seconds"], facts["first_claim_p95_seconds"]) == (5.1, 9.6)
    assert "first_claim_p95_seconds" not in score(run(103)).facts()


def test_a_run_is_added_to_what_ended_beside_it(tmp_path: Path) -> None:
    kept = tmp_path / "crashes.json"
    for seed in (1, 2):
        keep_run("crashes", {**facts_of(outcome(), {}, "crashes"), "seed": seed}, kept)

    assert [each["seed"] for each in read_score("crashes", kept).runs] == [1, 2]


def test_runs_add_up() -> None:
    whole = score(run(101), run(102), run(103))

    assert reached(whole) == [60, 300, 3]
    assert (whole.verdict, whole.is_complete) == ("passed", False)
    facts = whole.facts()
    assert (facts["seconds"], facts["runs_counted"], len(facts["runs"])) == (30.0, 3, 3)


def test_of_crash_points_the_sum_of_the_rarest_counts_not_the_sum_of_the_rarest_of_each_run() -> None:
    one = run(101, crash_points={point: place for place, point in enumerate(POINTS)})
    other = run(102, crash_points={point: len(POINTS) - place for place, point in enumerate(POINTS)})

    assert reached(score(one, other))[2] == len(POINTS)


def test_a_void_run_adds_nothing_and_may_be_had_again() -> None:
    whole = score(run(101), run(102, "void"))

    assert reached(whole) == [20, 100, 1]
    assert whole.verdict == "passed"
    assert whole.has_seed(101)
    assert not whole.has_seed(102)
    assert reached(whole.with_run(run(102))) == [40, 200, 2]


def test_nothing_but_void_runs_is_void() -> None:
    whole = score(run(101, "void"))

    assert (whole.verdict, reached(whole)) == ("void", [0, 0, 0])
    assert [size["hours_left"] for size in whole.facts()["sizes"]] == [None] * 3
    assert score().verdict == "void"


def test_a_violated_run_makes_the_whole_violated_for_good_and_adds_nothing() -> None:
    whole = score(run(101), run(102, "violated", lost=3), run(103))

    assert whole.verdict == "violated"
    assert reached(whole) == [40, 200, 2]
    assert whole.facts()["lost"] == 3
    assert whole.has_seed(102)


def test_the_same_seed_does_not_count_twice() -> None:
    assert reached(score(run(101), run(101), run(101))) == [20, 100, 1]


def test_the_next_seed_is_one_that_no_caller_had() -> None:
    assert score().next_seed == 101
    assert score(run(105), run(103, "void")).next_seed == 106


def test_the_rest_is_counted_at_the_pace_of_the_newest_run() -> None:
    slow = run(102, seconds=360.0)

    sizes = score(run(101), slow).facts()["sizes"]

    # 60 crashes are missing, at 20 in a tenth of an hour; 800 effects, at 100; three of each point, at one.
    assert [size["hours_left"] for size in sizes] == [0.3, 0.8, 0.3]


def test_an_estimate_without_data_is_unknown() -> None:
    assert hours_left(GOAL.sizes[2], Yield(), run(101, crash_points={}), POINTS) is None


def test_a_point_that_has_enough_needs_no_pace() -> None:
    plenty = Yield(points=Counter(dict.fromkeys(POINTS, 5)))

    assert hours_left(GOAL.sizes[2], plenty, run(101, crash_points={}), POINTS) == 0


def test_a_run_lasts_until_it_has_brought_in_what_is_missing() -> None:
    whole = score(*(run(100 + number) for number in range(1, 5)))
    enough = whole.enough()
    tally = Tally(hit=Counter(crash=20), points=Counter(dict.fromkeys(POINTS, 1)))

    assert enough(tally, {"orders": 600})
    assert not enough(tally, {"orders": 599})
    tally.hit["crash"] -= 1
    assert not enough(tally, {"orders": 600})
    assert not whole.is_complete
    last = run(105, effects_under_faults={"orders": 600}, verdict="passed")
    assert whole.with_run(last).is_complete


def test_what_a_run_left_is_read_as_it_was() -> None:
    told = facts_of(outcome(), {}, "crashes")

    assert yield_of(told) == Yield(Counter(kill=3), Counter(), 200)


def test_the_file_is_read_again_and_nothing_else_is_written_over(tmp_path: Path) -> None:
    kept, other = tmp_path / "crashes.json", tmp_path / "other.json"
    first = read_score("crashes", kept).with_run(facts_of(outcome(), {}, "crashes"))
    keep_score(first, kept)
    keep(facts_of(outcome(), {}, "crashes"), other)

    assert read_score("crashes", kept) == first
    assert read_score("crashes", None).runs == ()
    for name, path in (("pauses", kept), ("crashes", other)):
        with pytest.raises(ValueError, match="does not have the runs"):
            read_score(name, path)
