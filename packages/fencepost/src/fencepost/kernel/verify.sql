-- What a whole database has none of: each kind of contradiction, how many there are, and one of them. One statement, so
-- one snapshot. Reads every job, message and lease; takes no lock that anything waits for.
select found.what, found.broken, found.example
from (
  -- A job is in one of three tables, and moves between them in one statement.
  select 'jobs in no state, or in two' as what, count(*) as broken, min(s.job_id)::text as example
  from (
    select j.job_id,
           (select count(*) from fencepost.job_waiting w where w.job_id = j.job_id)
           + (select count(*) from fencepost.job_running r where r.job_id = j.job_id)
           + (select count(*) from fencepost.job_finished f where f.job_id = j.job_id) as states
    from fencepost.job j
  ) s
  where s.states <> 1
  union all
  select 'states of jobs that do not exist', count(*), min(s.job_id)::text
  from (
    select w.job_id from fencepost.job_waiting w
    union all
    select r.job_id from fencepost.job_running r
    union all
    select f.job_id from fencepost.job_finished f
  ) s
  where not exists (select from fencepost.job j where j.job_id = s.job_id)
  union all
  -- A message that is settled has left the outbox.
  select 'messages both open and settled', count(*), min(o.id)::text
  from fencepost.outbox o
  join fencepost.outbox_settled s on s.id = o.id
  union all
  -- `recover` raises the floor above every token, and frees the leases below it.
  select 'leases held with a token of a lost time', count(*), min(l.resource)
  from fencepost.lease l, fencepost.token_floor f
  where l.owner is not null and l.token <= f.floor
  union all
  select 'indexes that are not valid', count(*), min(i.indexrelid::regclass::text)
  from pg_index i
  join pg_class c on c.oid = i.indrelid
  where c.relnamespace = 'fencepost'::regnamespace and not (i.indisvalid and i.indisready)
  union all
  select 'constraints that are not valid', count(*), min(c.conname)
  from pg_constraint c
  where c.connamespace = 'fencepost'::regnamespace and not c.convalidated
) found
