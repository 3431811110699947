"""The functions of the hot paths, each called as its runtime calls it."""

from tests.integration.plans.hot_call import BATCH, HotCall, ones, plain, sending, time_ordered_key
from tests.integration.plans.job_calls import FEATURES, JOBS, OPERATORS
from tests.integration.plans.workflow_calls import WORKFLOWS

IDEMPOTENCY_KEYS = (
    HotCall("claim", "select * from fencepost.claim('scope-1', 'new', 'digest')", plain()),
    HotCall(
        "claim of a known key",
        "select * from fencepost.claim(%s, %s, 'digest')",
        lambda size: (f"scope-{size // 2 % 3}", f"key-{size // 2}"),
    ),
    HotCall(
        "claim_many",
        "select * from fencepost.claim_many('scope-1', %s::text[])",
        lambda size: ([f"key-{size // 2 + i}" for i in range(BATCH)],),
    ),
    HotCall(
        "claim_ordered",
        "select * from fencepost.claim_ordered('scope', %s)",
        lambda _: (time_ordered_key(0),),
    ),
    HotCall(
        "remember",
        "select * from fencepost.remember('scope-1', 'new', '{}')",
        plain(),
        lambda _: [("select fencepost.claim('scope-1', 'new')", ())],
    ),
    HotCall(
        "remember_ordered",
        "select * from fencepost.remember_ordered('scope', %s, '{}')",
        lambda _: (time_ordered_key(1),),
        lambda _: [("select fencepost.claim_ordered('scope', %s)", (time_ordered_key(1),))],
    ),
    HotCall("idempotency_clean", "select * from fencepost.idempotency_clean('1 hour', %s)", plain(BATCH)),
    HotCall("idempotency_lag", "select * from fencepost.idempotency_lag('1 hour')", plain()),
)

