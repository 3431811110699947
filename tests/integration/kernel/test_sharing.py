"""A claim skips what another transaction holds; a change of many rows locks them in one order."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, LiteralString

import pytest

from fencepost.testing import Clock
from tests.integration.kernel import job_calls
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.job_calls import OWNER
from tests.integration.kernel.overlap import begun, wait_until_blocked

Given = Callable[[Caller, Clock], list[Any]]


def _pending(app: Caller, clock: Clock) -> list[Any]:
    return [job_calls.submit(app), job_calls.submit(app)]


def _keyed(app: Caller, clock: Clock) -> list[Any]:
    """The first of them has the key whose lock comes last."""
    keys = app.column("select k from unnest('{a, b}'::text[]) k order by hashtextextended(k, 9203) desc")
    return [job_calls.submit_keyed(app, key, 1) for key in keys]


def _driven(app: Caller, clock: Clock) -> list[Any]:
    return [job_calls.dispatched(app, "1-0"), job_calls.dispatched(app, "2-0")]


def _running(app: Caller, clock: Clock) -> list[Any]:
    return [job_calls.running(app), job_calls.running(app)]


def _lost(app: Caller, clock: Clock) -> list[Any]:
    jobs = _running(app, clock)
    clock.advance(60)
    return jobs


def _queued(app: Caller, clock: Clock) -> list[Any]:
    return app.column("select fencepost.outbox_put_many('c', null, '{1, 2}'::jsonb[])")


def _sending(app: Caller, clock: Clock) -> list[Any]:
    messages = _queued(app, clock)
    app.execute("select fencepost.outbox_take('c', 'o', '1 minute', 2)")
    return messages


def _silent(app: Caller, clock: Clock) -> list[Any]:
    messages = _sending(app, clock)
    clock.advance(60)
    return messages


def _unknown(app: Caller, clock: Clock) -> list[Any]:
    messages = _sending(app, clock)
    app.execute("select fencepost.outbox_settle_many(%s, '{1, 1}', 'o', '{unknown, unknown}')", messages)
    return messages


# What takes work, the table that it takes it from with its key, and what lies there. Each answers the keys.
TAKING: dict[LiteralString, tuple[LiteralString, LiteralString, Given]] = {
    "select job_id from fencepost.job_dispatch('mail', 1, 2)": ("job_waiting", "job_id", _pending),
    "select job_id from fencepost.job_dispatch_by_priority('mail', 2)": ("job_waiting", "job_id", _pending),
    "select job_id from fencepost.job_claim_next('mail', 1, 'w', 2)": ("job_waiting", "job_id", _pending),
    "select job_id from fencepost.job_claim_next('mail', 1, 'w', 2, null, true)": (
        "job_waiting",
        "job_id",
        _driven,
    ),
    "select job_id from fencepost.job_claim_by_priority('mail', 'w', 2)": ("job_waiting", "job_id", _pending),
    "select job_id from fencepost.job_claim_by_priority('mail', 'w', 2, null, true)": (
        "job_waiting",
        "job_id",
        _driven,
    ),
    "select job_id from fencepost.job_reclaim(2)": ("job_running", "job_id", _lost),
    "select id from fencepost.outbox_hold('c', 2)": ("outbox", "id", _queued),
    "select id from fencepost.outbox_take('c', 'p', '1 minute', 2)": ("outbox", "id", _queued),
    "select id from fencepost.outbox_take('c', 'p', '1 minute', 2, true)": ("outbox", "id", _unknown),
    "select fencepost.outbox_expire('c', 'queued', 2)": ("outbox", "id", _silent),
}


@pytest.mark.parametrize("take", TAKING)
def test_what_another_holds_is_skipped_and_what_is_taken_belongs_to_its_taker(
    app: Caller, admin: Caller, connect: Callable[[], Caller], clock: Clock, take: LiteralString
) -> None:
    table, key, given = TAKING[take]
    held, free = given(app, clock)
    app.execute("set lock_timeout = '5s'")
    other = connect()

    with admin.transaction():
        admin.execute("select from fencepost." + table + " where " + key + " = %s for update", held)
        with app.transaction():
            assert app.column(take) == [free]
            other.execute("set lock_timeout = '5s'")
            assert other.column(take) == [], "the one is held, and the other was taken"
    assert held in app.column(take)


def test_a_schedule_that_another_fires_is_left_to_it(app: Caller, admin: Caller, clock: Clock) -> None:
    now = clock.now()
    app.execute(
        """select fencepost.schedule_declare('tick', '* * * * *', 'UTC', 'once', '0', %s, 'mail', 'send', '1',
                                             1, 1, '1 s', null, null, null, '{}')""",
        now,
    )
    fire = "select tick from fencepost.schedule_fire('tick', %s, array[%s::timestamptz], %s)"
    app.execute("set lock_timeout = '5s'")
    with admin.transaction():
        admin.execute("select from fencepost.job_schedule for update")
        assert app.column(fire, now, now, now + timedelta(minutes=1)) == []
    assert app.column(fire, now, now, now + timedelta(minutes=1)) == [now]


def test_a_slot_wakes_the_next_waiter_when_the_first_is_locked(
    app: Caller, admin: Caller, clock: Clock
) -> None:
    first, second, third = (job_calls.submit_keyed(app, "user:7", 1) for _ in range(3))
    job_calls.claim_many(app, [first])
    for waiting in (second, third):
        clock.advance(1)
        job_calls.claim_many(app, [waiting])
    app.execute("set lock_timeout = '5s'")
    with admin.transaction():
        admin.execute("select from fencepost.job_waiting where job_id = %s for update", second)
        app.execute("select fencepost.job_finish(%s, 1, %s)", first, OWNER)
    assert job_calls.job(app, third)["run_at"] <= clock.now()
    assert job_calls.job(app, second)["run_at"] > clock.now()


# What changes many, for keys that are given in descending order, with the table that they are in.
CHANGING: dict[LiteralString, tuple[LiteralString, LiteralString, Given]] = {
    "job_claim_many(%s, 'w')": ("job_waiting", "job_id", _pending),
    "job_claim_many(%s, 'keyed')": ("job_waiting", "job_id", _keyed),
    "job_dispatched(%s, '{2-0, 1-0}', 'life')": ("job_waiting", "job_id", _pending),
    "job_dispatch_failed(%s, 'no', '1 s')": ("job_waiting", "job_id", _pending),
    "job_recall(%s, '{2-0, 1-0}')": ("job_waiting", "job_id", _driven),
    "job_finish_many(%s, '{1, 1}', 'worker-1/boot-1')": ("job_running", "job_id", _running),
    "job_leave_many(%s, '{1, 1}', 'worker-1/boot-1', '{bury, bury}')": ("job_running", "job_id", _running),
    "outbox_renew(%s, '{1, 1}', 'o', '1 minute')": ("outbox", "id", _sending),
    "outbox_settle_many(%s, '{1, 1}', 'o', '{sent, sent}')": ("outbox", "id", _sending),
    "outbox_settle_many(%s, '{1, 1}', 'o', '{sent, failed}')": ("outbox", "id", _sending),
    "batch_make(%s)": ("job_waiting", "job_id", _pending),
    "lease_renew_many(%s, 'o', '{1, 1}', '1 minute')": ("lease", "resource", lambda app, _: _leases(app)),
    "lease_acquire_many(%s, 'o', '1 minute')": ("lease", "resource", lambda app, _: _leases(app)),
    "lease_release_many(%s, 'o', '{1, 1}')": ("lease", "resource", lambda app, _: _leases(app)),
}


def _leases(app: Caller) -> list[Any]:
    app.execute("select fencepost.lease_acquire_many('{r, s}', 'o', '1 minute')")
    return ["r", "s"]


@pytest.mark.parametrize("change", CHANGING)
def test_many_are_locked_from_the_first_to_the_last_whatever_the_order_they_are_given_in(
    app: Caller, admin: Caller, connect: Callable[[], Caller], clock: Clock, change: LiteralString
) -> None:
    table, key, given = CHANGING[change]
    first, last = given(app, clock)
    holder = connect_admin(admin)
    lock: Any = "select from fencepost." + table + " where " + key + " = %s for update"
    free: Any = "select " + key + " from fencepost." + table + " for update skip locked"
    try:
        holder.execute("begin")
        holder.execute(lock, first)
        with begun(app, "select fencepost." + change, [last, first]):
            wait_until_blocked(admin, app)
            assert admin.column(free) == [last], "a call that waits for the first has not locked the last"
            holder.execute("rollback")
    finally:
        holder.close()


def connect_admin(admin: Caller) -> Caller:
    info = admin.connection.info
    return Caller(f"{info.dsn} password={info.password}")


ENDING: dict[str, LiteralString] = {
    "finish": "job_finish_many(%s, '{1, 1}', 'worker-1/boot-1')",
    "leave": "job_leave_many(%s, '{1, 1}', 'worker-1/boot-1', '{bury, bury}')",
    "reclaim": "job_reclaim(cardinality(%s::bigint[]))",
    "claim": "job_claim_many(%s, 'w')",
}


@pytest.mark.parametrize("ending", ENDING)
def test_batches_are_counted_in_their_order_whatever_the_order_of_the_jobs_that_end(
    app: Caller, admin: Caller, clock: Clock, ending: str
) -> None:
    late, early = (job_calls.submit(app, tries_max=1) for _ in range(2))
    first, second = (app.value("select fencepost.batch_make(%s)", [job_id]) for job_id in (early, late))
    if ending in ("reclaim", "claim"):
        # Each alone in its worker: jobs that are lost together do not end.
        job_calls.claim(app, late, "worker-1")
        job_calls.claim(app, early, "worker-2")
        clock.advance(60)
    else:
        job_calls.claim_many(app, [late, early])
    # Some are claimed beside those that end.
    jobs = [late, early, job_calls.submit(app)] if ending == "claim" else [late, early]
    holder = connect_admin(admin)
    try:
        holder.execute("begin")
        holder.execute("select from fencepost.job_batch_part where batch_id = %s for update", first)
        with begun(app, "select fencepost." + ENDING[ending], jobs):
            wait_until_blocked(admin, app)
            free = "select batch_id from fencepost.job_batch_part for update skip locked"
            assert admin.column(free) == [second], (
                "a call that waits for the first batch has not counted in the second"
            )
            holder.execute("rollback")
    finally:
        holder.close()
    ends = app.column("select completed_at is not null from fencepost.batches")
    assert ends == [True, True]


JOIN: Any = """
    insert into fencepost.job_batch_member (job_id, batch_id, part) select unnest(%s::bigint[]), %s, 0
