-- Savepoints, and moving tasks back: to a savepoint, on an operator's request, or to the checkpoint of a sink that has lost data.

-- The tasks in which a flow of this shape commits: its key groups, its partitions, or the one for all keys. None for a flow of the
-- previous version, whose shape is not known until it registers again.
create or replace function fencepost._flow_tasks(p_name text, p_shape jsonb) returns setof text
language sql immutable
as $$
  select fencepost._flow_prefix(p_name) || 'group/' || case when s.place > 1 then s.place || '-' else '' end || lpad(g::text, 4, '0')
  from jsonb_array_elements_text(coalesce(p_shape -> 'stages', jsonb_build_array(p_shape -> 'groups'))) with ordinality s (groups, place),
       lateral generate_series(0, s.groups::integer - 1) g
  where p_shape ->> 'units' = 'groups'
  union all
  select fencepost._flow_prefix(p_name) || 'part/' || s from jsonb_object_keys(p_shape -> 'senders') s
  where p_shape ->> 'units' = 'parts'
  union all
  select fencepost._flow_prefix(p_name) || 'all' where p_shape ->> 'units' = 'all'
$$;

-- Copy the newest committed checkpoint of every task under a name. No barrier: each task's commit is consistent by itself
-- with its frontier, and that is what a restore needs. A checkpoint whose sinks are not finished is left out: whether they finished
-- could not be determined later. A task that has committed nothing yet is in the savepoint too, as number 0: its beginning.
-- Returns the number of tasks. Raises duplicate for a name that is taken, and not_found when nothing is committed.
create or replace function fencepost.flow_save(p_name text, p_savepoint text) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_found record;
  v_count bigint := 0;
  v_begun bigint;
begin
  perform fencepost._check_text('name', p_name, 128);
  perform fencepost._check_text('savepoint', p_savepoint, 128);
  perform pg_advisory_xact_lock(hashtextextended(p_name || '/' || p_savepoint, 6090));
  if exists (select 1 from fencepost.flow_savepoint s where s.flow = p_name and s.savepoint = p_savepoint) then
    perform fencepost._refuse('duplicate', 'flow', p_name, jsonb_build_object('savepoint', p_savepoint), null);
  end if;
  perform fencepost._flow_stage_hold(p_name);
  -- Parts must not be deleted before the savepoint names them.
  for v_found in
    select distinct s.resource from fencepost.flow_state s
    where s.resource >= fencepost._flow_prefix(p_name) and s.resource < fencepost._flow_behind(p_name) order by s.resource
  loop
    perform pg_advisory_xact_lock(hashtextextended(v_found.resource, 6089));
  end loop;
  -- One snapshot: no receiver is further than its sender.
  for v_found in
    select f.resource, n.number from fencepost.flow_frontiers(p_name) f, lateral (
      select c.number from fencepost.checkpoint c where c.resource = f.resource and c.status = 'committed'
        and c.number <= f.number order by c.number desc limit 1) n
  loop
    insert into fencepost.flow_savepoint (flow, savepoint, resource, number, whole, frontier, state, made_at, layout,
                                          since, parts, bytes)
    select p_name, p_savepoint, c.resource, c.number, c.whole, c.frontier, c.state, fencepost.clock(),
           (select f.layout from fencepost.flow f where f.name = p_name), s.since, s.parts, s.bytes
    from fencepost.checkpoint c left join fencepost.flow_state s on s.resource = c.resource and s.number = c.number
    where c.resource = v_found.resource and c.status in ('stored', 'committed')
      and c.number between fencepost._flow_since(v_found.resource, v_found.number) and v_found.number;
    v_count := v_count + 1;
  end loop;
  if v_count = 0 then
    perform fencepost._refuse('not_found', 'flow', p_name, jsonb_build_object('savepoint', p_savepoint, 'op', 'save'), null);
  end if;
  insert into fencepost.flow_savepoint (flow, savepoint, resource, number, whole, frontier, made_at)
  select p_name, p_savepoint, t.resource, 0, true, '{}', fencepost.clock()
  from fencepost.flow f, lateral fencepost._flow_tasks(p_name, f.shape) t (resource)
  where f.name = p_name and not exists (
    select 1 from fencepost.flow_savepoint s where s.flow = p_name and s.savepoint = p_savepoint and s.resource = t.resource);
  get diagnostics v_begun = row_count;
  perform fencepost._flow_stage_save(p_name, p_savepoint);
  return v_count + v_begun;
