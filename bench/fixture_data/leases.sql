-- Leases that 'owner' holds, named by numbers from `first` on.
insert into fencepost.lease (resource, token, owner, ttl, acquired_at, renewed_at, expires_at)
select 'lease-' || i, 1, 'owner', interval '10 minutes', clock_timestamp(), clock_timestamp(),
       clock_timestamp() + interval '10 minutes'
from generate_series(%(first)s::bigint, %(first)s::bigint + %(count)s::bigint - 1) i
