"""Bugs that a kernel like this one can have, noun by noun."""

from tests.isolation.flow_gallery import FLOW
from tests.isolation.job_gallery import JOB
from tests.isolation.orders_gallery import ORDERS
from tests.isolation.planted_bug import Edit, PlantedBug
from tests.isolation.workflow_gallery import WORKFLOW

LEASE = (
    PlantedBug(
        "the fence looks at the lease and does not lock it",
        "lease: a takeover waits for a fenced write that commits",
        (Edit("lease_fence", "for key share", ""),),
    ),
    PlantedBug(
        "the fence locks so hard that the heartbeat waits",
        "lease: a renewal passes a fence",
        (Edit("lease_fence", "for key share", "for share"),),
    ),
    PlantedBug(
        "the fence does not ask for the token",
        "lease: a takeover meets a late fence",
        (
            Edit("lease_fence", "and l.token = p_token for key share", "for key share"),
            Edit("_lease_verdict", "p_lease.token is distinct from p_token or ", ""),
        ),
    ),
    PlantedBug(
        "a takeover does not look again under its lock",
        "lease: a renewal that commits keeps the lease",
        (
            Edit(
                "_lease_try",
                "for update;\n    v_now := fencepost.clock();\n"
                "    continue when held.owner is not null and held.expires_at > v_now;",
                "for update;\n    v_now := fencepost.clock();",
            ),
        ),
    ),
    PlantedBug(
        "a takeover locks nothing, and the token is in no unique key",
        "lease: a takeover waits for a fenced write that commits",
        (Edit("_lease_try", "where l.resource = p_resource for update", "where l.resource = p_resource"),),
        ("alter table fencepost.lease drop constraint lease_fence_key",),
    ),
    PlantedBug(
        "a renewal locks as a takeover does",
        "lease: a renewal passes a fence",
        (Edit("_lease_renew_try", "for no key update", "for update"),),
    ),
    PlantedBug(
        "a release deletes the row, and the token starts again",
        "lease: the owner acquires again and releases",
        (
            Edit(
                "_lease_release_try",
                "update fencepost.lease l set owner = null, expires_at = "
                "greatest(l.acquired_at, least(l.expires_at, v_now))\n    where",
                "delete from fencepost.lease l where",
            ),
        ),
    ),
    PlantedBug(
        "many leases are taken in the caller's order",
        "lease: takeovers of many leases",
        (
            Edit(
                "lease_acquire_many",
                "select distinct r from unnest(p_resources) r order by r",
                "select r from unnest(p_resources) r",
            ),
        ),
    ),
)

IDEMPOTENCY = (
    PlantedBug(
        "a claim takes no lock and waits for the other's insert",
        "idempotency: a request and its repeat",
        (Edit("_claim_try", "not fencepost._idempotency_lock(p_scope, p_key)", "false"),),
    ),
    PlantedBug(
        "a claim does not compare the digests",
        "idempotency: two different requests under one key",
        (Edit("_idempotency_answer", "p_digest is distinct from p_known_digest", "false"),),
    ),
    PlantedBug(
        "a response is added to anybody's key",
        "idempotency: a response is added",
        (Edit("remember", " and m.claimed_by = pg_current_xact_id()", ""),),
    ),
    PlantedBug(
        "a claim holds its lock for the session",
        "idempotency: a claim inside a savepoint that is rolled back",
        (Edit("_idempotency_lock", "pg_try_advisory_xact_lock", "pg_try_advisory_lock"),),
    ),
)

