-- A system that is full: plans.size rows in every table that grows, waiting set and history alike. Written straight
-- into the tables by the superuser, because only the number and the shape of the rows matter here.
--
-- Job ids: 1..n wait (even ones dispatched), n+1..2n run (the first hundred have expired), 2n+1..3n are finished.
-- Nine jobs of ten are in queue 'hot', so that the busiest value is also the commonest one in the statistics.

insert into fencepost.job_queue (queue, paused_at)
select 'queue-' || i, case when i % 10 = 5 then clock_timestamp() end from generate_series(1, 50) i;

insert into fencepost.job (job_id, queue, kind, priority, payload, tries_max, lease, unique_key, concurrency_key,
                           concurrency_limit, submitted_at)
select i, case when i % 10 = 0 then 'queue-' || i % 50 else 'hot' end, 'kind', 1, '{}', 5, interval '1 hour',
       case when i <= n.size then 'unique-' || i end,
       case when i % 10 = 7 then 'key-' || i / 30 end, case when i % 10 = 7 then 2 end,
       clock_timestamp() - interval '30 days'
from (select current_setting('plans.size')::bigint as size) n, generate_series(1, 3 * n.size) i;
select setval('fencepost.job_job_id_seq', 10 * current_setting('plans.size')::bigint);

insert into fencepost.job_unique (unique_key, job_id)
select 'unique-' || i, i from generate_series(1, current_setting('plans.size')::bigint) i;

-- Every job has the tag of its ten neighbours and one that half of them have; of the finished ones a few hold their keys for a time.
insert into fencepost.job_label (label, job_id)
select l.label, i from generate_series(1, 3 * current_setting('plans.size')::bigint) i
cross join lateral (values ('tag:tenth-' || i / 10), ('tag:half-' || i % 2), ('arg:number=' || i)) l (label);
insert into fencepost.job_unique (unique_key, job_id, held_until, states)
select 'held-' || i, 2 * n.size + i, clock_timestamp() + case when i % 2 = 0 then interval '-1 hour' else interval '1 hour' end,
       '{waiting,running,finished}'
from (select current_setting('plans.size')::bigint as size) n, generate_series(1, n.size) i;

insert into fencepost.job_waiting (job_id, queue, priority, run_at, concurrency_key, dispatched_at, entry_id, incarnation,
                                   deferred_at)
select i, case when i % 10 = 0 then 'queue-' || i % 50 else 'hot' end, 1, clock_timestamp() - interval '1 hour',
       case when i % 10 = 7 then 'key-' || i / 30 end,
       case when i % 2 = 0 then clock_timestamp() - interval '1 hour' end,
       case when i % 2 = 0 then '1700000000000-' || i end, case when i % 2 = 0 then 'life' end,
       case when i % 10 = 7 then clock_timestamp() end
from generate_series(1, current_setting('plans.size')::bigint) i;

insert into fencepost.job_running (job_id, attempt, tries, queue, priority, owner, lease, claimed_at, renewed_at, expires_at,
                                   concurrency_key, slot)
select n.size + i, 1, 1, 'hot', 1, 'owner', interval '1 hour', clock_timestamp(), clock_timestamp(),
       clock_timestamp() + case when i <= least(100, n.size / 10) then interval '-1 hour' else interval '10 hours' end,
       case when (n.size + i) % 10 = 7 then 'key-' || (n.size + i) / 30 end,
       case when (n.size + i) % 10 = 7 then (n.size + i) / 10 % 3 end
from (select current_setting('plans.size')::bigint as size) n, generate_series(1, n.size) i;

insert into fencepost.job_finished (job_id, state, final_status, queue, attempt, tries, owner, claimed_at, finished_at)
select 2 * n.size + i, case when i % 50 = 0 then 'dead' else 'finished' end, 'ok', 'hot', 1, 1, 'owner',
       clock_timestamp(), clock_timestamp() - interval '20 days' + i * interval '10 days' / n.size
from (select current_setting('plans.size')::bigint as size) n, generate_series(1, n.size) i;

