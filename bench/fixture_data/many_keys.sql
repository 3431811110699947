-- A database with so many keys: as many leases, idempotency keys, waiting messages (each of a key of its own) and
-- finished jobs, as the functions leave them.
with numbered as (select generate_series(1, %(count)s::bigint) as i),
leases as (
  insert into fencepost.lease (resource, token, owner, ttl, acquired_at, renewed_at, expires_at)
  select 'lease-' || i, 1, 'owner', interval '1 hour', clock_timestamp(), clock_timestamp(), clock_timestamp() + interval '1 hour'
  from numbered
),
keys as (
  insert into fencepost.idempotency_key (scope, key, claimed_by, claimed_at)
  select 'bench', 'old-' || i, pg_current_xact_id(), clock_timestamp() from numbered
),
messages as (
  insert into fencepost.outbox (channel, key, payload, ready, not_before, created_at)
  select 'bench', 'key-' || i, '{"n": 1}', true, clock_timestamp(), clock_timestamp() from numbered
),
jobs as (
  insert into fencepost.job (job_id, queue, kind, priority, payload, tries_max, lease, submitted_at)
  select -i, 'life-0', 'kind', 1, '{"n": 1}', 5, interval '60 s', clock_timestamp() - interval '1 hour' from numbered
)
insert into fencepost.job_finished (job_id, state, final_status, queue, attempt, tries, owner, claimed_at, finished_at)
select -i, 'finished', 'ok', 'life-0', 1, 1, 'owner', clock_timestamp() - interval '1 hour', clock_timestamp() - interval '1 hour'
from numbered
