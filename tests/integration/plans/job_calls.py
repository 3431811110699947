"""The hot functions of jobs, each called as its runtime calls it."""

from tests.integration.plans.hot_call import (
    BATCH,
    HotCall,
    batch_of_running,
    dispatched,
    ids_from,
    one_dead,
    one_running,
    pending,
    plain,
    running,
)

SERVES = '{"kinds": {"kind": "x y"}, "offers": ""}'

JOBS = (
    HotCall("job_submit", "select * from fencepost.job_submit('hot', 'kind', '{}')", plain()),
    HotCall(
        "job_submit of a unique job that lives",
        "select * from fencepost.job_submit('hot', 'kind', '{}', p_unique_key => %s)",
        lambda size: (f"unique-{size // 2}",),
    ),
    HotCall(
        "job_submit_many",
        "select * from fencepost.job_submit_many('hot', 'kind', %s::jsonb[], p_unique_keys => %s::text[])",
        lambda size: (["{}"] * BATCH, [f"unique-{size - BATCH // 2 + i}" for i in range(BATCH)]),
    ),
    HotCall(
        "job_submit of a unique key that is held for a time",
        "select * from fencepost.job_submit('hot', 'kind', '{}', p_unique_key => %s,"
        " p_unique_period => '1 hour', p_unique_states => '{waiting,running,finished}')",
        lambda size: (f"held-{size // 2 + size % 2}",),
    ),
    HotCall(
        "job_submit that replaces a waiting job, with labels",
        "select * from fencepost.job_submit('hot', 'kind', '{\"number\": 1}', p_unique_key => %s,"
        " p_unique_replace => '{run_at,payload,tags}', p_tags => '{half-1}', p_search_by => '{number}')",
        lambda size: (f"unique-{size // 2}",),
    ),
    HotCall(
        "job_search by a common tag",
        "select * from fencepost.job_search('{half-1}', p_before_id => %s)",
        lambda size: (2 * size,),
    ),
    HotCall(
        "job_search by tags and an argument",
        "select * from fencepost.job_search(array['half-' || %s::bigint %% 2],"
        " jsonb_build_object('number', %s::bigint))",
        lambda size: (size, size),
    ),
    HotCall("unique_prune", "select * from fencepost.unique_prune(%s)", plain(BATCH)),
    HotCall("job_dispatch", "select * from fencepost.job_dispatch('hot', 1, %s)", plain(BATCH)),
    HotCall(
        "job_dispatch_by_priority",
        "select * from fencepost.job_dispatch_by_priority('hot', %s)",
        plain(BATCH),
    ),
    HotCall(
        "job_dispatched",
        "select * from fencepost.job_dispatched(%s::bigint[], %s::text[], 'life')",
        lambda size: (pending(size), ["1-1"] * len(pending(size))),
    ),
    HotCall(
        "job_dispatch_failed",
        "select * from fencepost.job_dispatch_failed(%s::bigint[], 'no answer', '1 second')",
        lambda size: (pending(size),),
    ),
    HotCall(
        "job_recall",
        "select * from fencepost.job_recall(%s::bigint[], %s::text[])",
        lambda size: (dispatched(size), [f"1700000000000-{i}" for i in dispatched(size)]),
    ),
    HotCall("job_claim", "select * from fencepost.job_claim(%s, 'owner')", lambda size: (pending(size)[0],)),
    HotCall(
        "job_claim_many",
        "select * from fencepost.job_claim_many(%s::bigint[], 'owner')",
        lambda size: (pending(size),),
    ),
    HotCall(
        "job_claim_many with concurrency keys",
        "select * from fencepost.job_claim_many(%s::bigint[], 'owner')",
        lambda size: (ids_from(size // 2, "7")[:20],),
    ),
    HotCall(
        "job_claim_many of running and finished jobs",
        "select * from fencepost.job_claim_many(%s::bigint[], 'other')",
        lambda size: ([*running(size)[:20], *range(2 * size + 1, 2 * size + 20)],),
    ),
    HotCall("job_claim_next", "select * from fencepost.job_claim_next('hot', 1, 'owner', %s)", plain(BATCH)),
    HotCall(
        "job_claim_by_priority",
        "select * from fencepost.job_claim_by_priority('hot', 'owner', %s, null, true)",
        plain(BATCH),
    ),
    HotCall(
        "job_claim_by_priority from a moment on",
        "select * from fencepost.job_claim_by_priority('hot', 'owner', %s, p_since => array_fill("
        "clock_timestamp() - interval '1 year', array[4]))",
        plain(BATCH),
    ),
    HotCall(
        "job_claim_by_priority of the kinds that it serves",
        "select * from fencepost.job_claim_by_priority('hot', 'owner', %s, p_serves => %s::jsonb)",
        plain(BATCH, SERVES),
    ),
    HotCall(
        "job_claim_by_priority among jobs that were set aside",
        "select * from fencepost.job_claim_by_priority('aside', 'owner', %s, p_serves => %s::jsonb)",
        plain(BATCH, SERVES),
    ),
    HotCall(
        "job_claim_many of jobs that it does not serve",
        "select * from fencepost.job_claim_many(%s::bigint[], 'owner', null, '{\"kinds\": {}}')",
        lambda size: (pending(size),),
    ),
    HotCall("job_aside_due", "select * from fencepost.job_aside_due('aside', %s::jsonb)", plain(SERVES)),
    HotCall(
        "job_claim_by_priority of dispatched jobs",
        "select * from fencepost.job_claim_by_priority('queue-10', 'owner', 20, null, true)",
        plain(),
    ),
    HotCall(
        "job_claim_next of dispatched jobs",
        "select * from fencepost.job_claim_next('queue-10', 1, 'owner', 20, null, true)",
        plain(),
    ),
    HotCall(
        "job_renew", "select * from fencepost.job_renew(%s, 1, 'owner')", lambda size: (running(size)[0],)
    ),
    HotCall(
        "job_renew_many",
        "select * from fencepost.job_renew_many(%s::bigint[], %s::bigint[], %s)",
        batch_of_running,
    ),
    HotCall(
        "job_fence", "select * from fencepost.job_fence(%s, 1, 'owner')", lambda size: (running(size)[0],)
    ),
    HotCall(
        "job_fence_all",
        "select * from fencepost.job_fence_all(%s::bigint[], %s::bigint[], 'owner')",
        # Few: it refuses what does not run.
        lambda size: (running(size)[:5], [1] * 5),
    ),
    HotCall(
        "job_finish", "select * from fencepost.job_finish(%s, 1, 'owner')", lambda size: (running(size)[0],)
    ),
    HotCall(
        "job_finish_many",
        "select * from fencepost.job_finish_many(%s::bigint[], %s::bigint[], %s)",
        batch_of_running,
    ),
    HotCall(
        "job_finish_many of strangers",
        "select * from fencepost.job_finish_many(%s::bigint[], %s::bigint[], 'other')",
        lambda size: batch_of_running(size)[:2],
    ),
    HotCall(
        "job_leave_many",
        "select * from fencepost.job_leave_many(%s::bigint[], %s::bigint[], %s, %s::text[])",
        lambda size: (*batch_of_running(size), [("release", "retry", "bury")[i % 3] for i in range(BATCH)]),
    ),
    HotCall("job_reclaim", "select * from fencepost.job_reclaim(%s)", plain(BATCH)),
    HotCall("job_blocked", "select * from fencepost.job_blocked(%s)", plain(BATCH)),
    HotCall("job_prune", "select * from fencepost.job_prune('5 days', %s)", plain(BATCH)),
)

FEATURES = (
    HotCall(
        "job_claim_many of a limited queue",
        "select * from fencepost.job_claim_many(%s::bigint[], 'owner')",
        lambda size: (list(range(20, size, 50))[:20],),
    ),
    HotCall(
        "job_dispatch of a limited queue", "select * from fencepost.job_dispatch('queue-20', 1, 10)", plain()
    ),
    HotCall("job_next_due", "select * from fencepost.job_next_due('hot')", plain()),
    HotCall(
        "job_dispatched_page",
        "select * from fencepost.job_dispatched_page('hot', 1, '1 minute', '2000-01-01', %s, %s)",
        lambda size: (size // 2, BATCH),
    ),
    HotCall("job_outcome", "select * from fencepost.job_outcome(%s)", lambda size: (2 * size + 7,)),
    HotCall("batch_make", "select * from fencepost.batch_make(%s::bigint[])", lambda size: (pending(size),)),
    HotCall(
        "batch_results", "select * from fencepost.batch_results(%s, null, 100)", lambda size: (size // 2,)
    ),
    HotCall("batch_prune", "select * from fencepost.batch_prune('5 days', 1)", plain()),
    HotCall("schedule_next", "select * from fencepost.schedule_next(%s)", plain(BATCH)),
    HotCall("schedule_prune", "select * from fencepost.schedule_prune('5 days', %s)", plain(BATCH)),
    HotCall("rate_prune", "select * from fencepost.rate_prune(%s)", plain(BATCH)),
)

OPERATORS = (
    HotCall("job_progress", "select * from fencepost.job_progress(%s, 1, 'owner', '{}')", one_running),
    HotCall("job_release", "select * from fencepost.job_release(%s, 1, 'owner')", one_running),
    HotCall("job_retry", "select * from fencepost.job_retry(%s, 1, 'owner', 'why', '1 s')", one_running),
    HotCall("job_bury", "select * from fencepost.job_bury(%s, 1, 'owner', 'why')", one_running),
    HotCall("job_reclaim_one", "select * from fencepost.job_reclaim_one(%s)", lambda size: (size + 1,)),
    HotCall("job_cancel", "select * from fencepost.job_cancel(%s, 'person')", lambda size: (size // 2 + 1,)),
    HotCall("job_hurry", "select * from fencepost.job_hurry(%s, 'person')", lambda size: (size // 2 + 1,)),
    HotCall(
        "job_reschedule",
        "select * from fencepost.job_reschedule(%s, clock_timestamp(), 'person')",
        lambda size: (size // 2 + 1,),
    ),
    HotCall("job_replay", "select * from fencepost.job_replay(%s, 'person')", one_dead),
    HotCall("job_discard", "select * from fencepost.job_discard(%s, 'person')", one_dead),
    HotCall(
        "dead_settle", "select * from fencepost.dead_settle(array[%s::bigint], 'replay', 'person')", one_dead
    ),
    HotCall(
        "outbox_resolve",
        "select * from fencepost.outbox_resolve(%s, 'unknown', 'sent', 'person', 'seen')",
        lambda size: (size // 20 * 10 + 9,),
    ),
    HotCall(
        "lease_release",
        "select * from fencepost.lease_release(%s, 'owner', 1)",
        lambda size: (f"lease-{size // 2 // 3 * 3 + 1}",),
    ),
)