-- In queue 'aside', of ten jobs, six were set aside for workers that there are not, two for those that serve 'kind', and
-- two wait as any job.
insert into fencepost.job_need (queue, kind, arguments, abilities, digest, noted_at)
values ('aside', 'strange', '{x}', '{}', 'strange', clock_timestamp()), ('aside', 'kind', '{x}', '{}', 'kind', clock_timestamp())
on conflict (digest) do nothing;
insert into fencepost.job (job_id, queue, kind, priority, payload, tries_max, lease, submitted_at)
select 4 * n.size + i, 'aside', case when i % 10 < 6 then 'strange' else 'kind' end, 1, '{"x": 1}', 5, interval '1 hour', clock_timestamp()
from (select current_setting('plans.size')::bigint as size) n, generate_series(1, n.size) i;
insert into fencepost.job_waiting (job_id, queue, priority, run_at, need_id)
select 4 * n.size + i, 'aside', 1, clock_timestamp() - interval '1 hour', (select d.need_id from fencepost.job_need d where d.kind = case when i % 10 < 6 then 'strange' when i % 10 < 8 then 'kind' end)
from (select current_setting('plans.size')::bigint as size) n, generate_series(1, n.size) i;

-- Outbox ids: of ten, six are plain and due, two belong to keys of several messages, one is being sent (by a
-- taker that went silent, among the first thousand), one has an unknown outcome. The settled ones lie above.
insert into fencepost.outbox (id, channel, key, payload, state, ready, not_before, created_at, take, owner, taken_until)
select i, 'mail', case when i % 10 in (6, 7) then 'key-' || i / 50 end, '{}',
       case i % 10 when 8 then 'sending' when 9 then 'unknown' else 'queued' end,
       i % 10 not in (6, 7) or i % 50 = 6, clock_timestamp() - interval '1 hour', clock_timestamp(), 1,
       case when i % 10 = 8 then 'owner' end,
       case when i % 10 = 8 then clock_timestamp() + case when i <= 1000 then interval '-1 hour' else interval '10 hours' end
       end
from generate_series(1, current_setting('plans.size')::bigint) i;
insert into fencepost.outbox_settled (id, channel, payload, headers, state, created_at, settled_at, attempts, take)
select n.size + i, 'mail', '{}', '{}', 'sent', clock_timestamp(),
       clock_timestamp() - interval '20 days' + i * interval '10 days' / n.size, 1, 1
from (select current_setting('plans.size')::bigint as size) n, generate_series(1, n.size) i;
select setval('fencepost.outbox_id_seq', 10 * current_setting('plans.size')::bigint);

insert into fencepost.idempotency_key (scope, key, digest, claimed_by, claimed_at)
select 'scope-' || i % 3, 'key-' || i, 'digest', pg_current_xact_id(),
       clock_timestamp() - interval '2 hours' + i * interval '2 hours' / n.size
from (select current_setting('plans.size')::bigint as size) n, generate_series(1, n.size) i;
insert into fencepost.idempotency_ring (slot, scope, key, claimed_by, claimed_at)
select fencepost._slice(clock_timestamp() - i % 4 * interval '15 minutes') % 8, 'scope', 'key-' || i,
       pg_current_xact_id(), clock_timestamp()
from generate_series(1, current_setting('plans.size')::bigint) i;

insert into fencepost.lease (resource, token, owner, ttl, acquired_at, renewed_at, expires_at)
select 'lease-' || i, 1, 'owner', interval '1 hour', clock_timestamp() - interval '20 hours', clock_timestamp(),
       clock_timestamp() + case when i % 3 = 0 then interval '-1 hour' else interval '10 hours' end
from generate_series(1, current_setting('plans.size')::bigint) i;

-- Half of all checkpoints belong to one resource that nobody has pruned.
insert into fencepost.checkpoint (resource, number, token, status, frontier, state, begun_at, stored_at)
select case when i % 2 = 0 then 'lease-1' else 'lease-' || i end, i, 1, 'committed', '{"offset": 1}', '', clock_timestamp(),
       clock_timestamp()