OUTBOX = (
    HotCall("outbox_put", "select * from fencepost.outbox_put('mail', null, '{}')", plain()),
    HotCall(
        "outbox_put with a key",
        "select * from fencepost.outbox_put('mail', %s, '{}')",
        lambda size: (f"key-{size // 100}",),
    ),
    HotCall(
        "outbox_put_many",
        "select * from fencepost.outbox_put_many('mail', %s::text[], %s::jsonb[])",
        lambda size: ([f"key-{size // 100 + i // 5}" for i in range(BATCH)], ["{}"] * BATCH),
    ),
    HotCall("outbox_hold", "select * from fencepost.outbox_hold('mail', %s)", plain(BATCH)),
    HotCall(
        "outbox_take", "select * from fencepost.outbox_take('mail', 'owner', '1 minute', %s)", plain(BATCH)
    ),
    HotCall(
        "outbox_take of unknown ones",
        "select * from fencepost.outbox_take('mail', 'owner', '1 minute', %s, true)",
        plain(BATCH),
    ),
    HotCall(
        "outbox_renew",
        "select * from fencepost.outbox_renew(%s::bigint[], %s::bigint[], 'owner', '1 minute')",
        lambda size: (sending(size), ones(sending(size))),
    ),
    HotCall(
        "outbox_settle",
        "select * from fencepost.outbox_settle(%s, 1, 'owner', 'sent')",
        lambda size: (sending(size)[0],),
    ),
    HotCall(
        "outbox_settle of a keyed message",
        "select * from fencepost.outbox_settle(%s, 1, null, 'sent')",
        lambda size: (size // 2 // 50 * 50 + 6,),
    ),
    HotCall(
        "outbox_settle_many",
        "select * from fencepost.outbox_settle_many(%s::bigint[], %s::bigint[], 'owner', %s::text[])",
        lambda size: (sending(size), ones(sending(size)), ["sent"] * len(sending(size))),
    ),
    HotCall(
        "outbox_settle_many of failures",
        "select * from fencepost.outbox_settle_many(%s::bigint[], %s::bigint[], 'owner', %s::text[])",
        lambda size: (sending(size), ones(sending(size)), ["failed"] * len(sending(size))),
    ),
    HotCall("outbox_expire", "select * from fencepost.outbox_expire('mail', 'queued', %s)", plain(BATCH)),
    HotCall("outbox_prune", "select * from fencepost.outbox_prune('5 days', %s)", plain(BATCH)),
)

LEASES = (
    HotCall("lease_acquire", "select * from fencepost.lease_acquire('new', 'owner', '1 minute')", plain()),
    HotCall(
        "lease_acquire by takeover",
        "select * from fencepost.lease_acquire(%s, 'other', '1 minute')",
        lambda size: (f"lease-{size // 2 // 3 * 3}",),
    ),
    HotCall(
        "lease_renew",
        "select * from fencepost.lease_renew(%s, 'owner', 1, '1 minute')",
        lambda size: (f"lease-{size // 2 // 3 * 3 + 1}",),
    ),
    HotCall(
        "lease_renew_many",
        "select * from fencepost.lease_renew_many(%s::text[], 'owner', %s::bigint[], '1 minute')",
        lambda size: ([f"lease-{size // 2 + i}" for i in range(BATCH)], [1] * BATCH),
    ),
    HotCall(
        "lease_release_many",
        "select * from fencepost.lease_release_many(%s::text[], 'owner', %s::bigint[])",
        lambda size: ([f"lease-{size // 2 + i}" for i in range(BATCH)], [1] * BATCH),
    ),
    HotCall(
        "lease_acquire_many",
        "select * from fencepost.lease_acquire_many(%s::text[], 'owner', '1 minute')",
        lambda size: ([f"lease-{size // 2 + i}" for i in range(BATCH)],),
    ),
    HotCall(
        "lease_fence",
        "select * from fencepost.lease_fence(%s, 1)",
        lambda size: (f"lease-{size // 2 // 3 * 3 + 1}",),
    ),
)

CHECKPOINTS = (
    HotCall("checkpoint_begin", "select * from fencepost.checkpoint_begin('lease-1', 1)", plain()),
    HotCall(
        "checkpoint_store",
        "select * from fencepost.checkpoint_store('lease-1', 1, %s, %s::jsonb, '{}', '')",
        lambda size: (size + 1, '{"offset": 1}'),
        lambda _: [("select fencepost.checkpoint_begin('lease-1', 1)", ())],
    ),
    HotCall(
        "checkpoint_commit",
        "select * from fencepost.checkpoint_commit('lease-1', 1, %s)",
        lambda size: (size,),
    ),
    HotCall(
        "checkpoint_abort",
        "select * from fencepost.checkpoint_abort('lease-1', 1, %s)",
        lambda size: (size + 1,),
        lambda _: [("select fencepost.checkpoint_begin('lease-1', 1)", ())],
    ),
    HotCall("checkpoint_restore", "select * from fencepost.checkpoint_restore('lease-1', 1)", plain()),
)

HISTORY = (
    HotCall("explain a job", "select * from fencepost.explain(%s)", lambda size: (str(size // 10),)),
    HotCall(
        "explain a message", "select * from fencepost.explain(%s)", lambda size: (f"outbox:{size // 2}",)
    ),
    HotCall(
        "explain a lease", "select * from fencepost.explain(%s)", lambda size: (f"lease:lease-{size // 2}",)
    ),
    HotCall(
        "explain a request",
        "select * from fencepost.explain(%s)",
        lambda size: (f"request:scope-{size // 2 % 3}/key-{size // 2}",),
    ),
    HotCall(
        "refusal_record",
        "select * from fencepost.refusal_record('stale_attempt', 'job', '7', 'owner', '{}', '{}')",
        plain(),
    ),
    HotCall("refusal_counts", "select * from fencepost.refusal_counts()", plain()),
    HotCall("history_prune", "select * from fencepost.history_prune('5 days', %s)", plain(BATCH)),
)

HOT_CALLS = (
    IDEMPOTENCY_KEYS + OUTBOX + JOBS + LEASES + CHECKPOINTS + FEATURES + OPERATORS + HISTORY + WORKFLOWS
)

# Every other function, and why its plan needs no guard.
NOT_HOT = {
    "a function of the clock, or of few rows": (
        "clock lineage_check read_age refusal_kind "
        "queue_bound queue_count queue_pause queue_rate queue_resume rate_declare result_prune "
        "schedule_add schedule_change schedule_declare schedule_fire schedule_pause schedule_release "
        "schedule_remove schedule_reset schedule_resume schedule_retire schedule_revive schedule_run "
        "sleep_on wake_up job_need_prune job_worker_announce "
        "worker_disable worker_drain worker_enable worker_pin worker_serves worker_standing worker_unpin"
    ),
    "a person asks for a page or a count, which costs what there is to see": (
        "dead_count dead_ids job_page schedule_history schedule_list worker_list "
        "workflow_life workflow_page workflow_rows"
    ),
    "it ends a session that blocks: rare, and by one key": "job_evict lease_evict",
    "it writes one row and reads none": "stream_poison",
    "a worker was lost, which is rare; it goes through the suspects, or through what that worker held": (
        "job_claim_suspects job_reclaim_owner job_reserve_suspects"
    ),
    "it empties a slot whole": "idempotency_ring_clean",
    "it walks what it is to keep, once a minute": "job_prune_excess",
    "it works on one workflow, as the calls above, and makes its children a batch, as batch_make": (
        "workflow_retry_from workflow_spawn workflow_settle"
    ),
    "a person asks what still runs, which costs what waits and runs": "workflow_versions",
    "a person looks, and it counts what runs and ten thousand of those that wait": "workflow_status",
    "it goes through the history of one resource, which it is there to shorten": "checkpoint_prune",
}
