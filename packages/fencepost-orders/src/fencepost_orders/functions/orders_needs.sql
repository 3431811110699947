-- What waits for an operator among the brokers: halts that only an operator lifts.

-- Each halt of a broker and of an account. Small tables.
create or replace function fencepost.orders_needs() returns table (need text, name text, things bigint)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  return query
  select 'broker halted', b.broker, 1::bigint from fencepost.orders_broker b where b.halted_at is not null
  union all
  select 'account halted', h.broker || '/' || h.account, 1 from fencepost.orders_halt h;
end $$;
