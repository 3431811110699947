"""A call changes the thing that it names. Whatever stands beside it, in the same state, stays as it is."""

import itertools
from typing import Any, LiteralString

import pytest

from fencepost.testing import Clock
from tests.integration.kernel import job_calls
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.job_calls import OWNER

SCHEDULE = """
    select fencepost.schedule_declare(%s, '* * * * *', 'UTC', 'once', '0', %s, 'mail', %s, '1', 1, 1, '1 s',
                                      null, null, null, '{}')
"""
# The tables, and the column that says whose a row is.
WHOSE: dict[LiteralString, LiteralString] = {
    **dict.fromkeys(("job", "job_waiting", "job_running", "job_finished", "job_unique"), "job_id"),
    "job_batch_member": "job_id",
    **dict.fromkeys(("outbox", "outbox_settled"), "id"),
    **dict.fromkeys(("lease", "checkpoint"), "resource"),
    **dict.fromkeys(("job_rate", "job_bucket", "job_schedule"), "name"),
    "job_queue": "queue",
    "job_tick": "schedule",
    "idempotency_key": "key",
    "sleeper": "topic",
    "outbox_unpromoted": "key",
}
# By what is there twice: every call that names the first.
CALLS: dict[str, tuple[LiteralString, ...]] = {
    "pending": (
        "job_dispatched(array[{id}], '{{9-0}}', 'life')",
        "job_dispatch_failed(array[{id}], 'no', '1 minute')",
        "job_claim({id}, 'w')",
        "job_claim_many(array[{id}], 'w')",
        "job_cancel({id}, 'carol')",
        "job_cancel({id}, 'carol', 'pending')",
        "batch_make(array[{id}])",
        "batch_make('{{}}', {id})",
    ),
    "keyed": ("job_claim({id}, 'w')", "job_claim_many(array[{id}], 'w')", "job_cancel({id}, 'carol')"),
    "late": ("job_hurry({id}, 'carol')",),
    "dispatched": (
        "job_recall(array[{id}], '{{1-0}}')",
        "job_claim({id}, 'w')",
        "job_cancel({id}, 'carol', 'dispatched')",
    ),
    "running": (
        "job_finish({id}, 1, '" + OWNER + "')",
        "job_finish_many(array[{id}], '{{1}}', '" + OWNER + "')",
        "job_renew({id}, 1, '" + OWNER + "')",
        "job_renew_many(array[{id}], '{{1}}', '" + OWNER + "')",
        "job_progress({id}, 1, '" + OWNER + "', '7')",
        "job_retry({id}, 1, '" + OWNER + "', 'no', '1 minute')",
        "job_release({id}, 1, '" + OWNER + "')",
        "job_bury({id}, 1, '" + OWNER + "', 'no')",
        "job_leave_many(array[{id}], '{{1}}', '" + OWNER + "', '{{retry}}')",
        "job_cancel({id}, 'carol')",
    ),
    "lost": ("job_reclaim_one({id})", "job_claim({id}, 'w')", "job_reclaim(1)"),
    "dead": (
        "job_replay({id}, 'carol')",
        "job_discard({id}, 'carol')",
        "dead_settle(array[{id}], 'replay', 'carol')",
        "dead_settle(array[{id}], 'discard', 'carol')",
    ),
    "sending": (
        "outbox_renew(array[{id}], '{{1}}', 'o', '1 hour')",
        "outbox_settle({id}, 1, 'o', 'sent')",
        "outbox_settle({id}, 1, 'o', 'failed')",
        "outbox_settle_many(array[{id}], '{{1}}', 'o', '{{sent}}')",
        "outbox_settle_many(array[{id}], '{{1}}', 'o', '{{parked}}')",
    ),
    "parked": ("outbox_resolve({id}, 'parked', 'dead', 'carol', 'so')",),
    "channel": (
        "outbox_take({name}, 'o', '1 minute', 9)",
        "outbox_put({name}, 'k', '1')",
    ),
    "silent": ("outbox_expire({name}, 'queued', 9)",),
    "lease": (
        "lease_acquire({name}, 'o', '1 hour')",
        "lease_acquire_many(array[{name}], 'o', '1 hour')",
        "lease_renew({name}, 'o', 1, '1 hour')",
        "lease_renew_many(array[{name}], 'o', '{{1}}', '1 hour')",
        "lease_release({name}, 'o', 1)",
        "lease_release_many(array[{name}], 'o', '{{1}}')",
        "checkpoint_begin({name}, 1)",
        "checkpoint_store({name}, 1, 1, null, '7', null)",
        "checkpoint_abort({name}, 1, 1)",
    ),
    "queue": (
        "queue_pause({name}, 'carol')",
        "queue_resume({name}, 'carol')",
        "queue_bound({name}, 9, 'carol')",
        "queue_rate({name}, 9, 9, 'carol')",
        "queue_rate({name}, null, null, 'carol')",
    ),
    "kind": (
        "rate_declare(array[{name}], '{{9}}', '{{9}}')",
        "rate_declare(array[{name}], '{{null}}', '{{null}}')",
    ),
    "schedule": (
        "schedule_pause({name}, 'carol')",
        "schedule_resume({name}, 'carol')",
        "schedule_retire(array[{name}], '{{}}', 'carol')",
        "schedule_retire('{{first, second}}', '{{second}}', 'carol')",
        "schedule_fire({name}, '2030-01-01 12:00+00', '{{2030-01-01 12:00+00}}', '2030-01-01 12:01+00')",
    ),
    "topic": ("wake_up({name})", "sleep_on({name})"),
}  # fmt: skip


