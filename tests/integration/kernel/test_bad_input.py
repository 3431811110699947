"""A wrong argument is named, and nothing is written."""

import re
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.integration.kernel import job_calls
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.kernel_functions import KERNEL_FUNCTIONS
from tests.integration.kernel.test_isolation_levels import SOURCES

TABLES = """
    select relname::text from pg_class
    where relnamespace = 'fencepost'::regnamespace and relkind in ('r', 'p') order by relname
"""

SCHEDULE = {
    "name": "'s'",
    "expression": "'* * * * *'",
    "zone": "'UTC'",
    "missed": "'once'",
    "grace": "'0'",
    "next_tick": "now()",
    "queue": "'q'",
    "kind": "'k'",
    "payload": "'1'",
    "lane": "1",
    "tries_max": "1",
    "lease": "'1 s'",
    "unique_key": "null",
    "concurrency_key": "null",
    "concurrency_limit": "null",
    "headers": "'{}'",
}


def declare(**wrong: str) -> str:
    return f"schedule_declare({', '.join((SCHEDULE | wrong).values())})"


# By noun: the field that the error names, and a call whose only fault it is. 1 stands for a job that runs, a
# message that is being sent and a lease that is held.
FAULTS: dict[str, Any] = {
    "lease": [
        ("resource", "lease_acquire(null, 'o', '1 minute')"),
        ("resource", "lease_acquire('', 'o', '1 minute')"),
        ("resource", "lease_acquire(repeat('x', 513), 'o', '1 minute')"),
        ("resource", "lease_acquire(repeat('ä', 257), 'o', '1 minute')"),
        ("owner", "lease_acquire('r', null, '1 minute')"),
        ("owner", "lease_acquire('r', '', '1 minute')"),
        ("owner", "lease_acquire('r', repeat('x', 257), '1 minute')"),
        ("ttl", "lease_acquire('r', 'o', null)"),
        ("ttl", "lease_acquire('r', 'o', '0')"),
        ("ttl", "lease_acquire('r', 'o', '-1 second')"),
        ("ttl", "lease_acquire('r', 'o', '25 hours')"),
        ("resource", "lease_acquire_many('{r, null}', 'o', '1 minute')"),
        ("owner", "lease_acquire_many('{r}', '', '1 minute')"),
        ("tokens", "lease_renew_many('{r, s}', 'o', '{1}', '1 minute')"),
        ("tokens", "lease_release_many('{r, s}', 'o', '{1}')"),
        ("tokens", "lease_release_many('{r}', 'o', '{null}')"),
        ("tokens", "lease_renew_many('{r}', 'o', '{null}', '1 minute')"),
        ("owner", "lease_renew_many('{r}', '', '{1}', '1 minute')"),
        ("resource", "lease_renew_many('{\"\"}', 'o', '{1}', '1 minute')"),
        ("tokens", "lease_renew_many('{r}', 'o', null, '1 minute')"),
        ("ttl", "lease_renew('r', 'o', 1, '0')"),
        ("owner", "lease_release('r', '', 1)"),
        ("resource", "lease_fence('', 1)"),
        ("waiter", "lease_evict('free', null, '0')"),
        ("waiter", "lease_evict('free', -1, '0')"),
        ("grace", "lease_evict('free', 1, '-1 second')"),
        ("resource", "lease_evict('', 1, '0')"),
        ("grace", "lease_evict('free', 1, null)"),
        ("resource", "lease_renew('', 'o', 1, '1 minute')"),
        ("token", "lease_renew('r', 'o', null, '1 minute')"),
        ("ttl", "lease_renew_many('{r}', 'o', '{1}', '0')"),
        ("resource", "lease_release('', 'o', 1)"),
        ("token", "lease_release('r', 'o', null)"),
        ("owner", "lease_release_many('{r}', '', '{1}')"),
        ("resource", "lease_release_many('{\"\"}', 'o', '{1}')"),
        ("token", "lease_fence('r', null)"),
    ],
    "marker": [
        ("scope", "claim('', 'k')"),
        ("scope", "claim(null, 'k')"),
        ("scope", "claim(repeat('x', 257), 'k')"),
        ("key", "claim('s', '')"),
        ("key", "claim('s', null)"),
        ("key", "claim('s', repeat('x', 513))"),
        ("digest", "claim('s', 'k', '')"),
        ("digest", "claim('s', 'k', repeat('x', 257))"),
        ("response", "claim('s', 'k', 'd', to_jsonb(repeat('x', 8200)))"),
        ("key", "claim_many('s', '{k, null}')"),
        ("digests", "claim_many('s', '{k, l}', '{d}')"),
        ("responses", "claim_many('s', '{k, l}', '{d, d}', '{1}'::jsonb[])"),
        ("response", "remember('s', 'k', to_jsonb(repeat('x', 8200)))"),
        ("key", "claim_ordered('s', null)"),
        ("key", "claim_ordered('s', 'no-time')"),
        ("response", "remember_ordered('s', 'k', to_jsonb(repeat('x', 8200)))"),
        ("keep", "marker_clean('0', 1)"),
        ("keep", "marker_clean(null, 1)"),
        ("keep", "marker_clean('11 years', 1)"),
        ("limit", "marker_clean('1 hour', null)"),
        ("keep", "marker_lag('0')"),
        ("scope", "claim_many('', '{k}')"),
        ("digest", "claim_many('s', '{k}', array[''])"),
        ("response", "claim_many('s', '{k}', '{d}', array[to_jsonb(repeat('x', 8200))])"),
        ("scope", "remember('', 'k', '1')"),
        ("scope", "claim_ordered('', '00000000-0000-7000-8000-000000000000')"),
        ("scope", "remember_ordered('', '00000000-0000-7000-8000-000000000000', '1')"),
    ],
    "outbox": [
        ("channel", "outbox_put('', 'k', '{}')"),
        ("channel", "outbox_put(repeat('x', 129), 'k', '{}')"),
        ("channel", "outbox_put('orders:acme', 'k', '{}')"),
        ("channel", "outbox_put_many('orders:acme', null, '{1}'::jsonb[])"),
        ("channel", "outbox_hold('orders:acme', 1)"),
        ("channel", "outbox_take('orders:acme', 'o', '1 minute', 1)"),
        ("channel", "outbox_expire('orders:acme', 'queued', 1)"),
        ("key", "outbox_put('c', '', '{}')"),
        ("key", "outbox_put('c', repeat('x', 513), '{}')"),
        ("payload", "outbox_put('c', 'k', null)"),
        ("payload", "outbox_put('c', 'k', to_jsonb(repeat('x', 1048577)))"),
        ("headers", "outbox_put('c', 'k', '{}', to_jsonb(repeat('x', 16385)))"),
        ("not_before", "outbox_put('c', 'k', '{}', '{}', 'infinity')"),
        ("channel", "outbox_put_many(null, null, '{1}'::jsonb[])"),
        ("keys", "outbox_put_many('c', '{k}', '{1, 2}'::jsonb[])"),
        ("keys", "outbox_put_many('c', array[repeat('x', 513)], '{1}'::jsonb[])"),
        ("payloads", "outbox_put_many('c', '{k}', '{null}'::jsonb[])"),
        ("payloads", "outbox_put_many('c', null, null)"),
        ("payloads", "outbox_put_many('c', null, array[to_jsonb(repeat('x', 1048577))])"),
        ("headers", "outbox_put_many('c', null, '{1, 2}'::jsonb[], '{1}'::jsonb[])"),
        ("headers", "outbox_put_many('c', null, '{1}'::jsonb[], array[to_jsonb(repeat('x', 16385))])"),
        ("not_before", "outbox_put_many('c', null, '{1}'::jsonb[], null, '-infinity')"),
        ("patience", "outbox_hold('c', 1, '0')"),
        ("owner", "outbox_take('c', '', '1 minute', 1)"),
        ("lease", "outbox_take('c', 'o', '0', 1)"),
        ("owner", "outbox_renew('{1}', '{1}', null, '1 minute')"),
        ("takes", "outbox_renew('{1}', '{}', 'o', '1 minute')"),
        ("lease", "outbox_renew('{1}', '{1}', 'o', '2 days')"),
        ("outcome", "outbox_settle(1, 1, 'o', 'done')"),
        ("outcome", "outbox_settle(1, 1, 'o', null)"),
        ("error", "outbox_settle(1, 1, 'o', 'failed', repeat('x', 8193))"),
        ("result", "outbox_settle(1, 1, 'o', 'sent', null, null, to_jsonb(repeat('x', 65537)))"),
        ("delay", "outbox_settle(1, 1, 'o', 'failed', 'e', '-1 second')"),
        ("ids", "outbox_settle_many('{null}', '{1}', 'o', '{sent}')"),
        ("takes", "outbox_settle_many('{1}', '{1, 2}', 'o', '{sent}')"),
        ("outcomes", "outbox_settle_many('{1}', '{1}', 'o', '{sent, sent}')"),
        ("outcome", "outbox_settle_many('{1}', '{1}', 'o', '{done}')"),
        ("errors", "outbox_settle_many('{1}', '{1}', 'o', '{sent}', '{a, b}')"),
        ("delays", "outbox_settle_many('{1}', '{1}', 'o', '{sent}', null, '{1 s, 1 s}')"),
        ("delays", "outbox_settle_many('{1}', '{1}', 'o', '{failed}', null, '{-1 s}')"),
        ("results", "outbox_settle_many('{1}', '{1}', 'o', '{sent}', null, null, '{1, 2}'::jsonb[])"),
        ("outcome", "outbox_expire('c', 'failed', 1)"),
        ("grace", "outbox_expire('c', 'queued', 1, '-1 second')"),
        ("actor", "outbox_resolve(1, 'parked', 'dead', '', 'n')"),
        ("expected", "outbox_resolve(1, 'sending', 'dead', 'carol', 'n')"),
        ("outcome", "outbox_resolve(1, 'parked', 'sending', 'carol', 'n')"),
        ("keep", "outbox_prune('-1 hour', 1)"),
        ("limit", "outbox_prune('1 hour', -1)"),
        ("limit", "outbox_hold('c', -1)"),
        ("limit", "outbox_take('c', 'o', '1 minute', null)"),
        ("limit", "outbox_expire('c', 'queued', -1)"),
        ("ids", "outbox_renew('{null}', '{1}', 'o', '1 minute')"),
        ("takes", "outbox_renew('{1}', '{null}', 'o', '1 minute')"),
        ("take", "outbox_settle(1, null, 'o', 'sent')"),
        ("takes", "outbox_settle_many('{1}', '{null}', 'o', '{sent}')"),
    ],
    "job": [
        ("queue", "job_submit('', 'k', '{}')"),
        ("queue", "job_submit(repeat('x', 129), 'k', '{}')"),
        ("kind", "job_submit('q', null, '{}')"),
        ("kind", "job_submit('q', repeat('x', 257), '{}')"),
        ("payload", "job_submit('q', 'k', null)"),
        ("payload", "job_submit('q', 'k', to_jsonb(repeat('x', 1048577)))"),
        ("lane", "job_submit('q', 'k', '{}', p_lane => 4)"),
        ("lane", "job_submit('q', 'k', '{}', p_lane => null)"),
        ("run_at", "job_submit('q', 'k', '{}', p_run_at => 'infinity')"),
        ("tries_max", "job_submit('q', 'k', '{}', p_tries_max => 0)"),
        ("tries_max", "job_submit('q', 'k', '{}', p_tries_max => null)"),
        ("tries_max", "job_submit('q', 'k', '{}', p_tries_max => 1001)"),
        ("lease", "job_submit('q', 'k', '{}', p_lease => '0')"),
        ("lease", "job_submit('q', 'k', '{}', p_lease => '25 hours')"),
        ("unique_key", "job_submit('q', 'k', '{}', p_unique_key => '')"),
        ("unique_key", "job_submit('q', 'k', '{}', p_unique_key => repeat('x', 513))"),
        ("concurrency_key", "job_submit('q', 'k', '{}', p_concurrency_key => '', p_concurrency_limit => 1)"),
        ("concurrency_limit", "job_submit('q', 'k', '{}', p_concurrency_key => 'c')"),
        ("concurrency_limit", "job_submit('q', 'k', '{}', p_concurrency_limit => 1)"),
        ("concurrency_limit", "job_submit('q', 'k', '{}', 1, null, 1, '1 s', null, 'c', 0)"),
        ("headers", "job_submit('q', 'k', '{}', p_headers => to_jsonb(repeat('x', 16385)))"),
        ("payload", "job_submit_many('q', 'k', null)"),
        ("payload", "job_submit_many('q', 'k', '{1, null}'::jsonb[])"),
        ("unique_keys", "job_submit_many('q', 'k', '{1, 2}'::jsonb[], p_unique_keys => '{u}')"),
        ("headers", "job_submit_many('q', 'k', '{1, 2}'::jsonb[], p_headers => '{1}'::jsonb[])"),
        ("concurrency_keys", "job_submit_many('q', 'k', '{1}'::jsonb[], p_concurrency_keys => '{a, b}')"),
        ("queue", "job_submit_many('', 'k', '{1}'::jsonb[])"),
        ("run_at", "job_submit_many('q', 'k', '{1}'::jsonb[], p_run_at => '-infinity')"),
        ("unique_key", "job_submit_many('q', 'k', '{1}'::jsonb[], p_unique_keys => array[''])"),
        ("concurrency_key", "job_submit_many('q', 'k', '{1}', 1, null, 1, '1 s', null, '{\"\"}', 1)"),
        ("concurrency_limit", "job_submit_many('q', 'k', '{1}'::jsonb[], p_concurrency_keys => '{c}')"),
        ("patience", "job_dispatch('q', 1, 1, '0')"),
        ("patience", "job_dispatch_lanes('q', 1, '0')"),
        ("incarnation", "job_dispatched('{1}', '{1-0}', '')"),
        ("entry_ids", "job_dispatched('{1}', '{1-0, 2-0}', 'life')"),
        ("entry_ids", "job_dispatched('{1}', array[repeat('x', 65)], 'life')"),
        ("entry_ids", "job_recall('{1}', '{}')"),
        ("delay", "job_dispatch_failed('{1}', 'e', '-1 second')"),
        ("delay", "job_dispatch_failed('{1}', 'e', null)"),
        ("id", "job_claim(null, 'w')"),
        ("owner", "job_claim(1, '')"),
        ("owner", "job_claim(1, repeat('x', 257))"),
        ("lease", "job_claim(1, 'w', '-1 second')"),
        ("lease", "job_claim(1, 'w', '2 days')"),
        ("ids", "job_claim_many('{1, null}', 'w')"),
        ("ids", "job_claim_many(null, 'w')"),
        ("owner", "job_claim_next('q', 1, null, 1)"),
        ("ids", "job_finish_many('{null}', '{1}', 'w')"),
        ("attempts", "job_finish_many('{1}', '{null}', 'w')"),
        ("attempts", "job_finish_many('{1}', '{1, 2}', 'w')"),
        ("statuses", "job_finish_many('{1}', '{1}', 'w', '{a, b}')"),
        ("results", "job_finish_many('{1}', '{1}', 'w', '{a}', '{1, 2}'::jsonb[])"),
        ("final_status", "job_finish(1, 1, 'w', '')"),
        ("final_status", "job_finish(1, 1, 'w', repeat('x', 65))"),
        ("result", "job_finish(1, 1, 'w', 'ok', to_jsonb(repeat('x', 65537)))"),
        ("progress", "job_progress(1, 1, 'w', to_jsonb(repeat('x', 8193)))"),
        ("attempts", "job_renew_many('{1}', '{}', 'w')"),
        ("owner", "job_renew_many('{1}', '{1}', null)"),
        ("delay", "job_retry(1, 1, 'w', 'e', '-1 second')"),
        ("delay", "job_retry(1, 1, 'w', 'e', '11 years')"),
        ("delay", "job_release(1, 1, 'w', '-1 second')"),
        ("hows", "job_leave_many('{1}', '{1}', 'w', '{finish}')"),
        ("hows", "job_leave_many('{1}', '{1}', 'w', '{retry, retry}')"),
        ("errors", "job_leave_many('{1}', '{1}', 'w', '{retry}', '{a, b}')"),
        ("delays", "job_leave_many('{1}', '{1}', 'w', '{retry}', '{a}', '{1 s, 1 s}')"),
        ("delays", "job_leave_many('{1}', '{1}', 'w', '{retry}', '{a}', '{-1 s}')"),
        ("actor", "job_cancel(1, '')"),
        ("expected", "job_cancel(1, 'carol', 'finished')"),
        ("actor", "job_replay(1, null)"),
        ("expected", "job_replay(1, 'carol', 'running')"),
        ("expected", "job_replay(1, 'carol', null)"),
        ("actor", "job_discard(1, '')"),
        ("queue", "queue_pause('', 'carol')"),
        ("actor", "queue_pause('q', '')"),
        ("actor", "queue_resume('q', null)"),
        ("waiting_max", "queue_bound('q', 0, 'carol')"),
        ("keep", "job_prune('0', 1)"),
        ("limit", "job_prune('1 hour', -1)"),
        ("keep", "job_prune_excess(-1, 1)"),
        ("keep", "job_prune_excess(null, 1)"),
        ("limit", "job_prune_excess(1, -1)"),
        ("keep", "result_prune('0')"),
        ("limit", "job_dispatch('q', 1, -1)"),
        ("limit", "job_dispatch_lanes('q', null)"),
        ("limit", "job_driven('q', 1, '1 minute', null, null, -1)"),
        ("limit", "job_claim_next('q', 1, 'w', null)"),
        ("limit", "job_reclaim(-1)"),
        ("grace", "job_reclaim(1, '-1 second')"),
        ("grace", "job_reclaim(1, '2 days')"),
        ("limit", "job_blocked(-1)"),
        ("grace", "job_blocked(1, null)"),
        ("grace", "job_reclaim_one(1, '-1 second')"),
        ("grace", "job_evict(1, 1, '-1 second')"),
        ("state", "job_page('done', null, null, null, 1)"),
        ("limit", "job_page(null, null, null, null, -1)"),
        ("actor", "job_hurry(1, '')"),
        ("owner", "job_claim_many('{1}', '')"),
        ("lease", "job_claim_many('{1}', 'w', '0')"),
        ("owner", "job_fence(1, 1, '')"),
        ("attempt", "job_fence(1, null, 'w')"),
        ("id", "job_finish(null, 1, 'w')"),
        ("attempt", "job_finish(1, null, 'w')"),
        ("owner", "job_finish(1, 1, '')"),
        ("owner", "job_renew(1, 1, '')"),
        ("attempt", "job_renew(1, null, 'w')"),
        ("ids", "job_renew_many('{null}', '{1}', 'w')"),
        ("attempts", "job_renew_many('{1}', '{null}', 'w')"),
        ("owner", "job_progress(1, 1, '', '1')"),
        ("attempt", "job_progress(1, null, 'w', '1')"),
        ("owner", "job_retry(1, 1, '', 'e', '0')"),
        ("attempt", "job_retry(1, null, 'w', 'e', '0')"),
        ("owner", "job_bury(1, 1, '', 'e')"),
        ("owner", "job_leave_many('{1}', '{1}', '', '{retry}')"),
        ("ids", "job_leave_many('{null}', '{1}', 'w', '{retry}')"),
        ("attempts", "job_leave_many('{1}', '{null}', 'w', '{retry}')"),
        ("attempts", "job_leave_many('{1}', '{1, 2}', 'w', '{retry}')"),
        ("queue", "queue_resume('', 'carol')"),
        ("queue", "queue_bound('', 1, 'carol')"),
        ("actor", "queue_bound('q', 1, '')"),
        ("queue", "queue_rate('', 1, 1, 'carol')"),
        ("actor", "queue_rate('q', 1, 1, '')"),
        ("per_second", "queue_rate('q', -1, 1, 'carol')"),
        ("burst", "queue_rate('q', 1, null, 'carol')"),
        ("per_second", "rate_declare('{k}', '{}', '{1}')"),
        ("per_second", "rate_declare('{k}', '{0}', '{1}')"),
        ("per_second", "rate_declare('{k}', '{Infinity}', '{1}')"),
        ("bursts", "rate_declare('{k}', '{1}', '{}')"),
        ("burst", "rate_declare('{k}', '{1}', '{0.5}')"),
        ("burst", "rate_declare('{k}', '{1}', '{null}')"),
        ("burst", "rate_declare('{k}', '{1}', '{Infinity}')"),
        ("kind", "rate_declare(array[''], '{1}', '{1}')"),
        ("limit", "rate_prune(-1)"),
        ("ids", "batch_make(null)"),
        ("ids", "batch_make('{null}')"),
        ("name", "batch_make('{}', null, '')"),
        ("callback", "batch_make('{1}', 1)"),
        ("keep", "batch_prune('0', 1)"),
        ("ids", "dead_settle('{null}', 'replay', 'carol')"),
        ("how", "dead_settle('{1}', 'bury', 'carol')"),
        ("actor", "dead_settle('{}', 'replay', '')"),
        ("limit", "dead_ids(null, null, null, null, null, -1)"),
        ("stream", "stream_poison('', '1-0', 'r', '{}')"),
        ("entry_id", "stream_poison('s', '', 'r', '{}')"),
        ("reason", "stream_poison('s', '1-0', '', '{}')"),
    ],
    "checkpoint": [
        ("resource", "checkpoint_begin('', 1)"),
        ("handles", "checkpoint_begin('r', 1, to_jsonb(repeat('x', 1048577)))"),
        ("frontier", "checkpoint_store('r', 1, 1, null, null, null)"),
        ("frontier", "checkpoint_store('r', 1, 1, null, to_jsonb(repeat('x', 1048577)), null)"),
        ("handles", "checkpoint_store('r', 1, 1, null, '1', null, to_jsonb(repeat('x', 1048577)))"),
        ("whole", "checkpoint_store('r', 1, 1, null, '1', null, '[]', null)"),
        ("keep", "checkpoint_prune('r', 1, 0)"),
        ("resource", "checkpoint_store('', 1, 1, null, '1', null)"),
        ("resource", "checkpoint_commit('', 1, 1)"),
        ("resource", "checkpoint_abort('', 1, 1)"),
        ("resource", "checkpoint_restore('', 1)"),
        ("resource", "checkpoint_prune('', 1, 1)"),
    ],
    "schedule": [
        ("name", declare(name="''")),
        ("expression", declare(expression="''")),
        ("zone", declare(zone="''")),
        ("missed", declare(missed="'twice'")),
        ("grace", declare(grace="'-1 second'")),
        ("next_tick", declare(next_tick="'infinity'")),
        ("queue", declare(queue="''")),
        ("payload", declare(payload="to_jsonb(repeat('x', 1048577))")),
        ("headers", declare(headers="to_jsonb(repeat('x', 8193))")),
        ("actor", "schedule_retire('{k}', '{s}', '')"),
        ("actor", "schedule_pause('s', '')"),
        ("actor", "schedule_resume('s', '')"),
        ("limit", "schedule_next(-1)"),
        ("keep", "schedule_prune('0', 1)"),
    ],
    "history": [
        ("noun", "refusal_record('not_found', '', '1', 'a', '{}', '{}')"),
        ("subject", "refusal_record('not_found', 'job', '', 'a', '{}', '{}')"),
        ("attempted", "refusal_record('not_found', 'job', '1', 'a', to_jsonb(repeat('x', 16385)), '{}')"),
        ("seen", "refusal_record('not_found', 'job', '1', 'a', '{}', to_jsonb(repeat('x', 65537)))"),
        ("reason", "refusal_record('because', 'job', '1', 'a', '{}', '{}')"),
        ("topic", "sleep_on('')"),
        ("topic", "sleep_on(repeat('x', 257))"),
        ("keep", "history_prune('0', 1)"),
        ("limit", "history_prune('1 hour', -1)"),
        ("subject", "explain(null)"),
    ],
}  # fmt: skip


