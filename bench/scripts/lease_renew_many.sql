\set first :base + :client_id * :span + :i
\set i :i + :batch
select resource, token, expires_at, refusal
from fencepost.lease_renew_many(array(select 'lease-' || i from generate_series(:first::bigint, :first::bigint + :batch::bigint - 1) i),
                                'owner', array_fill(1::bigint, array[:batch::integer]), interval '10 minutes');
