"""What judges a row says so when it is called with an old snapshot; what only adds one works there."""

import re
from typing import Any

import pytest

from tests.integration.kernel.caller import Caller
from tests.integration.kernel.kernel_functions import KERNEL_FUNCTIONS

LEVELS: Any = ["begin isolation level repeatable read", "begin isolation level serializable"]
EVERY_LEVEL = pytest.mark.parametrize("begin", LEVELS, ids=["repeatable read", "serializable"])

JUDGING: dict[Any, Any] = {
    "batch_make": "('{1}')",
    "checkpoint_abort": "('r', 1, 1)",
    "checkpoint_begin": "('r', 1)",
    "checkpoint_commit": "('r', 1, 1)",
    "checkpoint_prune": "('r', 1, 1)",
    "checkpoint_restore": "('r', 1)",
    "checkpoint_store": "('r', 1, 1, null, '1', null)",
    "claim": "('s', 'k')",
    "claim_many": "('s', '{k}')",
    "claim_ordered": "('s', '00000000-0000-7000-8000-000000000000')",
    "dead_settle": "('{1}', 'replay', 'carol')",
    "event_await": "(1, 1, 'w', 'n', 'e')",
    "event_emit": "('e')",
    "job_bury": "(1, 1, 'w', 'e')",
    "job_cancel": "(1, 'carol')",
    "job_claim": "(1, 'w')",
    "job_claim_by_priority": "('mail', 'w', 1)",
    "job_claim_many": "('{1}', 'w')",
    "job_claim_next": "('mail', 1, 'w', 1)",
    "job_discard": "(1, 'carol')",
    "job_dispatch": "('mail', 1, 1)",
    "job_dispatch_failed": "('{1}', 'e', '0')",
    "job_dispatch_by_priority": "('mail', 1)",
    "job_dispatched": "('{1}', '{1-0}', 'life')",
    "job_evict": "(1, 1, '0')",
    "job_fence": "(1, 1, 'w')",
    "job_fence_all": "(array[1], array[1], 'w')",
    "job_finish": "(1, 1, 'w')",
    "job_finish_many": "('{1}', '{1}', 'w')",
    "job_hurry": "(1, 'carol')",
    "job_reschedule": "(1, clock_timestamp(), 'carol')",
    "job_leave_many": "('{1}', '{1}', 'w', '{retry}')",
    "job_progress": "(1, 1, 'w', '1')",
    "job_recall": "('{1}', '{1-0}')",
    "job_reclaim": "(1)",
    "job_reclaim_one": "(1)",
    "job_reclaim_owner": "('w', 'gone')",
    "job_claim_suspects": """('{mail}', '{"kinds": {"send": "*"}}', 'w', 1)""",
    "job_reserve_suspects": """('{mail}', '{"kinds": {"send": "*"}}', 'w', '1 minute')""",
    "job_release": "(1, 1, 'w')",
    "job_renew": "(1, 1, 'w')",
    "job_renew_many": "('{1}', '{1}', 'w')",
    "job_replay": "(1, 'carol')",
    "job_retry": "(1, 1, 'w', 'e', '0')",
    "lease_acquire": "('r', 'o', '1 minute')",
    "lease_acquire_many": "('{r}', 'o', '1 minute')",
    "lease_evict": "('r', 1, '0')",
    "lease_fence": "('r', 1)",
    "lease_release": "('r', 'o', 1)",
    "lease_renew": "('r', 'o', 1, '1 minute')",
    "lease_renew_many": "('{r}', 'o', '{1}', '1 minute')",
    "lease_release_many": "('{r}', 'o', '{1}')",
    "outbox_expire": "('c', 'queued', 1)",
    "outbox_hold": "('c', 1)",
    "outbox_renew": "('{1}', '{1}', 'o', '1 minute')",
    "outbox_resolve": "(1, 'parked', 'dead', 'carol', 'n')",
    "outbox_settle": "(1, 1, 'o', 'sent')",
    "outbox_settle_many": "('{1}', '{1}', 'o', '{sent}')",
    "outbox_take": "('c', 'o', '1 minute', 1)",
    "remember": "('s', 'k', '1')",
    "remember_ordered": "('s', '00000000-0000-7000-8000-000000000000', '1')",
    "schedule_add": "('s', '* * * * *', 'UTC', 'once', '0', now(), 'mail', 'send', '1', 1, 1, '1 s', "
    "null, null, null, '{}', 'carol')",
    "schedule_change": "('s', '{\"missed\": \"all\"}', null, 'carol')",
    "schedule_declare": "('s', '* * * * *', 'UTC', 'once', '0', now(), 'mail', 'send', '1', 1, 1, '1 s', "
    "null, null, null, '{}')",
    "schedule_fire": "('s', now(), '{}', now())",
    "schedule_pause": "('s', 'carol')",
    "schedule_release": "('r', '{}', '{}', '1 minute', 'carol')",
    "schedule_remove": "('s', 'carol')",
    "schedule_reset": "('s', 'carol')",
    "schedule_resume": "('s', 'carol')",
    "schedule_retire": "('{send}', '{s}', 'carol')",
    "schedule_revive": "('s', 'carol')",
    "schedule_run": "('s', 'carol')",
    "step_commit": "(1, 1, 'w', 'n', 'd')",
    "step_commit_all": "('{1}', '{1}', 'w', '{n}', '{d}')",
    "step_commit_many": "('{1}', '{1}', 'w', '{n}', '{d}')",
    "workflow_claim": "(1, 'w')",
    "workflow_join": "(1, 1, 'w', 1)",
    "workflow_join_any": "(1, 1, 'w', '{1}')",
    "workflow_park": "(1, 1, 'w')",
    "workflow_restart": "(1, 1, 'w', '{}')",
    "workflow_retry_from": "(1, 's', 'carol')",
    "workflow_settle": "('{1}', 'cancel', 'carol')",
    "workflow_sleep": "(1, 1, 'w', 'n', 'd', '1 s')",
    "workflow_spawn": "(1, 1, 'w', 'n', 'd', '{}')",
    "worker_disable": "('h', 'carol', 'why')",
    "worker_drain": "('h', 'carol', 'why')",
    "worker_enable": "('h', 'carol', 'why')",
    "worker_pin": "('h', '{q}', null, null, 'carol', 'why')",
    "worker_unpin": "('h', 'carol', 'why')",
}

