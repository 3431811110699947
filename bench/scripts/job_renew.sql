\set first :base + :client_id * :span + :i
\set i :i + :batch
select :first::bigint, expires_at, cancel_requested, null from fencepost.job_renew(:first, 1, 'owner');