"""


def test_no_batch_is_counted_in_before_all_rows_of_callers_that_leave_are_locked(
    app: Caller, admin: Caller, clock: Clock
) -> None:
    jobs = _running(app, clock)
    batch = app.value(
        "select fencepost.batch_make(array(select job_id from fencepost.job_submit('mail', 'send', '1')))"
    )
    admin.execute(JOIN, jobs, batch)
    admin.execute("update fencepost.job_batch_part set remaining = 3 where batch_id = %s", batch)
    holder = connect_admin(admin)
    try:
        holder.execute("begin")
        holder.execute("select from fencepost.job_running where job_id = %s for key share", jobs[1])
        with begun(app, "select fencepost.job_leave_many(%s, '{1, 1}', %s, '{bury, bury}')", jobs, OWNER):
            wait_until_blocked(admin, app)
            assert admin.column("select part from fencepost.job_batch_part for update skip locked") == [0]
            holder.execute("rollback")
    finally:
        holder.close()


def test_a_caller_that_is_refused_waits_for_no_batch(app: Caller, admin: Caller, clock: Clock) -> None:
    job_id = job_calls.submit(app, tries_max=1)
    app.execute("select fencepost.batch_make(%s)", [job_id])
    job_calls.claim(app, job_id)
    app.execute("set lock_timeout = '5s'")
    with admin.transaction():
        admin.execute("select from fencepost.job_batch_part for update")
        assert job_calls.claim_many(app, [job_id], "w")[job_id]["refusal"] == "not_owner"


def test_a_settlement_does_not_wait_for_the_caller_that_has_the_next_message_in_hand(
    app: Caller, admin: Caller, clock: Clock
) -> None:
    first, second = (app.value("select fencepost.outbox_put('c', 'k', '1')") for _ in range(2))
    app.execute("select fencepost.outbox_take('c', 'o', '1 minute', 1)")
    app.execute("set lock_timeout = '5s'")
    with admin.transaction():
        admin.execute("select from fencepost.outbox where id = %s for update", second)
        app.execute("select fencepost.outbox_settle(%s, 1, 'o', 'sent')", first)
    assert admin.column("select key from fencepost.outbox_unpromoted") == ["k"], "noted for the next take"
    assert app.column("select id from fencepost.outbox_take('c', 'o', '1 minute', 1)") == [second]
    assert admin.column("select key from fencepost.outbox_unpromoted") == []


def test_a_claim_that_waited_for_a_row_judges_it_as_it_is_then(
    app: Caller, admin: Caller, connect: Callable[[], Caller], clock: Clock
) -> None:
    job_id = job_calls.submit_keyed(app, "user:7", 1)
    holder = connect_admin(admin)
    try:
        holder.execute("begin")
        holder.execute("update fencepost.job_waiting set run_at = '2031-01-01' where job_id = %s", job_id)
        with begun(app, "select outcome, refusal from fencepost.job_claim_many(%s, 'w')", [job_id]) as answer:
            wait_until_blocked(admin, app)
            holder.execute("commit")
            assert [tuple(row.values()) for row in answer.result()] == [("refused", "not_running")]
    finally:
        holder.close()


def test_a_lease_that_is_let_go_while_its_owner_asks_for_it_again_is_acquired_anew(
    app: Caller, admin: Caller, connect: Callable[[], Caller], clock: Clock
) -> None:
    app.execute("select fencepost.lease_acquire('r', 'o', '1 minute')")
    other = connect()
    other.execute("begin")
    other.execute("select fencepost.lease_release('r', 'o', 1)")

    with begun(app, "select owner, token from fencepost.lease_acquire('r', 'o', '1 minute')") as again:
        wait_until_blocked(admin, app)
        other.execute("commit")
        assert [tuple(row.values()) for row in again.result()] == [("o", 2)]


def test_a_lease_that_ends_while_its_owner_waits_to_renew_it_is_acquired_anew(
    app: Caller, admin: Caller, clock: Clock
) -> None:
    app.execute("select fencepost.lease_acquire('r', 'o', '1 minute')")
    holder = connect_admin(admin)
    try:
        holder.execute("begin")
        holder.execute("update fencepost.lease set expires_at = %s, acquired_at = '2029-01-01'", clock.now())
        with begun(app, "select owner, token from fencepost.lease_acquire('r', 'o', '1 minute')") as again:
            wait_until_blocked(admin, app)
            holder.execute("commit")
            assert [tuple(row.values()) for row in again.result()] == [("o", 2)]
    finally:
        holder.close()