end $$;

-- Delete a savepoint; returns how many tasks it held. Raises not_found.
create or replace function fencepost.flow_drop(p_name text, p_savepoint text) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_count    bigint;
  v_parted   text[];
  v_resource text;
begin
  perform fencepost._check_text('name', p_name, 128);
  perform fencepost._check_text('savepoint', p_savepoint, 128);
  perform pg_advisory_xact_lock(hashtextextended(p_name || '/' || p_savepoint, 6090));
  delete from fencepost.flow_stage_saved s where s.flow = p_name and s.savepoint = p_savepoint;
  with gone as (
    delete from fencepost.flow_savepoint s where s.flow = p_name and s.savepoint = p_savepoint returning s.resource, s.parts)
  select count(distinct g.resource), array_agg(distinct g.resource order by g.resource) filter (where g.parts is not null)
    into v_count, v_parted from gone g;
  if v_count = 0 then
    perform fencepost._refuse('not_found', 'flow', p_name, jsonb_build_object('savepoint', p_savepoint), null);
  end if;
  foreach v_resource in array coalesce(v_parted, '{}') loop
    perform fencepost._flow_sweep_parts(v_resource);
  end loop;
  return v_count;
end $$;

-- Restore every task to a savepoint: its rows become the newest checkpoints, whole chains and committed, and it is recorded for the
-- sinks that an operator requested this. Numbers only grow: a sink that stores one would skip a lower one. A checkpoint that was stored
-- and not finished becomes begun again, so that recovery cancels it: its records are read again. Raises in_flight while any task is
-- held. Takes the leases' row locks, in order of resource, so that no lease is acquired meanwhile, and the savepoint's, so that it is
-- not dropped. Raises mismatch for a savepoint of another number of key groups.
create or replace function fencepost.flow_restore(p_name text, p_savepoint text) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_held   fencepost.lease;
  v_now    timestamptz;
  v_task   record;
  v_row    fencepost.flow_savepoint;
  v_shape  jsonb;
  v_groups bigint;
  v_number bigint;
  v_first  bigint;
  v_count  bigint := 0;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('name', p_name, 128);
  perform fencepost._check_text('savepoint', p_savepoint, 128);
  perform pg_advisory_xact_lock(hashtextextended(p_name || '/' || p_savepoint, 6090));
  perform 1 from fencepost.lease l
  where l.resource >= fencepost._flow_prefix(p_name) and l.resource < fencepost._flow_behind(p_name)
  order by l.resource for update;
  v_now := fencepost.clock();
  select * into v_held from fencepost.lease l
  where l.resource >= fencepost._flow_prefix(p_name) and l.resource < fencepost._flow_behind(p_name)
    and not starts_with(l.resource, fencepost._flow_prefix(p_name) || 'slot/') and l.owner is not null and l.expires_at > v_now
  order by l.resource limit 1;
  if found then
    perform fencepost._refuse('in_flight', 'flow', p_name, jsonb_build_object('savepoint', p_savepoint),
                              fencepost._lease_seen(v_held, v_now) || jsonb_build_object('resource', v_held.resource));
  end if;
  if not exists (select 1 from fencepost.flow_savepoint s where s.flow = p_name and s.savepoint = p_savepoint) then
    perform fencepost._refuse('not_found', 'flow', p_name, jsonb_build_object('savepoint', p_savepoint), null);
  end if;
  -- State of another number of key groups is divided anew by flow_regroup.
  v_shape := (select f.shape from fencepost.flow f where f.name = p_name);
  v_groups := (select count(distinct s.resource) from fencepost.flow_savepoint s where s.flow = p_name and s.savepoint = p_savepoint
               and starts_with(s.resource, fencepost._flow_prefix(p_name) || 'group/'));
  if v_shape ->> 'units' = 'groups' and (v_groups <> (select count(*) from fencepost._flow_tasks(p_name, v_shape)) or exists (
      select 1 from fencepost._flow_tasks(p_name, v_shape) t where not exists (
        select 1 from fencepost.flow_savepoint s where s.flow = p_name and s.savepoint = p_savepoint and s.resource = t))) then
    perform fencepost._refuse('mismatch', 'flow', p_name, jsonb_build_object('savepoint', p_savepoint, 'op', 'restore'),
                              jsonb_build_object('why', 'groups', 'groups', v_shape -> 'groups', 'saved', v_groups));
  end if;
  update fencepost.checkpoint c set status = 'begun', frontier = null, state = null, stored_at = null
  where c.status = 'stored' and c.resource >= fencepost._flow_prefix(p_name) and c.resource < fencepost._flow_behind(p_name);
  for v_task in
    select t.resource, max(t.origin) as origin, coalesce(max(l.token), 1) as token from (
      select s.resource, s.number as origin from fencepost.flow_savepoint s where s.flow = p_name and s.savepoint = p_savepoint
      union all
      -- A task that is not in the savepoint starts from the beginning, like one that is in it at number 0: its checkpoints are of another time.
      select f.resource, 0 from fencepost.flow_frontiers(p_name) f
    ) t left join fencepost.lease l on l.resource = t.resource
    group by t.resource order by t.resource
  loop
    v_number := fencepost.flow_number(v_task.resource);
    v_first := null;
    perform pg_advisory_xact_lock(hashtextextended(v_task.resource, 6089));
    if v_task.origin = 0 then
      v_number := v_number + 1;
      insert into fencepost.checkpoint (resource, number, token, status, whole, frontier, begun_at, stored_at, committed_at)
      values (v_task.resource, v_number, v_task.token, 'committed', true, '{}', v_now, v_now, v_now);
    end if;
    for v_row in select * from fencepost.flow_savepoint s where s.flow = p_name and s.savepoint = p_savepoint
                 and s.resource = v_task.resource and s.number > 0 order by s.number loop
      v_number := v_number + 1;
      insert into fencepost.checkpoint (resource, number, token, status, whole, frontier, state, begun_at, stored_at, committed_at)
      values (v_row.resource, v_number, v_task.token, 'committed', v_row.whole, v_row.frontier, v_row.state, v_now, v_now, v_now);
      v_first := least(v_first, v_number);
      if v_row.parts is not null then
        -- A restore of the copy begins with the first copy: the savepoint has what its newest checkpoint needs.
        perform fencepost._flow_name_parts(v_row.resource, v_number, v_first, v_row.parts);
      end if;
      v_count := v_count + 1;
    end loop;
    -- In another database than that of the savepoint, or after a restore from a backup, numbers may have started again.
    insert into fencepost.flow_return (resource, number, origin, asked, at)
    values (v_task.resource, v_number, least(v_task.origin, v_number - 1), true, v_now);
  end loop;
  perform fencepost._flow_lay_back(p_name, p_savepoint, v_now);
  perform fencepost._flow_stage_restore(p_name, p_savepoint);
  return v_count;
