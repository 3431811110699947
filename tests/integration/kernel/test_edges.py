"""What lies exactly on a bound, and what belongs to another holder: mistakes there look right."""

import json
from typing import Any, LiteralString

import psycopg
import pytest

from fencepost.testing import Clock
from tests.integration.kernel import job_calls
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.job_calls import OWNER
from tests.integration.kernel.test_idempotency_ring import uuid7

SIZE = "select pg_column_size(%s::jsonb)"
BOUND_BYTES = 16384


def text_of_size(caller: Caller, size: int) -> str:
    """JSON that takes so many bytes in the database."""
    overhead = caller.value(SIZE, json.dumps({"k": "x" * 1000})) - 1000
    found = json.dumps({"k": "x" * (size - overhead)})
    assert caller.value(SIZE, found) == size
    return found


def test_headers_may_be_as_large_as_the_bound(app: Caller) -> None:
    submit = "select job_id from fencepost.job_submit('mail', 'send', '{}', p_headers => %s)"

    assert app.value(submit, text_of_size(app, BOUND_BYTES)) > 0
    app.invalid("headers", submit, text_of_size(app, BOUND_BYTES + 1))


def test_fields_of_a_poisoned_entry_are_kept_up_to_the_bound(app: Caller, admin: Caller) -> None:
    kept, dropped = text_of_size(app, BOUND_BYTES), text_of_size(app, BOUND_BYTES + 1)
    for entry, fields in (("1-0", kept), ("2-0", dropped)):
        app.execute("select fencepost.stream_poison('s', %s, 'unreadable', %s)", entry, fields)

    events = admin.column(
        "select detail -> 'fields' from fencepost.event where noun = 'stream' order by subject"
    )
    assert events == [json.loads(kept), "too large to keep"]


def test_what_was_dispatched_for_another_queue_takes_no_room(app: Caller, clock: Clock) -> None:
    app.execute("select fencepost.queue_bound('other', 1, 'carol')")
    job_calls.dispatched(app)
    # The count that the bound keeps is old by then, and made anew.
    clock.advance(60)

    assert job_calls.submit(app, queue="other") > 0


def test_jobs_of_another_queue_take_no_part_of_a_rate(app: Caller, clock: Clock) -> None:
    app.execute("select fencepost.queue_rate('mail', 1, 2, 'carol')")
    for _ in range(4):
        app.execute("select fencepost.job_submit('other', 'send', '{}', p_priority => 0)")
    ours = [
        app.value("select job_id from fencepost.job_submit('mail', 'send', '{}', p_priority => 3)")
        for _ in "ab"
    ]

    assert app.column("select job_id from fencepost.job_dispatch_by_priority('mail', 10)") == ours


def test_leaving_many_waits_for_no_other_job_of_its_owner(app: Caller, admin: Caller) -> None:
    ours, busy = job_calls.running(app), job_calls.running(app)
    app.execute("set lock_timeout = '20s'")
    with admin.transaction():
        admin.execute("select fencepost.job_fence(%s, 1, %s)", busy, OWNER)
        left = app.row("select * from fencepost.job_leave_many(%s, '{1}', %s, '{release}')", [ours], OWNER)

    assert (left["state"], left["refusal"]) == ("pending", None)


def test_a_batch_without_jobs_and_without_a_callback_is_complete(app: Caller) -> None:
    batch = app.value("select fencepost.batch_make('{}')")

    assert app.value("select completed_at is not null from fencepost.batches where batch_id = %s", batch)


def test_what_is_no_refusal_is_not_told_as_the_fate_of_a_dead_letter(app: Caller, admin: Caller) -> None:
    dead = job_calls.dead(app)
    admin.execute(
        """create function fail() returns trigger language plpgsql as
           $$ begin raise exception 'the disk is gone'; end $$"""
    )
    admin.execute("create trigger fail before insert on fencepost.job_waiting execute function fail()")

    with pytest.raises(psycopg.errors.RaiseException, match="the disk is gone"):
        app.rows("select * from fencepost.dead_settle(%s, 'replay', 'carol')", [dead])


@pytest.mark.parametrize("field", ["name", "expression", "zone"])
def test_every_word_of_a_schedule_is_looked_at(app: Caller, field: str) -> None:
    words = {"name": "nightly", "expression": "@daily", "zone": "UTC", field: ""}

    app.invalid(
        field,
        """select fencepost.schedule_declare(%s, %s, %s, 'once', '1 hour', fencepost.clock(), 'mail', 'send',
                                             '{}', 1, 3, '1 minute', null, null, null, '{}')""",
        *words.values(),
    )


