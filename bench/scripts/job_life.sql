select job_id, created from fencepost.job_submit('life-' || :client_id, 'kind', '{"n": 1}');
begin;
select min(job_id) as id from fencepost.job_dispatch('life-' || :client_id, 1, 1) \gset
select fencepost.job_dispatched(array[:id::bigint], array['1-1'], 'life');
commit;
select attempt from fencepost.job_claim(:id, 'owner') \gset
select fencepost.job_finish(:id, :attempt, 'owner', 'ok', '{"n": 1}');