# They add rows, take what no other caller can want, or judge by age alone.
ANYWHERE: dict[Any, Any] = {
    "batch_prune": "('1 hour', 1)",
    "batch_results": "(1, null, 1)",
    "clock": "()",
    "dead_count": "(null, null, null, null)",
    "dead_ids": "(null, null, null, null, null, 1)",
    "event_prune": "('1 hour', 1)",
    "explain": "('job:1')",
    "history_prune": "('1 hour', 1)",
    "job_aside_due": "('mail', null)",
    "job_blocked": "(1)",
    "job_dispatched_page": "('mail', 1, '1 minute', null, null, 1)",
    "job_next_due": "('mail')",
    "job_outcome": "(1)",
    "job_page": "(null, null, null, null, 1)",
    "job_prune": "('1 hour', 1)",
    "job_prune_excess": "(1, 1)",
    "job_search": "('{t}')",
    "job_submit": "('mail', 'send', '{}')",
    "job_submit_many": "('mail', 'send', '{1, 2}'::jsonb[])",
    "idempotency_clean": "('1 hour', 1)",
    "idempotency_lag": "('1 hour')",
    "idempotency_ring_clean": "()",
    "outbox_prune": "('1 hour', 1)",
    "outbox_put": "('c', 'k', '{}')",
    "outbox_put_many": "('c', '{k, k}', '{1, 2}'::jsonb[])",
    "queue_bound": "('mail', 1, 'carol')",
    "read_age": "()",
    "queue_count": "()",
    "queue_pause": "('mail', 'carol')",
    "queue_rate": "('mail', 1, 1, 'carol')",
    "queue_resume": "('mail', 'carol')",
    "rate_declare": "('{send}', '{1}', '{1}')",
    "rate_prune": "(1)",
    "refusal_counts": "()",
    "refusal_kind": "('not_found', '{}')",
    "refusal_record": "('not_found', 'job', '1', 'w', '{}', '{}')",
    "result_prune": "('1 hour')",
    "schedule_history": "('s', null, 1)",
    "schedule_list": "(null)",
    "schedule_next": "(1)",
    "schedule_prune": "('1 hour', 1)",
    "sleep_on": "('t')",
    "step_result": "(1, 'n')",
    "stream_poison": "('s', '1-0', 'r', '{}')",
    "unique_prune": "(1)",
    "wake_up": "('t')",
    "workflow_children": "('{1}')",
    "workflow_graph": "(1)",
    "workflow_life": "(1, 10)",
    "workflow_load": "(1)",
    "workflow_page": "()",
    "workflow_repeats": "(1, 2)",
    "workflow_rows": "('{1}')",
    "workflow_start": "('orders', 'fulfil', 1, '{}')",
    "workflow_status": "()",
    "workflow_versions": "()",
    "worker_list": "()",
    "worker_serves": "('w@h:1:a', null)",
    "worker_standing": "('w@h:1:a')",
}

SOURCES = """
    select proname::text as name, string_agg(prosrc, ' ') as source
    from pg_proc where pronamespace = 'fencepost'::regnamespace group by proname
"""


@EVERY_LEVEL
def test_what_judges_a_row_refuses_an_old_snapshot(app: Caller, begin: Any) -> None:
    for function, arguments in JUDGING.items():
        app.execute(begin)
        app.wrong_isolation("select fencepost." + function + arguments)
        app.execute("rollback")


@EVERY_LEVEL
def test_what_only_adds_a_row_works_with_an_old_snapshot(app: Caller, begin: Any) -> None:
    for function, arguments in ANYWHERE.items():
        app.execute(begin)
        app.execute("select fencepost." + function + arguments)
        app.execute("commit")


@EVERY_LEVEL
def test_a_submission_that_judges_another_job_refuses_an_old_snapshot(app: Caller, begin: Any) -> None:
    for terms in ("p_unique_states => '{waiting}'", "p_unique_replace => '{run_at}'"):
        app.execute(begin)
        app.wrong_isolation(f"select fencepost.job_submit('q', 'k', '1', p_unique_key => 'u', {terms})")
        app.execute("rollback")


def test_a_function_that_does_not_ask_for_the_newest_snapshot_is_known_not_to_need_it(admin: Caller) -> None:
    sources = {row["name"]: row["source"] for row in admin.rows(SOURCES)}
    # A submission asks only when it has unique terms, which judge another job.
    del sources["_unique_check_terms"]
    asking = {name for name in sources if asks(name, sources)}

    ours = {name for name in sources if name in KERNEL_FUNCTIONS}
    assert {name for name in ours if not name.startswith("_")} - asking == set(ANYWHERE)


def asks(name: str, sources: dict[str, str], seen: frozenset[str] = frozenset()) -> bool:
    """Whether the function, or one that it calls, looks at the isolation level."""
    called = set(re.findall(r"fencepost\.(\w+)\(", sources[name])) & sources.keys() - seen
    return "_require_read_committed" in called or any(asks(one, sources, seen | {name}) for one in called)
