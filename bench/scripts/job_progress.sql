\set first :base + :client_id * :span + :i
\set i :i + :batch
select fencepost.job_progress(:first, 1, 'owner', '{"n": 1}');
