-- The log of a source whose records have no offset to return to: entries are appended together with where the source looks next,
-- read by number, and removed once the flow's frontier has passed them.

-- Append entries and move the cursor; returns the highest number. An entry whose id is in the log is passed over. Fenced by the lease
-- of the task that reads the source. Raises mismatch unless `p_last` is the highest number: an earlier call of the same task, whose
-- answer was lost, may have appended. Locks the log's row, so that a number is never seen before a lower one.
create or replace function fencepost.flow_log_append(
  p_flow text, p_source text, p_resource text, p_token bigint, p_last bigint, p_cursor jsonb, p_ids text[], p_entries jsonb[]
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_last bigint;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('flow', p_flow, 128);
  perform fencepost._check_text('source', p_source, 512);
  perform fencepost.lease_fence(p_resource, p_token);
  insert into fencepost.flow_log (flow, source) values (p_flow, p_source) on conflict do nothing;
  select l.last into v_last from fencepost.flow_log l where l.flow = p_flow and l.source = p_source for update;
  if v_last <> p_last then
    perform fencepost._refuse('mismatch', 'flow', p_flow, jsonb_build_object('source', p_source, 'last', p_last),
                              jsonb_build_object('last', v_last));
  end if;
  insert into fencepost.flow_log_entry (flow, source, number, id, entry)
  select p_flow, p_source, v_last + row_number() over (order by g.place), g.id, g.entry
  from (
    select distinct on (coalesce(a.id, a.place::text), a.id is null) a.id, a.entry, a.place
    from unnest(p_ids, p_entries) with ordinality a (id, entry, place)
    where a.id is null or not exists (
      select from fencepost.flow_log_entry e where e.flow = p_flow and e.source = p_source and e.id = a.id)
    order by coalesce(a.id, a.place::text), a.id is null, a.place) g;
  select coalesce(max(e.number), v_last) into v_last from fencepost.flow_log_entry e
  where e.flow = p_flow and e.source = p_source and e.number > v_last;
  update fencepost.flow_log l set last = v_last, cursor = p_cursor where l.flow = p_flow and l.source = p_source;
  return v_last;
end $$;

-- Entries after a number, in order. Served by the primary key.
create or replace function fencepost.flow_log_read(p_flow text, p_source text, p_after bigint, p_limit integer)
returns table (number bigint, id text, entry jsonb)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  perform fencepost._check_limit(p_limit);
  return query
  select e.number, e.id, e.entry from fencepost.flow_log_entry e
  where e.flow = p_flow and e.source = p_source and e.number > p_after order by e.number limit p_limit;
end $$;

-- Which of these ids the log has, with their entries. Served by the unique key.
create or replace function fencepost.flow_log_known(p_flow text, p_source text, p_ids text[])
returns table (id text, entry jsonb)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select e.id, e.entry from unnest(p_ids) a (id)
    join fencepost.flow_log_entry e on e.flow = p_flow and e.source = p_source and e.id = a.id
$$;

-- The lowest number in the log, the highest that was ever given, and the cursor; null, 0 and null for a log that was never begun.
create or replace function fencepost.flow_log_state(p_flow text, p_source text)
returns table (lowest bigint, last bigint, cursor jsonb)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select (select e.number from fencepost.flow_log_entry e where e.flow = p_flow and e.source = p_source
          order by e.number limit 1),
         coalesce(l.last, 0), l.cursor
  from (select 1) one left join fencepost.flow_log l on l.flow = p_flow and l.source = p_source
$$;

-- Remove entries up to a number, the oldest first; returns how many. The caller must have committed their effects.
create or replace function fencepost.flow_log_trim(
  p_flow text, p_source text, p_resource text, p_token bigint, p_upto bigint, p_limit integer
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_count bigint;
begin
  perform fencepost._check_limit(p_limit);
  perform fencepost.lease_fence(p_resource, p_token);
  delete from fencepost.flow_log_entry e where e.flow = p_flow and e.source = p_source and e.number = any (array(
    select o.number from fencepost.flow_log_entry o
    where o.flow = p_flow and o.source = p_source and o.number <= p_upto order by o.number limit p_limit for update));
  get diagnostics v_count = row_count;
  return v_count;
end $$;