@pytest.fixture
def furnished(app: Caller) -> Caller:
    """A held lease, a running job and a message on its way: what a wrong call might have changed."""
    app.execute("select fencepost.lease_acquire('r', 'o', '1 hour')")
    app.execute("select fencepost.lease_acquire('free', 'o', '1 hour')")
    app.execute("select fencepost.lease_release('free', 'o', 1)")
    job_id = job_calls.submit(app, lease="1 hour")
    job_calls.claim(app, job_id, "w")
    app.execute("select fencepost.outbox_put('c', 'k', '{}')")
    app.execute("select fencepost.outbox_take('c', 'o', '1 hour', 1)")
    app.execute("select fencepost.checkpoint_begin('r', 1)")
    return app


def contents(admin: Caller) -> dict[str, Any]:
    """Every row of every table."""
    return {
        table: admin.connection.execute(
            sql.SQL("select t::text from {} t order by 1").format(sql.Identifier("fencepost", table))
        ).fetchall()
        for table in admin.column(TABLES)
    }


@pytest.mark.parametrize("noun", FAULTS)
def test_a_wrong_argument_is_named_and_nothing_is_written(
    furnished: Caller, admin: Caller, noun: str
) -> None:
    before = contents(admin)

    for field, call in FAULTS[noun]:
        furnished.invalid(field, "select fencepost." + call)

    assert contents(admin) == before


