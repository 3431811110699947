-- Everything beside jobs and workflows, and the rest of what jobs have.

-- Every job has the tag of its ten neighbours and one that half of them have; of the finished ones a few hold their keys for a time.
insert into fencepost.job_label (label, job_id)
select l.label, i from generate_series(1, 3 * current_setting('plans.size')::bigint) i
cross join lateral (values ('tag:tenth-' || i / 10), ('tag:half-' || i % 2), ('arg:number=' || i)) l (label);

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

-- Half of all checkpoints belong to one resource that was not pruned.
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
