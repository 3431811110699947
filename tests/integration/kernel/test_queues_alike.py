"""Waiting jobs are found by a number that stands for their queue: two queues that share one stay two."""

from typing import LiteralString

import pytest

from tests.integration.kernel import job_calls
from tests.integration.kernel.caller import Caller

OURS, THEIRS = "queue-40512", "queue-192275"
PENDING = (
    "select job_id from fencepost.job_dispatch(%s, 1, 10)",
    "select job_id from fencepost.job_dispatch_by_priority(%s, 10)",
    "select job_id from fencepost.job_claim_next(%s, 1, 'w', 10)",
    "select job_id from fencepost.job_claim_by_priority(%s, 'w', 10)",
    "select 1 where fencepost.job_next_due(%s) is not null",
)
DRIVEN = (
    "select job_id from fencepost.job_dispatched_page(%s, 1, '0 seconds', null, null, 10)",
    "select job_id from fencepost.job_claim_next(%s, 1, 'w', 10, p_dispatched => true)",
    "select job_id from fencepost.job_claim_by_priority(%s, 'w', 10, p_dispatched => true)",
)


@pytest.fixture
def waiting(app: Caller) -> int:
    assert app.value("select hashtext(%s) = hashtext(%s)", OURS, THEIRS), "they would prove nothing"
    return job_calls.submit(app, queue=THEIRS)


@pytest.fixture
def driven(app: Caller, waiting: int) -> int:
    app.execute("select fencepost.job_dispatched(%s, '{1-0}', 'redis')", [waiting])
    return waiting


@pytest.mark.parametrize("query", PENDING)
def test_what_waits_in_one_is_not_found_by_the_other(app: Caller, waiting: int, query: LiteralString) -> None:
    assert app.column(query, OURS) == []
    assert app.column(query, THEIRS) in ([waiting], [1])


@pytest.mark.parametrize("query", DRIVEN)
def test_what_was_driven_for_one_is_not_found_by_the_other(
    app: Caller, driven: int, query: LiteralString
) -> None:
    assert app.column(query, OURS) == []
    assert app.column(query, THEIRS) == [driven]


@pytest.mark.parametrize("before", ["waiting", "driven"])
def test_the_bound_of_one_does_not_count_the_other(
    app: Caller, request: pytest.FixtureRequest, before: str
) -> None:
    request.getfixturevalue(before)
    app.execute("select fencepost.queue_bound(%s, 1, 'carol')", OURS)

    assert job_calls.submit(app, queue=OURS) > 0


def test_the_rate_of_one_has_room_whatever_the_other_drives(app: Caller, driven: int) -> None:
    app.execute("select fencepost.queue_rate(%s, 1, 1, 'carol')", OURS)
    job_id = job_calls.submit(app, queue=OURS)

    assert app.column("select job_id from fencepost.job_dispatch(%s, 1, 10)", OURS) == [job_id]
