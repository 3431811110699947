\set first :base + :client_id * :span + :i
\set i :i + :batch
select fencepost.job_finish(:first, 1, 'owner', 'ok', '{"n": 1}');
