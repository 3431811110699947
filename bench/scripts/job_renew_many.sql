\set first :base + :client_id * :span + :i
\set i :i + :batch
select job_id, expires_at, cancel_requested, refusal
from fencepost.job_renew_many(array(select generate_series(:first::bigint, :first::bigint + :batch::bigint - 1)),
                              array_fill(1::bigint, array[:batch::integer]), 'owner');
