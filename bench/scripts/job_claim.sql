\set first :base + :client_id * :span + :i
\set i :i + :batch
select job_id, attempt, tries, queue, priority, kind, payload::text, headers::text, lease, expires_at, submitted_at
from fencepost.job_claim(:first, 'owner');
