\set first :base + :client_id * :span + :i
\set i :i + :batch
select job_id, outcome, refusal, attempt, tries, queue, priority, kind, payload::text, headers::text, lease, expires_at, submitted_at
from fencepost.job_claim_many(array(select generate_series(:first::bigint, :first::bigint + :batch::bigint - 1)), 'owner');
