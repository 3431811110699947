"""Driving jobs to a stream: entries are recorded, and driven again when they are lost."""

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from fencepost.testing import Clock
from tests.integration.kernel import job_calls
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.overlap import begun, wait_until_blocked

DISPATCH = "select * from fencepost.job_dispatch('mail', 1, %s)"


def entry_of(caller: Caller, job_id: int) -> dict[str, Any]:
    return caller.row(
        "select status, attempts, stream_entry_id, last_error from fencepost.outbox_events where job_id = %s",
        job_id,
    )


def test_due_jobs_are_dispatched_oldest_first(app: Caller, clock: Clock) -> None:
    later = app.value(
        "select job_id from fencepost.job_submit('mail', 'send', '{}', p_run_at => %s)",
        clock.now() + timedelta(seconds=10),
    )
    first, second = job_calls.submit(app), job_calls.submit(app)
    other_priority = app.value(
        "select job_id from fencepost.job_submit('mail', 'send', '{}', p_priority => 0)"
    )

    due = app.rows(DISPATCH, 10)

    assert due[0] == {"job_id": first, "attempt": 0, "dispatches": 0}
    assert [row["job_id"] for row in due] == [first, second]
    assert [row["job_id"] for row in app.rows(DISPATCH, 1)] == [first]
    assert app.column("select job_id from fencepost.job_dispatch('mail', 0, 10)") == [other_priority]
    clock.advance(10)
    assert [row["job_id"] for row in app.rows(DISPATCH, 10)] == [first, second, later]


def test_two_dispatchers_share_the_work(app: Caller, connect: Callable[[], Caller]) -> None:
    first, second = job_calls.submit(app), job_calls.submit(app)
    other = connect()
    other.execute("begin")
    assert [row["job_id"] for row in other.rows(DISPATCH, 1)] == [first]

    assert [row["job_id"] for row in app.rows(DISPATCH, 10)] == [second]
    other.execute("rollback")


def test_a_dispatched_job_is_not_dispatched_again(app: Caller) -> None:
    job_id = job_calls.submit(app)
    with app.transaction():
        app.execute(DISPATCH, 10)
        assert app.value("select fencepost.job_dispatched(%s, '{5-0}', 'life-1')", [job_id]) == 1

    assert app.rows(DISPATCH, 10) == []
    assert job_calls.state(app, job_id) == "dispatched"
    assert entry_of(app, job_id) == {
        "status": "delivered", "attempts": 1, "stream_entry_id": "5-0", "last_error": None,
    }  # fmt: skip


def test_recording_leaves_alone_what_has_moved_on_meanwhile(app: Caller) -> None:
    claimed, known, waiting = job_calls.running(app), job_calls.dispatched(app, "1-0"), job_calls.submit(app)

    recorded = app.value(
        "select fencepost.job_dispatched(%s, '{7-0, 8-0, 9-0, 10-0}', 'life-2')",
        [claimed, known, waiting, 999],
    )

    assert recorded == 1
    assert job_calls.state(app, claimed) == "running"
    assert entry_of(app, known)["stream_entry_id"] == "1-0"
    assert entry_of(app, waiting)["stream_entry_id"] == "9-0"


def test_what_could_not_be_written_waits_and_says_why(app: Caller, clock: Clock) -> None:
    job_id, driven = job_calls.submit(app), job_calls.dispatched(app)

    failed = app.value("select fencepost.job_dispatch_failed(%s, 'no Redis', '30 seconds')", [job_id, driven])

    assert failed == 1
    assert entry_of(app, job_id) == {
        "status": "pending", "attempts": 1, "stream_entry_id": None, "last_error": "no Redis",
    }  # fmt: skip
    assert app.rows(DISPATCH, 10) == []
    clock.advance(30)
    assert [row["dispatches"] for row in app.rows(DISPATCH, 10)] == [1]


def test_a_lost_entry_is_driven_again(app: Caller) -> None:
    lost, renewed = job_calls.dispatched(app, "1-0"), job_calls.dispatched(app, "2-0")

    assert app.value("select fencepost.job_recall(%s, '{1-0, 1-9}')", [lost, renewed]) == 1

    assert job_calls.state(app, lost) == "pending"
    assert job_calls.state(app, renewed) == "dispatched", "its entry is not the one that was judged lost"
    assert [row["job_id"] for row in app.rows(DISPATCH, 10)] == [lost]


def test_an_entry_that_is_given_back_before_its_dispatch_commits_is_recalled(
    app: Caller, admin: Caller, connect: Callable[[], Caller]
) -> None:
    """A worker may read an entry from Redis at once, find no place for it, and give it back."""
    job_id, dispatcher, reader = job_calls.submit(app), connect(), connect()
    dispatcher.execute("begin")
    assert [row["job_id"] for row in dispatcher.rows(DISPATCH, 10)] == [job_id]
    dispatcher.execute("select fencepost.job_dispatched(%s, '{1-0}', 'life')", [job_id])
    with begun(reader, "select fencepost.job_recall(%s, '{1-0}') as recalled", [job_id]) as given_back:
        wait_until_blocked(admin, reader)
        dispatcher.execute("commit")
        assert given_back.result(30) == [{"recalled": 1}]
    assert job_calls.state(app, job_id) == "pending"


def test_what_was_driven_long_enough_ago_is_listed_page_by_page(app: Caller, clock: Clock) -> None:
    first = job_calls.dispatched(app, "1-0")
    written_at = clock.now()
    second = job_calls.dispatched(app, "2-0")
    clock.advance(30)
    job_calls.dispatched(app, "3-0")
    job_calls.submit(app)
    driven = "select * from fencepost.job_dispatched_page('mail', 1, '30 seconds', %s, %s, 1)"

    page = app.row(driven, None, None)

    assert page == {
        "job_id": first, "dispatched_at": written_at, "entry_id": "1-0", "incarnation": "life-1",
    }  # fmt: skip
    assert app.row(driven, written_at, first)["job_id"] == second
    assert app.rows(driven, written_at, second) == []