def pair(app: Caller, clock: Clock, what: str) -> tuple[Any, Any]:
    """Two of them: what is named, and what stands beside it."""
    numbers = itertools.count()
    make: dict[str, Any] = {
        "pending": lambda: job_calls.submit(app),
        "keyed": lambda: job_calls.submit_keyed(app, "user:7", 2),
        "late": lambda: app.value(
            "select job_id from fencepost.job_submit('mail', 'send', '1', p_run_at => '2031-01-01')"
        ),
        "dispatched": lambda: job_calls.dispatched(app),
        "running": lambda: job_calls.running(app),
        # Each alone in its worker: those that are lost together are judged together.
        "lost": lambda: job_calls.running(app, owner=f"worker {next(numbers)}"),
        "dead": lambda: job_calls.dead(app),
    }
    if what in make:
        first, second = make[what](), make[what]()
        clock.advance(60 if what == "lost" else 0)
        return first, second
    if what in ("sending", "parked"):
        first, second = app.column("select fencepost.outbox_put_many('c', null, '{1, 2}'::jsonb[])")
        app.execute("select fencepost.outbox_take('c', 'o', '1 minute', 2)")
        if what == "parked":
            app.execute(
                "select fencepost.outbox_settle_many(%s, '{1, 1}', 'o', '{parked, parked}')", [first, second]
            )
        return first, second
    for name in ("first", "second"):
        match what:
            case "channel" | "silent":
                app.execute("select fencepost.outbox_put(%s, 'k', '1')", name)
                if what == "silent":
                    app.execute("select fencepost.outbox_take(%s, 'o', '1 s', 1)", name)
            case "lease":
                app.execute("select fencepost.lease_acquire(%s, 'o', '1 minute')", name)
                app.execute("select fencepost.checkpoint_begin(%s, 1)", name)
            case "queue":
                app.execute("select fencepost.queue_pause(%s, 'dora')", name)
                app.execute("select fencepost.queue_bound(%s, 7, 'dora')", name)
                app.execute("select fencepost.queue_rate(%s, 7, 7, 'dora')", name)
            case "kind":
                app.execute("select fencepost.rate_declare(array[%s], '{7}', '{7}')", name)
            case "schedule":
                app.execute(SCHEDULE, name, clock.now(), name)
                app.execute(
                    "select fencepost.schedule_pause('second', 'dora')" if name == "second" else "select 1"
                )
            case _:
                app.execute("select fencepost.sleep_on(%s)", name)
    clock.advance(1 if what == "silent" else 0)
    return "first", "second"


def rows_of(admin: Caller, second: Any) -> dict[str, list[Any]]:
    names = [str(second), f"queue:{second}", f"kind:{second}"]
    query = "select t::text from fencepost.{} t where t.{}::text = any (%s) order by 1"
    found = {table: admin.column(query.format(table, column), names) for table, column in WHOSE.items()}
    if isinstance(second, str):
        messages: Any = "select o::text from fencepost.outbox o where o.channel = %s order by 1"
        found["messages of the channel"] = admin.column(messages, second)
    return found


@pytest.mark.parametrize("what", CALLS)
def test_a_call_leaves_alone_what_it_does_not_name(
    app: Caller, admin: Caller, clock: Clock, what: str
) -> None:
    first, second = pair(app, clock, what)
    before = rows_of(admin, second)
    assert sum(map(len, before.values())) > 0

    for call in CALLS[what]:
        named: Any = "select fencepost." + call.format(id=first, name=f"'{first}'")
        admin.execute("begin")
        admin.execute(named)
        assert rows_of(admin, second) == before, call
        admin.execute("rollback")


@pytest.mark.parametrize("what", CALLS)
def test_a_call_does_not_wait_for_the_caller_that_holds_what_it_does_not_name(
    app: Caller, admin: Caller, clock: Clock, what: str
) -> None:
    first, second = pair(app, clock, what)
    names = [str(second), f"queue:{second}", f"kind:{second}"]
    lock = "select from fencepost.{} t where t.{}::text = any (%s) for update"
    app.execute("set lock_timeout = '5s'")
    admin.execute("begin")
    for table, column in WHOSE.items():
        admin.execute(lock.format(table, column), names)
    if isinstance(second, str):
        admin.execute("select from fencepost.outbox where channel = %s for update", second)

    for call in CALLS[what]:
        named: Any = "select fencepost." + call.format(id=first, name=f"'{first}'")
        app.execute("begin")
        app.execute(named)
        app.execute("rollback")
    admin.execute("rollback")
