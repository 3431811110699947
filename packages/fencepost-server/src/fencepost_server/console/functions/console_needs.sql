-- What waits for an operator in flows, where no list of the kernel shows it. Each plugin has a function of its own for this.

-- Each need with its subject and its count. Counted up to a bound: a million is as urgent as ten thousand.
-- A small table, and the partial index flow_dead_waiting.
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
  from fencepost.flow f;
end $$;
