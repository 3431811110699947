\set first :base + :client_id * :span + :i
\set i :i + :batch
select resource, owner, token, acquired_at, renewed_at, expires_at
from fencepost.lease_acquire('new-' || :first, 'owner', interval '10 minutes');
