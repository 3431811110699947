-- What waits for a person, where no list of the kernel tells it: in flows, orders and nonces.

-- Each need with the thing that it is about and how many there are. Counted up to a bound: a million is as urgent as ten thousand.
-- Small tables, and the partial indexes flow_dead_waiting, nonce_transaction_in_doubt and nonce_transaction_unproved.
create or replace function fencepost.console_needs() returns table (need text, name text, things bigint)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_most integer := 10000;
begin
  return query
  select 'flow failing', f.name, (select count(*) from fencepost.flow_failing(f.name)) from fencepost.flow f
  union all
  select 'flow dead letters', f.name, (
    select count(*) from (select 1 from fencepost.flow_dead d where d.flow = f.name and d.replay is null limit v_most) d)
  from fencepost.flow f
  union all
  select 'signers recovering', null, (select count(*) from fencepost.nonce_signer s where s.recovering_since is not null)
  union all
  select 'transactions in doubt', null, (
    select count(*) from (select 1 from fencepost.nonce_transaction t where t.in_doubt_since is not null limit v_most) t)
  union all
  select 'transactions unproved', null, (
    select count(*) from (select 1 from fencepost.nonce_transaction t
                          where t.unproved_since is not null and t.unproved_since <= fencepost.clock() - interval '1 minute'
                          limit v_most) t)
  union all
  select 'broker halted', b.broker, 1 from fencepost.orders_broker b where b.halted_at is not null
  union all
  select 'account halted', h.broker || '/' || h.account, 1 from fencepost.orders_halt h;
end $$;
