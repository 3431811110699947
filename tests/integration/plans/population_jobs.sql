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
