"""When a job that failed comes back, and how fast jobs may start."""

import pytest

from fencepost.jobs.retry_policy import Bury, PermanentError, Rate, Retry, exponential


def delays(*tries: int, **how: float) -> list[float]:
    decide = exponential(jitter=0, **how)
    verdicts = [decide(count, ValueError("no")) for count in tries]
    return [verdict.delay_seconds for verdict in verdicts if isinstance(verdict, Retry)]


def test_the_delay_grows_by_its_factor_from_the_first_try_up_to_its_bound() -> None:
    assert delays(0, 1, 2, 3, 4) == [1, 1, 2, 4, 8]
    assert delays(1, 2, 3, 4, first_seconds=5, factor=3, most_seconds=50) == [5, 15, 45, 50]
    assert delays(12, 13) == [2048, 3600]


def test_a_crowd_comes_back_spread_to_both_sides() -> None:
    decide = exponential(first_seconds=100, jitter=0.2)
    drawn = [
        verdict.delay_seconds for _ in range(200) if isinstance(verdict := decide(1, ValueError()), Retry)
    ]
    assert 80 <= min(drawn) < 90
    assert 110 < max(drawn) <= 120


def test_what_cannot_succeed_is_buried() -> None:
    assert exponential()(1, PermanentError("never")) == Bury()


@pytest.mark.parametrize(
    ("rate", "bucket"),
    [
        (Rate(10), (10, 10)),
        (Rate(10, per=60), (10 / 60, 10)),
        (Rate(0.5), (0.5, 1)),
        (Rate(10, burst=3), (10, 3)),
    ],
)
def test_a_rate_is_a_bucket(rate: Rate, bucket: tuple[float, float]) -> None:
    assert (rate.bucket.per_second, rate.bucket.burst) == bucket
