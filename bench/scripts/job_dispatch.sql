begin;
select coalesce(array_agg(job_id), '{}') as ids from fencepost.job_dispatch('bench', 1, :batch::integer) \gset
select fencepost.job_dispatched(:ids::bigint[], array_fill('1-1'::text, array[cardinality(:ids::bigint[])]), 'bench');
commit;
