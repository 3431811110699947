select job_id, created
from fencepost.job_submit_many('life-' || :client_id, 'kind', array_fill('{"n": 1}'::jsonb, array[:batch::integer]));
begin;
select array_agg(job_id) as ids from fencepost.job_dispatch('life-' || :client_id, 1, :batch) \gset
select fencepost.job_dispatched(:ids::bigint[], array_fill('1-1'::text, array[:batch::integer]), 'life');
commit;
select array_agg(job_id) as ids, array_agg(attempt) as attempts, max(payload::text) as payload
from fencepost.job_claim_many(:ids::bigint[], 'owner') \gset
select job_id, refusal
from fencepost.job_finish_many(:ids::bigint[], :attempts::bigint[], 'owner', array_fill('ok'::text, array[:batch::integer]),
                               array_fill('{"n": 1}'::jsonb, array[:batch::integer]));
