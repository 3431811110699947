"""A filter answers what reading the views row by row would have chosen."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from typing import Any, LiteralString

import pytest

from fencepost.testing import Clock
from tests.integration.kernel.caller import Caller

STATES = ("pending", "dispatched", "running", "finished", "dead", "cancelled")
QUEUES, KINDS, PRIORITIES = ("mail", "post"), ("send", "print"), (0, 1)
SUBMIT = "select job_id from fencepost.job_submit(%s, %s, '{}', p_priority => %s)"
# What brings a job that was submitted to its state.
MOVES: dict[str, tuple[LiteralString, ...]] = {
    "pending": (),
    "dispatched": ("job_dispatched(array[%(id)s], array['1-' || %(id)s], 'life')",),
    "running": ("job_claim(%(id)s, 'w')",),
    "finished": ("job_claim(%(id)s, 'w')", "job_finish(%(id)s, 1, 'w')"),
    "dead": ("job_claim(%(id)s, 'w')", "job_bury(%(id)s, 1, 'w', %(error)s)"),
    "cancelled": ("job_cancel(%(id)s, 'carol')",),
}


@pytest.fixture
def crowd(app: Caller, clock: Clock) -> list[dict[str, Any]]:
    """Two jobs in each state, of each queue and kind, three a second; in order of id."""
    for number, (state, queue, kind, again) in enumerate(product(STATES, QUEUES, KINDS, (0, 1))):
        job_id = app.value(SUBMIT, queue, kind, number % 2)
        for move in MOVES[state]:
            cause = "Timeout: late" if again else "no name"
            app.connection.execute("select fencepost." + move, {"id": job_id, "error": cause})
        if number % 3 == 0:
            clock.advance(1)
    return app.rows("select * from fencepost.jobs order by job_id")


def around(values: list[Any]) -> list[Any]:
    """Nothing, the smallest, one from the middle, the largest."""
    return [None, values[0], values[len(values) // 2], values[-1]]


def test_a_page_has_the_newest_jobs_that_its_filter_means(app: Caller, crowd: list[dict[str, Any]]) -> None:
    page = "select fencepost.job_page(%s, %s, %s, %s, %s)"
    befores = around([job["job_id"] for job in crowd])
    for state, queue, kind, before in product((None, *STATES), (None, *QUEUES), (None, *KINDS), befores):
        meant = [
            job["job_id"]
            for job in reversed(crowd)
            if state in (None, job["state"])
            and queue in (None, job["queue"])
            and kind in (None, job["kind"])
            and (before is None or job["job_id"] < before)
        ]
        for limit in (0, 1, 1000):
            assert app.column(page, state, queue, kind, before, limit) == meant[:limit]


def dead_of(app: Caller) -> Iterator[tuple[tuple[Any, ...], list[int]]]:
    """Filters of dead letters, each with the letters that it means."""
    letters = app.rows("select * from fencepost.dead_letters order by job_id")
    times = around(sorted({letter["finished_at"] for letter in letters}))
    causes = (None, "Timeout", "failed", "Fire")
    assert {letter["cause"] for letter in letters} == {"Timeout", "failed"}
    for queue, kind, cause, before in product((None, *QUEUES), (None, *KINDS), causes, times):
        meant = [
            letter["job_id"]
            for letter in letters
            if queue in (None, letter["queue"])
            and kind in (None, letter["kind"])
            and cause in (None, letter["cause"])
            and (before is None or letter["finished_at"] <= before)
        ]
        yield (queue, kind, cause, before), meant


def test_dead_letters_are_the_ones_that_a_filter_means(app: Caller, crowd: list[dict[str, Any]]) -> None:
    ids = "select fencepost.dead_ids(%s, %s, %s, %s, %s, %s)"
    afters = around([job["job_id"] for job in crowd if job["state"] == "dead"])
    for meaning, meant in dead_of(app):
        assert app.value("select fencepost.dead_count(%s, %s, %s, %s)", *meaning) == len(meant)
        for after in afters:
            behind = [job_id for job_id in meant if after is None or job_id > after]
            assert app.column(ids, *meaning, after, 1000) == behind
            assert app.column(ids, *meaning, after, 1) == behind[:1]


def test_what_was_driven_is_told_by_priority_and_age_from_a_place_on(
    app: Caller, clock: Clock, crowd: list[dict[str, Any]]
) -> None:
    driven = "select job_id from fencepost.job_dispatched_page(%s, %s, %s, %s, %s, %s)"
    events = {row["job_id"]: row for row in app.rows("select * from fencepost.outbox_events")}
    places = sorted(
        (events[job["job_id"]]["dispatched_at"], job["job_id"])
        for job in crowd
        if job["state"] == "dispatched"
    )
    jobs, now = {job["job_id"]: job for job in crowd}, clock.now()
    for queue, priority, (at, _), after in product(QUEUES, PRIORITIES, places, [None, *places]):
        meant = [
            job_id
            for place, job_id in places
            if (jobs[job_id]["queue"], jobs[job_id]["priority"]) == (queue, priority)
            and place <= at
            and (after is None or (place, job_id) > after)
        ]
        after_at, after_id = after or (None, None)
        age = now - at
        assert app.column(driven, queue, priority, age, after_at, after_id, 1000) == meant
        assert app.column(driven, queue, priority, age, after_at, after_id, 1) == meant[:1]


def test_what_is_dispatched_is_due_and_pending_and_of_its_priority_oldest_first(
    app: Caller, clock: Clock, crowd: list[dict[str, Any]]
) -> None:
    soon = clock.now() + timedelta(seconds=1)
    for queue, priority in product(QUEUES, PRIORITIES):
        app.execute("select fencepost.job_submit(%s, 'send', '{}', %s, %s)", queue, priority, soon)
    one, priorities = (
        "select job_id from fencepost.job_dispatch(%s, %s, %s)",
        "select priority, job_id from fencepost.job_dispatch_by_priority(%s, %s)",
    )
    for late in (False, True):
        if late:
            clock.advance(1)
        pending = sorted(
            (job["run_at"], job["job_id"], job["queue"], job["priority"])
            for job in app.rows("select * from fencepost.jobs where state = 'pending'")
            if job["run_at"] <= clock.now()
        )
        assert len(pending) == (12 if late else 8)
        for queue, priority in product(QUEUES, PRIORITIES):
            meant = [job_id for _, job_id, *its in pending if its == [queue, priority]]
            assert app.column(one, queue, priority, 1000) == meant
            assert app.column(one, queue, priority, 1) == meant[:1]
            assert app.column(one, queue, priority, 0) == []
            assert [
                row["job_id"] for row in app.rows(priorities, queue, 1000) if row["priority"] == priority
            ] == meant


def test_the_next_due_is_the_first_pending_one_of_a_queue_that_is_not_paused(
    app: Caller, clock: Clock, crowd: list[dict[str, Any]]
) -> None:
    due = "select fencepost.job_next_due(%s)"
    for queue in QUEUES:
        pending = [job["run_at"] for job in crowd if (job["queue"], job["state"]) == (queue, "pending")]
        assert app.value(due, queue) == min(pending)
        for priority in (2, 3):
            at = min(pending) - timedelta(seconds=priority)
            # Nothing is submitted into the past: the clock was there.
            clock.advance((at - clock.now()).total_seconds())
            early = app.value(SUBMIT, queue, "send", priority)
            assert app.value(due, queue) == at
            app.execute("select fencepost.job_dispatched(%s, '{9-9}', 'life')", [early])
            assert app.value(due, queue) == min(pending)
    app.execute("select fencepost.queue_pause('mail', 'carol')")
    assert app.value(due, "mail") is None
    assert app.value(due, "post") is not None
    assert app.value(due, "empty") is None


def test_what_waits_is_counted_by_queue_up_to_a_bound(
    app: Caller, admin: Caller, crowd: list[dict[str, Any]]
) -> None:
    app.execute("select fencepost.job_submit('mail', 'send', '{}')")
    for bound in (1, 4, 5, 8, 9, 10, 100):
        assert admin.value("select fencepost._queue_waiting('mail', %s)", bound) == min(bound, 9)
        assert admin.value("select fencepost._queue_waiting('post', %s)", bound) == min(bound, 8)
    app.execute("select fencepost.queue_bound('mail', 20, 'carol')")
    app.execute("select fencepost.queue_pause('post', 'carol')")
    app.execute("select fencepost.queue_count()")
    counted = "select queue, waiting_now from fencepost.job_queue order by queue"
    assert [tuple(row.values()) for row in admin.rows(counted)] == [("mail", 9), ("post", 0)]
