\set first :base + :client_id * :span + :i
\set i :i + :batch
select resource, owner, token, acquired, acquired_at, renewed_at, expires_at, refusal
from fencepost.lease_acquire_many(array(select 'new-' || i from generate_series(:first::bigint, :first::bigint + :batch::bigint - 1) i),
                                  'owner', interval '10 minutes');
