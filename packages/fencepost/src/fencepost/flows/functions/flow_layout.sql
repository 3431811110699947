-- The stateful steps of a flow: whether a graph accounts for all stored state, and the history of the steps.

-- Whether one step can use the state of another: it has the same kind, the same windows, lies in the same keyed stage, and under a derived name the same function,
-- where the same version of Python took both fingerprints. A given name (or a rename) declares that the function is the same. Another
-- version of the state has a migration, which the worker looks up.
create or replace function fencepost._flow_step_changed(p_stored jsonb, p_given jsonb, p_said boolean) returns text
language sql immutable
as $$
  select case
    when p_stored ->> 'kind' <> p_given ->> 'kind' then 'kind'
    when coalesce(p_stored ->> 'stage', '1') <> coalesce(p_given ->> 'stage', '1') then 'stage'
    when p_stored -> 'version' <> p_given -> 'version' then null
    when p_stored ->> 'window' <> p_given ->> 'window' then 'window'
    when not p_said and not coalesce((p_given ->> 'given')::boolean, false) and p_stored ->> 'python' = p_given ->> 'python'
      and p_stored ->> 'print' <> p_given ->> 'print' then 'function'
  end
$$;

-- What the stateful steps of a plan mean for the stored ones: which are renamed, which are dropped, and which the plan does not
-- account for. A rename counts where the old name is stored and the new one is not, and a drop where it is needed: both may stay in the
-- code. p_same: the plan is that of the previous version, which numbered steps by their order; each has that name as its place.
create or replace function fencepost._flow_steps_fit(p_stored jsonb, p_plan jsonb, p_same boolean) returns jsonb
language plpgsql immutable
as $$
declare
  v_given   jsonb := coalesce(p_plan -> 'steps', '{}');
  v_old     text;
  v_new     text;
  v_said    boolean;
  v_why     text;
  v_renamed jsonb := '{}';
  v_dropped jsonb := '[]';
  v_lost    jsonb := '[]';
begin
  for v_old in select k from jsonb_object_keys(p_stored) k order by k loop
    v_new := p_plan -> 'rename' ->> v_old;
    if v_new is null or p_stored ? v_new then
      v_new := null;
    end if;
    if v_new is null and p_same then
      v_new := (select g.key from jsonb_each(v_given) g where g.value ->> 'place' = v_old);
    end if;
    v_said := v_new is not null;
    v_new := coalesce(v_new, v_old);
    v_why := case when v_given ? v_new then fencepost._flow_step_changed(p_stored -> v_old, v_given -> v_new, v_said) else 'gone' end;
    if v_why is null then
      if v_new <> v_old then
        v_renamed := v_renamed || jsonb_build_object(v_old, v_new);
      end if;
    elsif coalesce(p_plan -> 'drop_state', '[]') ? v_old then
      v_dropped := v_dropped || to_jsonb(v_old);
    else
      v_lost := v_lost || jsonb_build_object('step', v_old, 'as', v_new, 'why', v_why, 'stored', p_stored -> v_old,
                                             'given', v_given -> v_new);
    end if;
  end loop;
  return jsonb_build_object('renamed', v_renamed, 'dropped', v_dropped, 'lost', v_lost, 'new', (
    select coalesce(jsonb_object_agg(g.key, g.value ->> 'kind'), '{}') from jsonb_each(v_given) g
    where not p_stored ? g.key and not exists (select 1 from jsonb_each_text(v_renamed) r where r.value = g.key)));
end $$;

-- The names in the previous version: the steps with state that its plan shows.
create or replace function fencepost._flow_steps_before(p_plan jsonb) returns jsonb
language sql immutable
as $$
  select coalesce(jsonb_object_agg(n ->> 'name', jsonb_build_object('kind', n ->> 'kind')), '{}')
  from jsonb_array_elements(p_plan -> 'nodes') n
  where n ->> 'section' = 'body' and n ->> 'kind' in ('fold', 'stateful', 'process', 'dedup', 'lookup', 'join', 'window')
$$;

-- Whether a plan is the stored one, by the names that the previous version gave.
create or replace function fencepost._flow_is_same(p_stored jsonb, p_plan jsonb) returns boolean
language sql immutable
as $$
  select p_stored -> 'edges' = p_plan -> 'edges' and p_stored -> 'nodes' = (
    select jsonb_agg(jsonb_build_object('name', n.node ->> 'place', 'kind', n.node ->> 'kind', 'section', n.node ->> 'section')
                     order by n.place)
    from jsonb_array_elements(p_plan -> 'nodes') with ordinality n (node, place))
$$;

-- Accept the stateful steps of a plan, or raise mismatch with those that it does not account for. Returns the layout that is valid from
-- now on; a changed layout ends the edition. Without a commit there is no state, and any steps are accepted. Called with the row of the
-- flow locked (p_flow), and for another layout under the lock that every open commit shares.
create or replace function fencepost._flow_lay_out(p_flow fencepost.flow, p_plan jsonb, p_by text) returns bigint
language plpgsql volatile
as $$
declare
  v_steps   jsonb := coalesce(p_plan -> 'steps', '{}');
  v_stored  jsonb;
  v_fit     jsonb;
  v_layout  bigint;
begin
  v_stored := coalesce((select l.steps from fencepost.flow_layout l where l.flow = p_flow.name and l.layout = p_flow.layout),
                       fencepost._flow_steps_before(p_flow.plan));
  if exists (select 1 from fencepost.checkpoint c where c.status in ('stored', 'committed')
             and c.resource >= fencepost._flow_prefix(p_flow.name) and c.resource < fencepost._flow_behind(p_flow.name)) then
    v_fit := fencepost._flow_steps_fit(v_stored, p_plan, p_flow.layout = 0 and fencepost._flow_is_same(p_flow.plan, p_plan));
    if v_fit -> 'lost' <> '[]' then
      perform fencepost._refuse('mismatch', 'flow', p_flow.name, jsonb_build_object('op', 'register', 'by', p_by),
                                jsonb_build_object('why', 'steps', 'lost', v_fit -> 'lost', 'new', v_fit -> 'new'));
    end if;
  else
    v_fit := '{"renamed": {}, "dropped": []}';
  end if;
  if p_flow.layout > 0 and v_fit -> 'dropped' = '[]' and (select array_agg(k order by k) from jsonb_object_keys(v_stored) k)
      is not distinct from (select array_agg(k order by k) from jsonb_object_keys(v_steps) k) then
    -- The same steps; functions of steps with a given name were edited.
    update fencepost.flow_layout l set steps = v_steps where l.flow = p_flow.name and l.layout = p_flow.layout and l.steps <> v_steps;
    return p_flow.layout;
  end if;
  perform pg_advisory_xact_lock(hashtextextended(p_flow.name, 6092));
  v_layout := 1 + coalesce((select max(l.layout) from fencepost.flow_layout l where l.flow = p_flow.name), 0);
  insert into fencepost.flow_layout (flow, layout, origin, steps, renamed, dropped, made_at, made_by)
  values (p_flow.name, v_layout, p_flow.layout, v_steps, v_fit -> 'renamed', v_fit -> 'dropped', fencepost.clock(), p_by);
  return v_layout;
end $$;

-- The layouts of a flow, the newest first. Served by the primary key.
create or replace function fencepost.flow_layouts(p_name text)
returns table (layout bigint, origin bigint, steps jsonb, renamed jsonb, dropped jsonb, made_at timestamptz, made_by text)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  return query
  select l.layout, l.origin, l.steps, l.renamed, l.dropped, l.made_at, l.made_by from fencepost.flow_layout l
  where l.flow = p_name order by l.layout desc;
end $$;
