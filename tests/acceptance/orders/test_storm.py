"""For each promise: no order doubled, none lost, none dead while it lives; what cannot be proved is
parked."""

import pytest

from fencepost.embedded import Database
from tests.acceptance.orders.storm import Report, brewing


def judge(reports: dict[str, Report], count: int) -> None:
    said = {name: dict(report.statuses) for name, report in reports.items()}
    assert {name: report.breaches for name, report in reports.items()} == {name: [] for name in reports}, said
    for name, report in reports.items():
        assert report.statuses.total() == count, said
        if name != "blind":
            # Where non-arrival can be proved, or doubles are refused, nothing waits for a person.
            assert report.statuses["sent"] >= 0.9 * count, said
            assert report.statuses["parked"] == 0, said
    assert reports["blind"].statuses["parked"] > 0, said


def test_a_small_storm_breaks_nothing(database: Database) -> None:
    with brewing(database, seed=7) as storm:
        storm.place(60)
        with storm.working(2):
            storm.rage(3, pause_seconds=2.5)
            storm.wait_until_still(180)
        judge(storm.report(), 60)


@pytest.mark.full
@pytest.mark.timeout(1500)
def test_twenty_thousand_orders_break_nothing(database: Database) -> None:
    with brewing(database, seed=11) as storm:
        storm.place(4000)
        with storm.working(3):
            storm.rage(45, pause_seconds=3)
            storm.wait_until_still(900)
        reports = storm.report()
        print(storm.tell(reports))  # noqa: T201 - The figures of a storm are read by people.
    judge(reports, 4000)
