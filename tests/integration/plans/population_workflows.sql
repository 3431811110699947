-- Workflows among the jobs of population_jobs.sql.

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
