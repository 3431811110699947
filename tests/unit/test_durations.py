"""Durations of the interface: a timedelta or seconds, and nothing that is not a length of time."""

import math
from datetime import timedelta
from typing import Any

import pytest

from fencepost import Fencepost, InvalidInput, Job, Rate
from fencepost._durations import positive_seconds_of, seconds_of


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(0, 0.0), (1.5, 1.5), (timedelta(minutes=2), 120.0), (timedelta(milliseconds=250), 0.25)],
)
def test_a_timedelta_and_a_number_of_seconds_are_the_same(given: Any, seconds: float) -> None:
    assert seconds_of("ttl", given) == seconds


@pytest.mark.parametrize("given", [-1, -0.001, math.nan, math.inf, -math.inf, timedelta(seconds=-1)])
def test_what_is_no_length_of_time_is_refused_by_the_name_of_its_option(given: Any) -> None:
    with pytest.raises(InvalidInput, match=r"ttl is .* finite and not negative") as refused:
        seconds_of("ttl", given)
    assert refused.value.field == "ttl"


def test_some_must_be_longer_than_nothing() -> None:
    assert positive_seconds_of("lease", timedelta(seconds=1)) == 1
    with pytest.raises(InvalidInput, match="lease is 0 s") as refused:
        positive_seconds_of("lease", 0)
    assert refused.value.field == "lease"


@pytest.fixture
def fp() -> Fencepost:
    return Fencepost("postgresql://localhost/never-opened")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("tries", 0),
        ("tries", -1),
        ("tries", 1001),
        ("tries", 2.5),
        ("tries", True),
        ("lease", 0),
        ("lease", -1),
        ("lease", timedelta(days=2)),
        ("timeout", 0),
        ("timeout", -1),
        ("timeout", math.nan),
        ("timeout", timedelta(seconds=-1)),
        ("concurrency_limit", 0),
        ("priority", "fast"),
        ("priority", 4),
        ("priority", -1),
        ("run_in", "moon"),
    ],
)
def test_an_option_that_cannot_be_kept_is_refused_when_the_handler_is_declared(
    fp: Fencepost, option: str, value: Any
) -> None:
    with pytest.raises(InvalidInput, match=option) as refused:
        fp.job("work", **{option: value})
    assert refused.value.field == option


def test_a_delay_and_a_grace_are_refused_where_they_are_given(fp: Fencepost) -> None:
    @fp.job("work")
    async def one(job: Job) -> None: ...

    with pytest.raises(InvalidInput, match="delay is -1"):
        one.options(delay=-1)
    with pytest.raises(InvalidInput, match="grace is -60"):
        fp.cron("* * * * *", grace=timedelta(minutes=-1))
    with pytest.raises(InvalidInput, match=r"interval is 0\.5"):
        fp.every(0.5)
    with pytest.raises(InvalidInput, match="per is 0 s"):
        Rate(5, per=0)


def test_durations_reach_the_job_in_seconds(fp: Fencepost) -> None:
    @fp.job("work", lease=timedelta(minutes=2), timeout=timedelta(seconds=30), tries=7)
    async def one(job: Job) -> None: ...

    later = one.options(delay=timedelta(hours=1))
    assert (one.declared.lease_seconds, one.declared.timeout_seconds, one.declared.tries) == (120, 30, 7)
    assert later.submission().options.delay_seconds == 3600
    assert Rate(60, per=timedelta(minutes=1)).bucket.per_second == 1
