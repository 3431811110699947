-- Waiting jobs with ids from `first` on, as a submission leaves them.
with made as (
  insert into fencepost.job (job_id, queue, kind, priority, payload, tries_max, lease, submitted_at)
  select i, 'bench', 'kind', 1, '{"n": 1}', 5, interval '10 minutes', clock_timestamp()
  from generate_series(%(first)s::bigint, %(first)s::bigint + %(count)s::bigint - 1) i
  returning job_id, queue, priority, submitted_at
)
insert into fencepost.job_waiting (job_id, queue, priority, run_at)
select m.job_id, m.queue, m.priority, m.submitted_at from made m