# Who provokes what is not provoked here.
ELSEWHERE = {
    ("checkpoint_store", "state"): "test_checkpoint.py, with --full: it takes 256 MB",
    ("schedule_fire", "ticks"): "test_schedule.py: it takes a schedule",
    ("outbox_resolve", "id"): "orders: it takes one",
}
CHECKED = re.compile(
    r"""fencepost\._check_\w+\('(\w+)'|"field": "(\w+)"|fencepost\._check_(limit)\(""",
)
CHECKER = re.compile(r"fencepost\.(_\w*check\w*|_prune_before)\(")


def test_every_check_of_every_function_is_provoked_here(admin: Caller) -> None:
    sources = {row["name"]: row["source"] for row in admin.rows(SOURCES)}
    provoked = {(call.partition("(")[0], field) for faults in FAULTS.values() for field, call in faults}

    def checks(name: str) -> set[str]:
        return {field for found in CHECKED.findall(sources[name]) for field in found if field}

    missing = {
        (name, field)
        for name in KERNEL_FUNCTIONS
        if not name.startswith("_")
        for field in checks(name)
        if (name, field) not in provoked | ELSEWHERE.keys()
    } | {
        (name, checker)
        for name in KERNEL_FUNCTIONS
        if not name.startswith("_")
        for checker in CHECKER.findall(sources[name])
        if checks(checker) and not any((name, field) in provoked for field in checks(checker))
    }
    assert missing == set()