def test_a_loop_may_sleep_until_the_next_job_is_due(app: Caller, clock: Clock) -> None:
    next_due = "select fencepost.job_next_due('mail')"
    assert app.value(next_due) is None
    app.execute(
        "select fencepost.job_submit('mail', 'send', '{}', p_priority => 3, p_run_at => %s)",
        clock.now() + timedelta(seconds=20),
    )
    job_calls.dispatched(app)
    assert app.value(next_due) == clock.now() + timedelta(seconds=20)
    job_calls.submit(app)
    assert app.value(next_due) == clock.now()

    app.execute("select fencepost.queue_pause('mail', 'carol')")

    assert app.value(next_due) is None


def test_a_paused_queue_dispatches_nothing_until_it_is_resumed(app: Caller) -> None:
    job_id = job_calls.submit(app)
    app.execute("select fencepost.queue_pause('mail', 'carol')")
    assert app.rows(DISPATCH, 10) == []
    assert app.row("select paused, pending from fencepost.queue_status where queue = 'mail'") == {
        "paused": True,
        "pending": 1,
    }

    app.execute("select fencepost.queue_resume('mail', 'carol')")

    assert [row["job_id"] for row in app.rows(DISPATCH, 10)] == [job_id]


def test_every_priority_is_dispatched_at_once_the_urgent_one_first(app: Caller) -> None:
    submit = "select job_id from fencepost.job_submit('mail', 'send', '{}', p_priority => %s)"
    bulk, *normal, urgent = [app.value(submit, priority) for priority in (3, 1, 1, 1, 0)]

    found = app.rows("select * from fencepost.job_dispatch_by_priority('mail', 2)")

    assert [(row["priority"], row["job_id"]) for row in found] == [
        (0, urgent), (1, normal[0]), (1, normal[1]), (3, bulk),
    ]  # fmt: skip


PRIORITIES = "select priority from fencepost.job_dispatch_by_priority('mail', 100)"
FILL = """select fencepost.job_submit_many(
  'mail', 'send', array_fill('{}'::jsonb, array[%s::int]), p_priority => %s)"""


def test_all_priorities_together_stay_inside_the_rate_of_their_queue(app: Caller) -> None:
    app.execute("select fencepost.queue_rate('mail', 1, 3, 'carol')")
    for priority in (0, 0, 1, 1, 2):
        app.execute("select fencepost.job_submit('mail', 'send', '{}', p_priority => %s)", priority)

    assert len(app.column(PRIORITIES)) == 3


def test_priorities_share_the_room_that_a_rate_leaves(app: Caller) -> None:
    app.execute("select fencepost.queue_rate('mail', 1, 30, 'carol')")
    for priority in range(4):
        app.execute(FILL, 40, priority)

    assert Counter(app.column(PRIORITIES)) == {0: 16, 1: 8, 2: 4, 3: 2}


def test_priorities_share_what_another_one_does_not_need(app: Caller) -> None:
    app.execute("select fencepost.queue_rate('mail', 1, 30, 'carol')")
    for priority, count in enumerate((2, 0, 40, 5)):
        app.execute(FILL, count, priority)

    assert Counter(app.column(PRIORITIES)) == {0: 2, 2: 23, 3: 5}


def test_no_priority_starves_where_a_rate_gives_one_place_at_a_time(app: Caller) -> None:
    app.execute("select fencepost.queue_rate('mail', 1, 1, 'carol')")
    for priority in (0, 3):
        app.execute(FILL, 3, priority)
    app.execute("select setseed(0.5)")

    # Each of these forgets what the one before took, so all of them choose among the same jobs.
    given = Counter(priority for _ in range(150) for priority in app.column(PRIORITIES))

    assert given.total() == 150
    assert 5 <= given[3] <= 35, "one in nine"


def test_an_idle_dispatcher_is_ended_after_half_its_patience(app: Caller) -> None:
    job_calls.submit(app)

    with app.transaction():
        app.execute("select fencepost.job_dispatch('mail', 1, 10, '10 seconds')")
        assert app.value("show idle_in_transaction_session_timeout") == "5s"

    assert app.value("show idle_in_transaction_session_timeout") == "0"


@pytest.mark.parametrize("limit", [-1, None])
def test_a_limit_that_means_nothing_is_turned_away(app: Caller, limit: int | None) -> None:
    app.invalid("limit", "select fencepost.job_dispatch('mail', 1, %s::int)", limit)
    app.invalid("limit", "select fencepost.job_dispatch_by_priority('mail', %s::int)", limit)
    app.invalid("limit", "select fencepost.job_dispatched_page('mail', 1, '1 s', null, null, %s::int)", limit)
    app.invalid("limit", "select fencepost.job_claim_next('mail', 1, 'w', %s::int)", limit)
    app.invalid("limit", "select fencepost.job_reclaim(%s::int)", limit)
    app.invalid("limit", "select fencepost.job_prune('1 hour', %s::int)", limit)
    app.invalid("limit", "select fencepost.outbox_hold('orders', %s::int)", limit)
    app.invalid("limit", "select fencepost.outbox_take('orders', 'r', '1 minute', %s::int)", limit)
    app.invalid("limit", "select fencepost.outbox_expire('orders', 'queued', %s::int)", limit)
    app.invalid("limit", "select fencepost.outbox_prune('1 hour', %s::int)", limit)
    app.invalid("limit", "select fencepost.idempotency_clean('1 hour', %s::int)", limit)
    app.invalid("limit", "select fencepost.history_prune('1 hour', %s::int)", limit)
