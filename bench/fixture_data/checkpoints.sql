-- Leases that 'owner' holds, named by numbers from `first` on, each with a committed checkpoint.
with held as (
  insert into fencepost.lease (resource, token, owner, ttl, acquired_at, renewed_at, expires_at)
  select 'lease-' || i, 1, 'owner', interval '10 minutes', clock_timestamp(), clock_timestamp(),
         clock_timestamp() + interval '10 minutes'
  from generate_series(%(first)s::bigint, %(first)s::bigint + %(count)s::bigint - 1) i
  returning resource, acquired_at
)
insert into fencepost.checkpoint (resource, number, token, status, frontier, state, begun_at, stored_at, committed_at)
select h.resource, 1, 1, 'committed', '{"n": 1}', convert_to(repeat('x', 1000), 'UTF8'), h.acquired_at, h.acquired_at, h.acquired_at
from held h