from generate_series(1, current_setting('plans.size')::bigint) i;

insert into fencepost.event (at, noun, subject, event)
select clock_timestamp() - interval '20 days', 'job', (i / 5)::text, 'lost'
from generate_series(1, current_setting('plans.size')::bigint) i;
insert into fencepost.refusal (at, reason, noun, subject)
select clock_timestamp() - interval '20 days', 'stale_attempt', 'job', (i / 5)::text
from generate_series(1, current_setting('plans.size')::bigint) i;

-- Features of jobs: every finished job belonged to a batch that is complete, the running ones to batches that are open.
insert into fencepost.job_batch (batch_id, size, made_at, completed_at)
select b, 100, clock_timestamp(), case when b % 2 = 0 then clock_timestamp() - interval '20 days' end
from generate_series(1, current_setting('plans.size')::bigint / 50 + 4) b;
insert into fencepost.job_batch_part (batch_id, part, remaining)
select b, p, case when b % 2 = 0 then 0 else 50 end
from generate_series(1, current_setting('plans.size')::bigint / 50 + 4) b, generate_series(0, 1) p;
insert into fencepost.job_batch_member (job_id, batch_id, part, counted)
select i, i / 100 * 2 % greatest(2, n.size / 50) + case when i > 2 * n.size then 2 else 1 end, i % 2, i > 2 * n.size
from (select current_setting('plans.size')::bigint as size) n, generate_series(n.size + 1, 3 * n.size) i;
select setval('fencepost.job_batch_batch_id_seq', current_setting('plans.size')::bigint);

insert into fencepost.job_schedule (name, expression, zone, missed, grace, queue, kind, payload, headers, priority, tries_max,
                                    lease, next_tick, declared_at)
select 'schedule-' || i, '* * * * *', 'UTC', 'skip', '0', 'hot', 'kind', '{}', '{}', 1, 5, '1 minute', clock_timestamp(),
       clock_timestamp() from generate_series(1, 50) i;
insert into fencepost.job_tick (schedule, tick, job_id, fired_at)
select 'schedule-' || i % 50, clock_timestamp() - interval '20 days' + i * interval '1 second', i,
       clock_timestamp() - interval '20 days'
from generate_series(1, current_setting('plans.size')::bigint) i;

insert into fencepost.job_rate (name, per_second, burst) values ('kind:limited', 1, 10), ('queue:queue-20', 1000, 10);
insert into fencepost.job_bucket (name, key, tokens, refilled_at)
select 'kind:limited', 'key-' || i, 1, clock_timestamp() - interval '1 hour'
from generate_series(1, current_setting('plans.size')::bigint) i;

-- Every running job is a workflow with some steps; every waiting one waits for an event of its own; as many events happened.
insert into fencepost.workflow_step (job_id, name, what, attempt, digest, result, undo, at)
select n.size + i, case when s = 1 then 'price' else 'step-' || s end, 'step', 1, 'digest', '{}',
       case when i % 10 = 3 and s = 1 then '{"queue": "hot", "kind": "kind", "payload": {}}'::jsonb end, clock_timestamp()
from (select current_setting('plans.size')::bigint as size) n, generate_series(1, n.size) i,
     generate_series(1, current_setting('plans.steps')::integer) s;
insert into fencepost.workflow_result (job_id, name, result)
select n.size + i, 'parts', '{}' from (select current_setting('plans.size')::bigint as size) n, generate_series(1, n.size) i;
insert into fencepost.workflow_wait (job_id, name, event, since)
select i, 'approval', 'approve-' || i, clock_timestamp() from generate_series(1, current_setting('plans.size')::bigint) i;
insert into fencepost.workflow_event (event, at)
select 'done-' || i, clock_timestamp() - interval '20 days' + i * interval '10 days' / n.size
from (select current_setting('plans.size')::bigint as size) n, generate_series(1, n.size) i;
insert into fencepost.workflow_undo (job_id, workflow_id, name, next_job_id, called_next)
select i, i + 1, 'price', i + 1, true from generate_series(1, current_setting('plans.size')::bigint) i;