def test_the_actor_that_asked_a_running_job_to_stop_is_recorded(app: Caller, admin: Caller) -> None:
    job_id = job_calls.running(app)
    app.execute("select fencepost.job_cancel(%s, 'carol')", job_id)

    asked = "select actor from fencepost.event where subject = %s and event = 'cancel_requested'"
    assert admin.column(asked, str(job_id)) == ["carol"]


def test_every_kind_has_a_rate_and_a_burst_of_its_own(app: Caller) -> None:
    app.invalid("per_second", "select fencepost.rate_declare('{a, b}', '{1}', '{1, 1}')")
    app.invalid("bursts", "select fencepost.rate_declare('{a, b}', '{1, 1}', '{1}')")


# What the owner of a running job and the holder of a lease do; each answers, or raises, why it may not.
OWN_ACTS: dict[LiteralString, str] = {
    "job_fence({id}, 1, 'w')": "raises",
    "job_finish({id}, 1, 'w')": "raises",
    "job_renew({id}, 1, 'w')": "raises",
    "job_progress({id}, 1, 'w', '7')": "raises",
    "job_retry({id}, 1, 'w', 'no', '0')": "raises",
    "job_release({id}, 1, 'w')": "raises",
    "job_bury({id}, 1, 'w', 'no')": "raises",
    "job_finish_many(array[{id}], '{{1}}', 'w')": "answers",
    "job_renew_many(array[{id}], '{{1}}', 'w')": "answers",
    "job_leave_many(array[{id}], '{{1}}', 'w', '{{bury}}')": "answers",
    "lease_renew('r', 'w', 1, '1 s')": "raises",
    "lease_fence('r', 1)": "raises",
    "checkpoint_begin('r', 1)": "raises",
    "lease_renew_many('{{r}}', 'w', '{{1}}', '1 s')": "answers",
}


@pytest.mark.parametrize("act", OWN_ACTS)
def test_a_lease_that_ends_at_this_moment_has_ended(app: Caller, clock: Clock, act: Any) -> None:
    job_id = job_calls.submit(app)
    job_calls.claim(app, job_id, "w")
    app.execute("select fencepost.lease_acquire('r', 'w', '1 minute')")
    call: Any = act.format(id=job_id)
    answers = OWN_ACTS[act] == "answers"
    refusal: Any = "select refusal from fencepost." + call
    for seconds in (59.999999, 0.000001):
        clock.advance(seconds)
        ended = seconds < 1
        app.execute("begin")
        if answers:
            assert app.value(refusal) == ("lease_expired" if ended else None)
        elif ended:
            app.refused("lease_expired", "select fencepost." + call)
        else:
            app.execute("select fencepost." + call)
        app.execute("rollback")


def test_what_ends_at_this_moment_may_be_had_by_another(app: Caller, clock: Clock) -> None:
    job_id = job_calls.submit(app)
    job_calls.claim(app, job_id, "w")
    app.execute("select fencepost.lease_acquire('r', 'w', '1 minute')")
    had: tuple[Any, ...] = (
        "select token from fencepost.lease_acquire('r', 'v', '1 minute')",
        "select token from fencepost.lease_acquire_many('{r}', 'v', '1 minute') where refusal is null",
        "select job_id from fencepost.job_reclaim(10)",
        "select job_id from fencepost.job_claim_many(array[%s]::bigint[], 'v') where outcome = 'claimed'",
    )
    for seconds, found in ((59.999999, 0), (0.000001, 1)):
        clock.advance(seconds)
        for query in had:
            app.execute("begin")
            values = (job_id,) if "%s" in query else ()
            try:
                assert len(app.rows(query, *values)) == found, query
            except psycopg.Error:
                assert not found
            app.execute("rollback")


def test_a_forgotten_key_takes_no_other_of_its_slot_along(app: Caller, admin: Caller, clock: Clock) -> None:
    ours, theirs = uuid7(clock.now()), uuid7(clock.now())
    admin.execute("update fencepost.idempotency_forgotten set slice = fencepost._slice(fencepost.clock())")
    for scope, key in (("s", theirs), ("t", ours)):
        admin.execute(
            """insert into fencepost.idempotency_ring (slot, scope, key, claimed_by, claimed_at)
               values (fencepost._slice(fencepost.clock()) %% 8, %s, %s, pg_current_xact_id(), now())""",
            scope,
            key,
        )

    assert app.value("select outcome from fencepost.claim_ordered('s', %s)", ours) == "too_old"
    left = admin.rows("select scope, key from fencepost.idempotency_ring order by scope")
    assert [tuple(row.values()) for row in left] == [("s", theirs), ("t", ours)]
