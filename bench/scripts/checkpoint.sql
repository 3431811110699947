\set first :base + :client_id * :span + :i
\set i :i + :batch
begin;
select fencepost.checkpoint_begin('lease-' || :first, 1, '[]') as number \gset
select fencepost.checkpoint_store('lease-' || :first, 1, :number, null, '{"n": 1}', convert_to(repeat('x', 1000), 'UTF8'), '[]', true);
select fencepost.checkpoint_commit('lease-' || :first, 1, :number);
commit;
