\set first :base + :client_id * :span + :i
\set i :i + :batch
select resource, owner, token, acquired_at, renewed_at, expires_at
from fencepost.lease_renew('lease-' || :first, 'owner', 1, interval '10 minutes');