@pytest.mark.parametrize(
    "call",
    [
        "lease_acquire(repeat('x', 512), repeat('x', 256), '1 day')",
        "claim(repeat('x', 256), repeat('x', 512), repeat('x', 256), to_jsonb(repeat('x', 8000)))",
        "outbox_put(repeat('x', 128), repeat('x', 512), to_jsonb(repeat('x', 1048000)))",
        "job_submit(repeat('x', 128), repeat('x', 256), to_jsonb(repeat('x', 1048000)), p_tries_max => 1000)",
        "job_submit('q', 'k', 'null')",
    ],
)
def test_an_argument_at_its_limit_is_taken(app: Caller, call: Any) -> None:
    app.execute("select fencepost." + call)


def test_a_nul_byte_does_not_reach_the_database(furnished: Caller, admin: Caller) -> None:
    before = contents(admin)

    for text in ("a\0b", "\0"):
        with pytest.raises(psycopg.DataError):
            furnished.execute("select fencepost.claim('s', %s)", text)
    with pytest.raises(psycopg.DataError):
        furnished.execute("select fencepost.job_submit('q', 'k', %s)", '{"a": "\\u0000"}')

    assert contents(admin) == before


def test_a_number_that_is_none_is_no_json(furnished: Caller, admin: Caller) -> None:
    before = contents(admin)

    for text in ("NaN", '{"a": NaN}', '{"a": Infinity}', "{"):
        with pytest.raises(psycopg.errors.InvalidTextRepresentation):
            furnished.execute("select fencepost.outbox_put('c', 'k', %s)", text)

    assert contents(admin) == before


def test_an_endless_lease_is_none(furnished: Caller) -> None:
    """PostgreSQL 17 has infinite intervals; older servers do not read the word at all."""
    for ttl in ("infinity", "-infinity"):
        with pytest.raises(psycopg.DatabaseError) as caught:
            furnished.execute("select fencepost.lease_acquire('x', 'o', %s::interval)", ttl)
        assert caught.value.sqlstate in ("ZF100", "22007")
