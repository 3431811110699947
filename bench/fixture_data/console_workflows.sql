-- Workflows beside the jobs: half have ended, one in a thousand of these is dead; of the others one in a thousand runs, one in a
-- hundred waits for an event, and the rest sleep. One has ten thousand steps.
insert into fencepost.job (queue, kind, priority, payload, headers, tries_max, lease, submitted_at)
select 'orders/name-' || n % 10 || '@1', 'name-' || n % 10 || '@1', 1, jsonb_build_object('order_id', n),
       jsonb_build_object('workflow', jsonb_build_object('name', 'name-' || n % 10, 'version', 1, 'round', 0)), 5, '60 s',
       clock_timestamp() - interval '1 hour'
from generate_series(1, current_setting('bench.workflows')::integer) n;

insert into fencepost.job_label (label, job_id)
select l.label, j.job_id from fencepost.job j
cross join lateral (values ('arg:order_id=' || (j.payload ->> 'order_id')), ('tag:import')) l (label) where j.headers ? 'workflow';

insert into fencepost.workflow_step (job_id, name, what, attempt, digest, result, at)
select j.job_id, s.name, case s.name when 'night' then 'sleep' else 'step' end, 1, 'd', to_jsonb(clock_timestamp() + interval '1 day'),
       clock_timestamp()
from fencepost.job j, (values ('price'), ('night')) s (name) where j.headers ? 'workflow';
insert into fencepost.workflow_step (job_id, name, what, attempt, digest, result, at)
select (select min(j.job_id) from fencepost.job j where j.headers ? 'workflow'), 'step-' || n, 'step', 1, 'd', '5', clock_timestamp()
from generate_series(1, 10000) n;

insert into fencepost.job_finished (job_id, state, final_status, queue, attempt, tries, owner, claimed_at, finished_at, error)
select j.job_id, case when j.job_id % 1000 = 0 then 'dead' else 'finished' end, 'ok', j.queue, 1, 1, 'w', clock_timestamp(), clock_timestamp(),
       case when j.job_id % 1000 = 0 then 'Error7: no' end
from fencepost.job j where j.headers ? 'workflow' and j.job_id % 2 = 0;
insert into fencepost.job_running (job_id, attempt, tries, queue, priority, owner, lease, claimed_at, renewed_at, expires_at)
select j.job_id, 1, 1, j.queue, 1, 'worker-1', j.lease, clock_timestamp(), clock_timestamp(), clock_timestamp() + interval '1 hour'
from fencepost.job j where j.headers ? 'workflow' and j.job_id % 1000 = 1;
insert into fencepost.job_waiting (job_id, queue, priority, run_at, attempt)
select j.job_id, j.queue, 1, clock_timestamp() + interval '1 day', 1
from fencepost.job j where j.headers ? 'workflow' and j.job_id % 2 = 1 and j.job_id % 1000 <> 1;
insert into fencepost.workflow_wait (job_id, name, event, deadline, since)
select w.job_id, 'night', case when w.job_id % 100 = 3 then 'approve:' || w.job_id end, clock_timestamp() + interval '1 day', clock_timestamp()
from fencepost.job_waiting w where w.queue like 'orders/%';
