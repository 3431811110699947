"""Schedules in the kernel: a tick that is proposed must be one, and who is not there is refused."""

from datetime import datetime, timedelta
from typing import LiteralString

import pytest

from fencepost.testing import Clock
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.conftest import NOON

DECLARE: LiteralString = """
    select fencepost.schedule_declare('report', '*/5 * * * *', 'UTC', 'all', '1 hour', %s, 'q', 'report',
                                      '{}', 1, 5, '1 minute', null, null, null, '{}')
"""
FIRE: LiteralString = "select tick from fencepost.schedule_fire('report', %s, %s::timestamptz[], %s)"
EXPECTED = NOON + timedelta(minutes=5)
NEXT = NOON + timedelta(minutes=10)


@pytest.fixture
def declared(app: Caller, clock: Clock) -> Caller:
    """A report whose tick is due now."""
    app.execute(DECLARE, EXPECTED)
    clock.advance(300)
    return app


@pytest.mark.parametrize(
    ("ticks", "following"),
    [
        ([EXPECTED], None),
        ([EXPECTED], EXPECTED),
        ([None], NEXT),
        ([EXPECTED - timedelta(seconds=1)], NEXT),
        ([EXPECTED + timedelta(seconds=1)], NEXT),
        ([NEXT], NEXT),
        ([], EXPECTED),
        ([], None),
    ],
    ids=[
        *("no next", "next is not later", "none", "before the stored one", "in the future", "the next one"),
        *("without ticks, and next is not later", "without ticks, and no next"),
    ],
)
def test_a_tick_that_is_none_is_named_and_submits_nothing(
    declared: Caller, admin: Caller, ticks: list[datetime | None], following: datetime | None
) -> None:
    declared.invalid("ticks", FIRE, EXPECTED, ticks, following)

    assert admin.value("select count(*) from fencepost.job") == 0


def test_a_tick_that_is_due_submits_one_job(declared: Caller, admin: Caller) -> None:
    assert declared.column(FIRE, EXPECTED, [EXPECTED], NEXT) == [EXPECTED]
    assert declared.column(FIRE, EXPECTED, [EXPECTED], NEXT) == []
    assert admin.value("select count(*) from fencepost.job") == 1


def test_a_caller_that_fires_is_told_whether_the_schedule_is_paused(declared: Caller) -> None:
    paused = "select paused from fencepost.schedule_next(10)"

    assert declared.column(paused) == [False]
    declared.execute("select fencepost.schedule_pause('report', 'jo')")
    assert declared.column(paused) == [True]
    declared.execute("select fencepost.schedule_resume('report', 'jo')")
    assert declared.column(paused) == [False]


def test_a_page_of_schedules_has_a_size(declared: Caller) -> None:
    declared.invalid("limit", "select * from fencepost.schedule_next(null)")


@pytest.mark.parametrize("act", ["pause", "resume"])
def test_a_schedule_that_is_not_there_is_refused(app: Caller, act: str) -> None:
    refused = app.refused("not_found", "select fencepost.schedule_pause('nobody', 'jo')")
    if act == "resume":
        refused = app.refused("not_found", "select fencepost.schedule_resume('nobody', 'jo')")

    assert (refused.noun, refused.subject, refused.attempted["op"]) == ("schedule", "nobody", act)
