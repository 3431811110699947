-- Running jobs with ids from `first` on, as a claim by 'owner' leaves them.
with made as (
  insert into fencepost.job (job_id, queue, kind, priority, payload, tries_max, lease, submitted_at)
  select i, 'bench', 'kind', 1, '{"n": 1}', 5, interval '10 minutes', clock_timestamp()
  from generate_series(%(first)s::bigint, %(first)s::bigint + %(count)s::bigint - 1) i
  returning job_id, queue, priority, lease, submitted_at
)
insert into fencepost.job_running (job_id, attempt, tries, queue, priority, owner, lease, claimed_at, renewed_at, expires_at)
select m.job_id, 1, 1, m.queue, m.priority, 'owner', m.lease, m.submitted_at, m.submitted_at, m.submitted_at + m.lease
from made m