end $$;

-- After a restore the flow has the stateful steps of the savepoint: the next graph must account for those. A changed layout ends
-- the edition, also for workers that were drained and continue.
create or replace function fencepost._flow_lay_back(p_name text, p_savepoint text, p_now timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_origin bigint;
  v_flow   fencepost.flow;
  v_layout bigint;
begin
  select * into v_flow from fencepost.flow f where f.name = p_name for no key update;
  v_origin := (select coalesce(max(s.layout), 1) from fencepost.flow_savepoint s where s.flow = p_name and s.savepoint = p_savepoint);
  if v_flow.layout is null or v_flow.layout in (0, v_origin) then
    return;
  end if;
  v_layout := (select 1 + max(l.layout) from fencepost.flow_layout l where l.flow = p_name);
  insert into fencepost.flow_layout (flow, layout, origin, steps, renamed, dropped, made_at, made_by)
  select p_name, v_layout, v_origin, l.steps, '{}', '[]', p_now, 'savepoint ' || p_savepoint
  from fencepost.flow_layout l where l.flow = p_name and l.layout = v_origin;
  if found then
    update fencepost.flow f set layout = v_layout, edition = f.edition + 1 where f.name = p_name;
  end if;
end $$;

-- The checkpoint of a task that corresponds to p_position, the last one that a sink took. For a sink that was not told of a restore it
-- is the restored one, if the sink has everything that the savepoint has: a requested restore is no loss. The sink lacks something if it
-- took less, or if its position was reached after the task was rewound to before the savepoint. For a sink that was not told
-- of a rewind to exactly its position it is the copy. Served by the primary key.
create or replace function fencepost.flow_stand(p_resource text, p_position bigint) returns bigint
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_stand  bigint := p_position;
  v_return fencepost.flow_return;
begin
  for v_return in select * from fencepost.flow_return r where r.resource = p_resource and r.number > p_position
                  order by r.number loop
    if v_stand = v_return.origin then
      v_stand := v_return.number;
    elsif v_return.asked and v_stand > v_return.origin and not exists (
      select 1 from fencepost.flow_return w where w.resource = p_resource and not w.asked
        and w.number > v_return.origin and w.number <= v_stand and w.origin < v_return.origin) then
      v_stand := v_return.number;
    end if;
  end loop;
  return v_stand;
end $$;

-- Rewind a task to an older checkpoint of its own, because a sink has lost what came after it. Returns the new number;
-- raises not_found when that checkpoint is no longer kept. p_number 0 starts from the beginning.
create or replace function fencepost.flow_rewind(p_resource text, p_token bigint, p_number bigint) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_whole  bigint;
  v_row    fencepost.checkpoint;
  v_newest bigint;
  v_first  bigint;
begin
  perform fencepost.lease_fence(p_resource, p_token);
  perform pg_advisory_xact_lock(hashtextextended(p_resource, 6089));
  v_newest := fencepost.flow_number(p_resource);
  if p_number = 0 then
    insert into fencepost.checkpoint (resource, number, token, status, whole, frontier, begun_at, stored_at, committed_at)
    values (p_resource, v_newest + 1, p_token, 'committed', true, '{}', fencepost.clock(), fencepost.clock(), fencepost.clock());
    insert into fencepost.flow_return (resource, number, origin, asked, at)
    values (p_resource, v_newest + 1, 0, false, fencepost.clock());
    return v_newest + 1;
  end if;
  v_whole := fencepost._flow_since(p_resource, p_number);
  if v_whole is null or not exists (select 1 from fencepost.checkpoint c where c.resource = p_resource
                                    and c.number = p_number and c.status in ('stored', 'committed')) then
    perform fencepost._refuse('not_found', 'checkpoint', p_resource || '#' || p_number,
                              jsonb_build_object('token', p_token, 'op', 'rewind'), null);
  end if;
  for v_row in select * from fencepost.checkpoint c where c.resource = p_resource and c.number between v_whole and p_number
               and c.status in ('stored', 'committed') order by c.number loop
    v_newest := v_newest + 1;
    insert into fencepost.checkpoint (resource, number, token, status, whole, frontier, state, begun_at, stored_at, committed_at)
    values (p_resource, v_newest, p_token, 'committed', v_row.whole, v_row.frontier, v_row.state, fencepost.clock(),
            fencepost.clock(), fencepost.clock());
    v_first := least(v_first, v_newest);
    perform fencepost._flow_name_parts(p_resource, v_newest, v_first, s.parts)
    from fencepost.flow_state s where s.resource = p_resource and s.number = v_row.number;
  end loop;
  insert into fencepost.flow_return (resource, number, origin, asked, at)
  values (p_resource, v_newest, p_number, false, fencepost.clock());
  return v_newest;
end $$;

create or replace view fencepost.flow_savepoints as
  select s.flow, s.savepoint, count(distinct s.resource) as tasks, sum(coalesce(octet_length(s.state), 0) + coalesce(s.bytes, 0)) as state_bytes, min(s.made_at) as made_at
  from fencepost.flow_savepoint s group by s.flow, s.savepoint;
