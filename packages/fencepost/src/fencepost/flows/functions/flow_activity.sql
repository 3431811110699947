-- The recent activity of a flow's tasks, for display: rates by edge, lag, and backpressure.

-- Store the activity of tasks. Plural: a task whose lease the caller has lost is skipped, and no error is raised for it.
-- Takes the leases' key share locks in order of resource, as every fence does. Returns how many were stored.
create or replace function fencepost.flow_report(p_resources text[], p_tokens bigint[], p_activities jsonb[]) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_told  record;
  v_count bigint := 0;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_tokens('tokens', p_tokens);
  perform fencepost._check_lengths('tokens', cardinality(p_resources), cardinality(p_tokens));
  perform fencepost._check_lengths('activities', cardinality(p_resources), cardinality(p_activities));
  perform fencepost._check_documents('activities', p_activities, 1048576);
  for v_told in select a.resource, a.token, a.activity from unnest(p_resources, p_tokens, p_activities)
                a (resource, token, activity) order by a.resource loop
    perform 1 from fencepost.lease l where l.resource = v_told.resource and l.token = v_told.token for key share;
    continue when not found;
    insert into fencepost.flow_activity as f (resource, token, reported_at, activity)
    values (v_told.resource, v_told.token, fencepost.clock(), v_told.activity)
    on conflict (resource) do update set token = excluded.token, reported_at = excluded.reported_at,
      activity = excluded.activity;
    v_count := v_count + 1;
  end loop;
  return v_count;
end $$;

-- The activity that tasks reported within p_within. Served by the primary key.
create or replace function fencepost.flow_activities(p_name text, p_within interval default '15 seconds')
returns table (resource text, reported_at timestamptz, activity jsonb)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_since timestamptz;
begin
  perform fencepost._check_duration('within', p_within, interval '1 day');
  v_since := fencepost.clock() - p_within;
  return query
  select f.resource, f.reported_at, f.activity from fencepost.flow_activity f
  where f.resource >= fencepost._flow_prefix(p_name) and f.resource < fencepost._flow_behind(p_name)
    and f.reported_at > v_since
  order by f.resource;
end $$;

-- The graph's edges by the numbers of their nodes in the plan: records per second over all tasks; for an edge out of a
-- source, how many records wait in it; and backpressure, the share of time in which a receiver keeps its sender waiting
-- (null within a task, where the edge is a function call). Of several tasks, that of the one that waits most.
create or replace function fencepost.flow_edges(p_name text, p_within interval default '15 seconds')
returns table (parent integer, child integer, per_second double precision, lag bigint, backpressure double precision)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_plan  jsonb;
  v_told  jsonb;
  v_edge  jsonb;
  v_node  jsonb;
begin
  v_plan := (select f.plan from fencepost.flow f where f.name = p_name);
  v_told := (select coalesce(jsonb_agg(a.activity), '[]') from fencepost.flow_activities(p_name, p_within) a);
  for v_edge in select e from jsonb_array_elements(v_plan -> 'edges') e loop
    v_node := v_plan -> 'nodes' -> (v_edge ->> 0)::integer;
    return query
    select (v_edge ->> 0)::integer, (v_edge ->> 1)::integer,
      (select sum((t -> 'edges' ->> ((v_edge ->> 0) || '-' || (v_edge ->> 1)))::float8) from jsonb_array_elements(v_told) t),
      case when v_node ->> 'kind' = 'source' then
        (select sum(l.value::text::bigint)::bigint from jsonb_array_elements(v_told) t, jsonb_each(t -> 'lag') l
         where starts_with(l.key, (v_node ->> 'name') || ':') and l.value <> 'null') end,
      case when v_node ->> 'kind' = 'source' then
             (select max((t ->> 'busy')::float8) from jsonb_array_elements(v_told) t where t -> 'reads' ? (v_node ->> 'name'))
           when v_node ->> 'section' = 'border' then
             (select max((t ->> 'blocked')::float8) from jsonb_array_elements(v_told) t) end;
  end loop;
end $$;

-- The tasks of a flow whose last report, within p_within, was an error: a task that works again reports so. Where known: the step or
-- sink, the stream and offset of the record (or of the first that is not committed), and the remedy. Served by the
-- primary key.
create or replace function fencepost.flow_failing(p_name text, p_within interval default '1 day')
returns table (resource text, failed_at timestamptz, failures integer, error text, step text, stream text, at_offset text, remedy text)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  return query
  select a.resource, a.reported_at, (a.activity ->> 'failures')::integer, a.activity ->> 'error', a.activity ->> 'step',
         a.activity ->> 'stream', a.activity ->> 'offset', a.activity ->> 'remedy'
  from fencepost.flow_activities(p_name, p_within) a where a.activity ? 'error';
end $$;
