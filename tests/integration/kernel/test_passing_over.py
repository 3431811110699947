"""A prune takes what is old enough and no more, and waits for no lock."""

from collections.abc import Callable
from typing import Any

import pytest

from fencepost.testing import Clock
from tests.integration.kernel import job_calls
from tests.integration.kernel.caller import Caller

DECLARE = """
    select fencepost.schedule_declare('tick', '* * * * *', 'UTC', 'once', '0', %s, 'mail', 'send', '1', 1, 1,
                                      '1 s', null, null, null, '{}')
"""
FIRE = "select from fencepost.schedule_fire('tick', %s, array[%s], %s)"
BUCKETS = "select fencepost.queue_rate(%s, 1000, 1, 'carol')"
# What forgets, with how many that is, and the table that it forgets from.
FORGETTING: dict[Any, tuple[int, Any]] = {
    "idempotency_clean('1 hour', %s)": (1, "idempotency_key"),
    "outbox_prune('1 hour', %s)": (1, "outbox_settled"),
    "job_prune('1 hour', %s)": (1, "job_finished"),
    "job_prune_excess(1, %s)": (1, "job_finished"),
    "history_prune('1 hour', %s)": (2, "event, fencepost.refusal"),
    "schedule_prune('1 hour', %s)": (1, "job_tick"),
    "batch_prune('1 hour', %s)": (1, "job_batch"),
    "event_prune('1 hour', %s)": (1, "workflow_event"),
}


def leave_traces(app: Caller, admin: Caller, clock: Clock, key: str) -> None:
    """One thing of each kind, which is over."""
    app.execute("select fencepost.claim('s', %s)", key)
    app.execute("select fencepost.outbox_put('c', %s, '1')", key)
    app.execute("select fencepost.outbox_take('c', 'o', '1 minute', 1)")
    app.execute("select fencepost.outbox_settle(max(id), 1, 'o', 'sent') from fencepost.outbox_messages")
    job_calls.finished(app)
    now = clock.now()
    app.execute(DECLARE, now)
    admin.execute("update fencepost.job_schedule set next_tick = %s", now)
    app.execute(FIRE, now, now, now.replace(year=2031))
    app.execute("select fencepost.batch_make('{}')")
    app.execute("select fencepost.event_emit(%s)", key)
    admin.execute("delete from fencepost.event where at = %s", now)
    app.execute("select fencepost.stream_poison('s', %s, 'r', '{}')", key)
    app.execute("select fencepost.refusal_record('not_found', 'job', %s, 'w', '{}', '{}')", key)


@pytest.mark.parametrize("how", ["its age", "its holder"])
def test_what_forgets_takes_what_is_older_and_passes_over_what_a_caller_holds(
    app: Caller, admin: Caller, connect: Callable[[], Caller], clock: Clock, how: str
) -> None:
    leave_traces(app, admin, clock, "older")
    clock.advance(1)
    leave_traces(app, admin, clock, "newer")
    app.execute("set lock_timeout = '5s'")
    clock.advance(3599)
    if how == "its age":
        of_age = [app.value("select fencepost." + call, 10) for call in FORGETTING if "1 hour" in call]
        assert set(of_age) == {0}, "an hour old is not older than an hour"
    clock.advance(1)

    for call, (count, table) in FORGETTING.items():
        if how == "its age":
            forgets: Any = "select fencepost." + call
            # Of the jobs one goes by its age; the other is the newest, and stays.
            expected = 0 if call.startswith("job_prune_excess") else count
            assert (app.value(forgets, 0), app.value(forgets, 10), app.value(forgets, 10)) == (0, expected, 0)
        else:
            with admin.transaction():
                admin.execute("select from fencepost." + table + " for update")
                assert app.value("select fencepost." + call, 10) == 0
            assert app.value("select count(*) from fencepost.jobs where state = 'finished'") == 2


def test_a_bucket_that_a_caller_holds_is_passed_over(app: Caller, admin: Caller, clock: Clock) -> None:
    app.execute(BUCKETS, "mail")
    job_calls.running(app)
    app.execute("set lock_timeout = '5s'")
    clock.advance(60)
    assert app.value("select fencepost.rate_prune(10)") == 0, "a minute old is not older than a minute"
    clock.advance(1)
    with admin.transaction():
        admin.execute("select from fencepost.job_bucket for update")
        assert app.value("select fencepost.rate_prune(10)") == 0
    assert app.value("select fencepost.rate_prune(0)") == 0
    assert app.value("select fencepost.rate_prune(10)") == 1