OUTBOX = (
    PlantedBug(
        "a put takes no lock on its key",
        "outbox: puts of one key",
        (
            Edit(
                "_outbox_put",
                "perform pg_advisory_xact_lock(fencepost._outbox_key_hash(p_channel, p_key));",
                "null;",
            ),
        ),
    ),
    PlantedBug(
        "a settlement that meets a put forgets the key",
        "outbox: a put behind a head that is settled",
        (
            Edit(
                "_outbox_promote",
                "values (p_channel, p_key)\n  on conflict",
                "select null, null where false on conflict",
            ),
        ),
    ),
    PlantedBug(
        "a settlement looks for the next message behind the back of a put",
        "outbox: a put behind a head that is settled",
        (Edit("_outbox_promote", "if pg_try_advisory_xact_lock(", "if true or pg_try_advisory_xact_lock("),),
    ),
    PlantedBug(
        "a take does not look at the notes",
        "outbox: a put behind a head that is settled",
        (Edit("_outbox_take", "perform fencepost._outbox_promote_noted(p_channel);", ""),),
    ),
    PlantedBug(
        "a put trusts an old snapshot",
        "outbox: puts of one key, one under REPEATABLE READ",
        (
            Edit(
                "_sees_newest",
                "current_setting('transaction_isolation') in ('read committed', 'read uncommitted')",
                "true",
            ),
        ),
    ),
    PlantedBug(
        "a settlement does not compare the take",
        "outbox: a reconciler meets a person who says again",
        (
            Edit("_outbox_verdict", "p_message.take is distinct from p_take", "false"),
            Edit("_outbox_verdict", "p_message.owner is distinct from p_owner", "false"),
        ),
    ),
    PlantedBug(
        "an expiry leaves the take as it was",
        "outbox: a late settlement meets the expiry",
        (Edit("_outbox_expire", "take = o.take + 1, ", ""),),
    ),
    PlantedBug(
        "a take waits for what is locked",
        "outbox: two takes",
        (
            Edit(
                "_outbox_take",
                "o.ready and o.state in ('queued', 'failed') and o.not_before <= v_now\n"
                "      order by o.not_before, o.id limit p_limit for update skip locked",
                "o.ready and o.state in ('queued', 'failed') and o.not_before <= v_now\n"
                "      order by o.not_before, o.id limit p_limit for update",
            ),
        ),
    ),
    PlantedBug(
        "a batch is settled by kind, and its rows are locked in that order",
        "outbox: a settlement of many and a renewal of many",
        (
            Edit(
                "outbox_settle_many",
                "perform 1 from fencepost.outbox o where o.id = any (p_ids) order by o.id for update;",
                "",
            ),
        ),
    ),
)

CHECKPOINT = (
    PlantedBug(
        "a checkpoint is written without a fence",
        "checkpoint: a store and a takeover that restores",
        (Edit("_checkpoint_fence", "perform fencepost.lease_fence(p_resource, p_token);", ""),),
    ),
    PlantedBug(
        "a store does not compare the frontier",
        "checkpoint: two stores from one frontier",
        (
            Edit(
                "checkpoint_store",
                "v_newest.frontier is distinct from p_expected or v_newest.number > p_number",
                "false",
            ),
        ),
    ),
    PlantedBug(
        "stores of one resource do not follow each other",
        "checkpoint: two stores from one frontier",
        (Edit("checkpoint_store", "perform pg_advisory_xact_lock(hashtextextended(p_resource, 6089));", ""),),
    ),
    PlantedBug(
        "two begin with one number",
        "checkpoint: two begin",
        (Edit("checkpoint_begin", "perform pg_advisory_xact_lock(hashtextextended(p_resource, 6089));", ""),),
    ),
    PlantedBug(
        "an abort does not lock what it aborts",
        "checkpoint: a store meets an abort",
        (Edit("checkpoint_abort", "c.number = p_number for update", "c.number = p_number"),),
    ),
)

GALLERY = (*LEASE, *IDEMPOTENCY, *OUTBOX, *JOB, *CHECKPOINT, *ORDERS, *FLOW, *WORKFLOW)

# Bugs that show only when a call is stopped in its middle.
INSIDE = (
    PlantedBug(
        "a settlement trusts a note that a take is about to remove",
        "outbox: a take of a noted key meets the settlement of its head",
        (
            Edit(
                "_outbox_promote",
                "on conflict (channel, key) do update set key = excluded.key",
                "on conflict (channel, key) do nothing",
            ),
        ),
    ),
    PlantedBug(
        "a take waits for a message whose holder waits for the note",
        "outbox: a take of a noted key meets a person who drops its head",
        (
            Edit(
                "_outbox_promote",
                "where l.id = v_first for update skip locked",
                "where l.id = v_first for update",
            ),
        ),
    ),
    PlantedBug(
        "a claim believes that a key which it met cannot be cleaned away",
        "idempotency: a late repeat meets the cleaning",
        (Edit("_claim_try", "exit when found;", "exit;"),),
    ),
    PlantedBug(
        "a takeover forgets that another may have been faster",
        "lease: two acquire a free lease",
        (
            Edit(
                "_lease_try",
                "for update;\n    v_now := fencepost.clock();\n"
                "    continue when held.owner is not null and held.expires_at > v_now;",
                "for update;\n    v_now := fencepost.clock();",
            ),
        ),
    ),
)
