"""A waiter ends a holder of what has long expired when nothing else ends it, and ends no other session."""

from collections.abc import Callable

import psycopg
import pytest

from fencepost.testing import Clock
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.overlap import begun, wait_until_blocked, wait_until_gone

ACQUIRE = "select token from fencepost.lease_acquire('shard:1', %s, '1 minute')"


def submit_and_claim(caller: Caller) -> int:
    job_id: int = caller.value("select job_id from fencepost.job_submit('mail', 'send', '{}')")
    caller.execute("select fencepost.job_claim(%s, 'a/boot-1')", job_id)
    return job_id


def test_the_silent_holder_of_an_expired_lease_is_ended(
    app: Caller, admin: Caller, connect: Callable[[], Caller], clock: Clock
) -> None:
    holder, taker = connect(), connect()
    app.execute(ACQUIRE, "a/boot-1")
    holder.execute("begin")
    holder.execute("select fencepost.lease_fence('shard:1', 1)")
    clock.advance(60)

    with begun(taker, ACQUIRE, "b/boot-1") as taken:
        wait_until_blocked(admin, taker)
        evicted = app.column("select fencepost.lease_evict('shard:1', %s, '0')", taker.pid)
        assert taken.result() == [{"token": 2}]

    assert evicted == [holder.pid]
    with pytest.raises(psycopg.OperationalError):
        holder.execute("commit")
    assert app.row("select event, detail from fencepost.events where event = 'evicted'") == {
        "event": "evicted",
        "detail": {"pid": holder.pid, "waiter": taker.pid},
    }


def test_the_silent_holder_of_an_expired_job_is_ended(
    app: Caller, admin: Caller, connect: Callable[[], Caller], clock: Clock
) -> None:
    holder, taker = connect(), connect()
    job_id = submit_and_claim(app)
    holder.execute("begin")
    holder.execute("select fencepost.job_fence(%s, 1, 'a/boot-1')", job_id)
    clock.advance(60)
    assert app.rows("select * from fencepost.job_reclaim(10)") == []
    assert app.column("select fencepost.job_blocked(10)") == [job_id]

    with begun(taker, "select fencepost.job_reclaim_one(%s) as state", job_id) as reclaimed:
        wait_until_blocked(admin, taker)
        evicted = app.column("select fencepost.job_evict(%s, %s, '0')", job_id, taker.pid)
        assert reclaimed.result() == [{"state": "pending"}]

    assert evicted == [holder.pid]
    wait_until_gone(admin, holder.pid)
    assert app.column("select fencepost.job_blocked(10)") == []


@pytest.mark.parametrize("seconds", [0, 59, 69])
def test_no_backend_is_terminated_before_expiry_and_grace(app: Caller, clock: Clock, seconds: int) -> None:
    app.execute(ACQUIRE, "a/boot-1")
    job_id = submit_and_claim(app)
    clock.advance(seconds)

    evict_lease = "select fencepost.lease_evict('shard:1', pg_backend_pid(), '10 seconds')"
    assert app.refused("not_owner", evict_lease).seen["owner"] == "a/boot-1"
    evict_job = "select fencepost.job_evict(%s, pg_backend_pid(), '10 seconds')"
    assert app.refused("not_owner", evict_job, job_id).seen["owner"] == "a/boot-1"


@pytest.mark.parametrize("grace", [None, "-1 hour", "2 days"])
def test_an_invalid_grace_terminates_no_backend(app: Caller, clock: Clock, grace: str | None) -> None:
    app.execute(ACQUIRE, "a/boot-1")
    job_id = submit_and_claim(app)

    app.invalid("grace", "select fencepost.lease_evict('shard:1', pg_backend_pid(), %s::interval)", grace)
    app.invalid("grace", "select fencepost.job_evict(%s, pg_backend_pid(), %s::interval)", job_id, grace)
    app.invalid("grace", "select fencepost.job_reclaim_one(%s, %s::interval)", job_id, grace)
    app.invalid("grace", "select fencepost.job_reclaim(1, %s::interval)", grace)
    app.invalid("grace", "select fencepost.job_blocked(1, %s::interval)", grace)

    assert app.value("select state from fencepost.jobs") == "running"


def test_a_job_that_does_not_run_has_no_backend_to_terminate(app: Caller, clock: Clock) -> None:
    waiting = app.value("select job_id from fencepost.job_submit('mail', 'send', '{}')")
    finished = submit_and_claim(app)
    app.execute("select fencepost.job_finish(%s, 1, 'a/boot-1')", finished)

    evict = "select fencepost.job_evict(%s, pg_backend_pid(), '0')"
    assert app.refused("not_running", evict, waiting).seen["state"] == "pending"
    assert app.refused("already_finished", evict, finished).seen["state"] == "finished"
    assert app.refused("not_found", evict, 999).seen == {}


def test_an_expired_lease_is_no_licence_against_the_caller_that_blocks_elsewhere(
    app: Caller, admin: Caller, connect: Callable[[], Caller], clock: Clock
) -> None:
    bystander, waiter = connect(), connect()
    admin.execute("create table public.account (id int primary key, balance int)")
    admin.execute("insert into public.account values (1, 10)")
    admin.execute("grant select, update on public.account to fencepost_app")
    app.execute(ACQUIRE, "a/boot-1")
    clock.advance(60)
    bystander.execute("begin")
    bystander.execute("update public.account set balance = 9 where id = 1")

    with begun(waiter, "update public.account set balance = 8 where id = 1 returning balance"):
        wait_until_blocked(admin, waiter)
        assert app.rows("select fencepost.lease_evict('shard:1', %s, '0')", waiter.pid) == []
        bystander.execute("commit")


# A clock that gives an eviction time to be overtaken: its every look at it lasts until the takeover can be
# seen, or for a moment if none comes. What it writes down with a look from after the end would be too late.
HESITATING_CLOCK = """
create or replace function fencepost.clock() returns timestamptz language plpgsql volatile as $$
begin
  for i in 1 .. 30 loop
    exit when current_setting('application_name') <> 'evictor' or (select l.token = 2 from fencepost.lease l);
    perform pg_sleep(0.01);
  end loop;
  return clock_timestamp() + interval '1 minute';
end $$
"""


def test_a_caller_that_is_evicted_is_so_before_the_next_one_takes_over(
    app: Caller, admin: Caller, connect: Callable[[], Caller]
) -> None:
    holder, taker = connect(), connect()
    app.execute(ACQUIRE, "a/boot-1")
    holder.execute("begin")
    holder.execute("select fencepost.lease_fence('shard:1', 1)")
    admin.execute(HESITATING_CLOCK)
    app.execute("set application_name = 'evictor'")

    with begun(taker, ACQUIRE, "b/boot-1") as taken:
        wait_until_blocked(admin, taker)
        app.column("select fencepost.lease_evict('shard:1', %s, '0')", taker.pid)
        assert taken.result() == [{"token": 2}]

    assert admin.value(
        "select e.at < l.acquired_at from fencepost.events e, fencepost.lease l where e.event = 'evicted'"
    )
