"""What bench-nonces concludes from its figures."""

from bench.nonces import Compared, Hot, goals
from bench.nonces_env import MeasuredRate


def concluded(
    *, basic: float = 600, queue: float = 7000, blocks: float = 40_000, after: float = 600
) -> list[bool]:
    compared = [
        Compared(1, MeasuredRate(1000), MeasuredRate(basic), MeasuredRate(900), MeasuredRate(500), 0.8)
    ]
    hot = Hot(
        MeasuredRate(600),
        MeasuredRate(queue),
        MeasuredRate(blocks),
        MeasuredRate(50_000),
        MeasuredRate(600),
        MeasuredRate(after),
        10,
    )
    return [goal.met for goal in goals(compared, hot)]


def test_good_figures_meet_every_goal() -> None:
    assert concluded() == [True, True, True, True]


def test_each_bad_figure_misses_its_goal() -> None:
    assert concluded(basic=590) == [False, True, True, True]
    assert concluded(queue=5900) == [True, False, True, True]
    assert concluded(blocks=29_999) == [True, True, False, True]
    assert concluded(after=400) == [True, True, True, False]
