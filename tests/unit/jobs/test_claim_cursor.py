"""Where a claim begins to look, and when it looks at everything."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from fencepost.jobs._fetcher import SLACK, WHOLE_SECONDS, ClaimCursor
from fencepost.kernel.job import Running
from tests.unit.jobs.fakes import running

NOON = datetime(2026, 11, 17, 12, tzinfo=UTC)


def jobs(*places: tuple[int, int]) -> Sequence[Running]:
    """By priority and the second of their submission."""
    return [
        running()._replace(priority=priority, submitted_at=NOON + timedelta(seconds=second))
        for priority, second in places
    ]


def at(second: int) -> datetime:
    return NOON + timedelta(seconds=second) - SLACK


def test_the_first_look_is_at_everything_and_the_next_begins_where_the_oldest_was() -> None:
    claim_cursor = ClaimCursor()
    assert claim_cursor.since(100.0) is None
    claim_cursor.claimed(jobs((1, 30), (1, 10), (1, 20)))
    assert claim_cursor.since(100.1) == [None, at(10), None, None]


def test_each_priority_has_a_beginning_of_its_own_and_one_that_brought_nothing_keeps_it() -> None:
    claim_cursor = ClaimCursor()
    claim_cursor.since(100.0)
    claim_cursor.claimed(jobs((0, 50), (3, 5)))
    claim_cursor.claimed(jobs((0, 60)))
    assert claim_cursor.since(100.1) == [at(60), None, None, at(5)]


def test_an_old_job_that_was_put_back_takes_the_beginning_back() -> None:
    claim_cursor = ClaimCursor()
    claim_cursor.since(100.0)
    claim_cursor.claimed(jobs((1, 50)))
    claim_cursor.claimed(jobs((1, 5)))
    assert claim_cursor.since(100.1) == [None, at(5), None, None]


def test_once_in_a_while_everything_is_looked_at() -> None:
    claim_cursor = ClaimCursor()
    claim_cursor.since(100.0)
    claim_cursor.claimed(jobs((1, 50)))
    assert claim_cursor.since(100.0 + WHOLE_SECONDS / 2) is not None
    assert claim_cursor.since(100.0 + WHOLE_SECONDS) is None
    assert claim_cursor.since(100.1 + WHOLE_SECONDS) is not None


def test_after_a_claim_that_brought_nothing_everything_is_looked_at() -> None:
    claim_cursor = ClaimCursor()
    claim_cursor.since(100.0)
    claim_cursor.claimed(jobs((1, 50)))
    claim_cursor.claimed([])
    assert claim_cursor.since(100.1) is None
