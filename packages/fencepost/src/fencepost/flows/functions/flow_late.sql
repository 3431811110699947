-- Late records of flows: those that arrived after all their windows were closed. Counted in the commit that skips them.

-- Count late records of a task, and keep the newest five as text. Called inside the transaction of the task's commit; fenced by
-- its lease. Served by the primary key.
create or replace function fencepost.flow_count_late(p_resource text, p_token bigint, p_records bigint, p_samples jsonb) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._check_json('samples', p_samples, 65536);
  perform fencepost.lease_fence(p_resource, p_token);
  insert into fencepost.flow_late as l (resource, records, last_at, samples)
  values (p_resource, p_records, fencepost.clock(), p_samples)
  on conflict (resource) do update set records = l.records + excluded.records, last_at = excluded.last_at,
    samples = (select jsonb_agg(s.value order by s.place) from (
      select e.value, e.place from jsonb_array_elements(l.samples || excluded.samples) with ordinality e (value, place)
      order by e.place desc limit 5) s);
end $$;

-- How many records of each task of a flow were late, and the newest of them. Served by the primary key.
create or replace function fencepost.flow_lates(p_name text)
returns table (resource text, records bigint, last_at timestamptz, samples jsonb)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  return query
  select l.resource, l.records, l.last_at, l.samples from fencepost.flow_late l
  where l.resource >= fencepost._flow_prefix(p_name) and l.resource < fencepost._flow_behind(p_name)
  order by l.resource;
end $$;
