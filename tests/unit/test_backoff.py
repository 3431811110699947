"""How long to wait: after the nth try, and what a header says, in either form."""

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from fencepost.backoff import RETRY_AFTER_SECONDS_MAX, Backoff, retry_after_seconds

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


def test_a_date_without_a_zone_is_of_the_world() -> None:
    assert retry_after_seconds("Tue, 01 Jan 2030 12:00:30 -0000", NOW) == 30
    assert retry_after_seconds("Tue, 01 Jan 2030 12:00:30 GMT", NOW) == 30
    assert retry_after_seconds("Tue, 01 Jan 2030 11:00:00 GMT", NOW) == 0
    assert retry_after_seconds("soon", NOW) is None


def test_waits_double_from_the_first_up_to_the_longest() -> None:
    backoff = Backoff(first_seconds=3, most_seconds=50, jitter=0)
    assert [backoff.seconds(tries) for tries in (-1, 0, 1, 2, 3, 4, 5, 6, 10**9)] == [
        *(3, 3, 3, 6, 12, 24, 48, 50, 50),
    ]
    slow = Backoff(1, 3600, factor=1.1, jitter=0)
    assert [slow.seconds(tries) for tries in (80, 90, 10**9)] == pytest.approx([1.1**79, 3600, 3600])
    assert list(islice(backoff.waits(), 6)) == [3, 6, 12, 24, 48, 50]


def test_a_wait_is_longer_or_shorter_by_its_jitter_and_no_more() -> None:
    backoff = Backoff(first_seconds=10, jitter=0.2)
    waits = [backoff.seconds(1, chance) for chance in (0.0, 0.25, 0.5, 1.0)]
    assert waits == pytest.approx([8, 9, 10, 12])
    drawn = {backoff.seconds(1) for _ in range(50)}
    assert len(drawn) > 1
    assert min(drawn) >= 8
    assert max(drawn) <= 12


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        (" 7 ", 7),
        ("0", 0),
        ("86400", 86_400),
        ("86401", 86_400),
        ("-1", None),
        ("\u0667", None),
        ("", None),
        ("Thu, 03 Jan 2030 12:00:00 GMT", RETRY_AFTER_SECONDS_MAX),
        ("Tue, 01 Jan 2030 13:00:00 +0100", 0),
        ("Tue, 01 Jan 2030 12:00:01 GMT", 1),
    ],
)
def test_what_a_header_says(header: str | None, seconds: float | None) -> None:
    assert retry_after_seconds(header, NOW) == seconds


def test_a_date_is_counted_from_the_present_where_none_is_given() -> None:
    in_an_hour = (datetime.now(UTC) + timedelta(hours=1)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    found = retry_after_seconds(in_an_hour)
    assert found is not None
    assert 3500 < found <= 3600
