-- Another number of key groups for a flow: from a savepoint whose state a client has divided anew.

-- The checkpoints of a savepoint, in order, for a client that divides them. Served by the primary key.
create or replace function fencepost.flow_savepoint_rows(p_name text, p_savepoint text)
returns table (resource text, number bigint, whole boolean, frontier jsonb, state bytea, layout bigint, parts bytea[])
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  return query
  select s.resource, s.number, s.whole, s.frontier, s.state, s.layout, s.parts from fencepost.flow_savepoint s
  where s.flow = p_name and s.savepoint = p_savepoint order by s.resource, s.number;
end $$;

-- Begin a flow anew from a savepoint in p_groups key groups: p_resources and the arrays beside it have its checkpoints, whole chains, in
-- the order of the resources and numbered from 1 in each. The checkpoints of the groups of before are ended, not deleted: the numbers of
-- a task only grow, because sinks compare them. The shape changes in the same transaction, and with it the edition, so a worker of
-- the number before can commit nothing. p_parts has the parts of each checkpoint, as hexadecimal text: they were offered before
-- (flow_offer_part), and one that is gone raises not_found. Raises in_flight while a task is held or has a commit that is not finished, and mismatch when
-- the flow has no key groups. Takes the leases' row locks, in order of resource, so that no lease is acquired meanwhile, then the
-- savepoint's, then those of the resources, then the lock that every open commit shares, then the flow's row.
create or replace function fencepost.flow_regroup(
  p_name text, p_savepoint text, p_groups integer, p_resources text[], p_numbers bigint[], p_frontiers jsonb[], p_states bytea[],
  p_parts jsonb[] default null
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_held   fencepost.lease;
  v_now    timestamptz;
  v_open   text;
  v_flow   fencepost.flow;
  v_task   record;
  v_place  integer;
  v_number bigint;
  v_first  bigint;
  v_token  bigint;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('name', p_name, 128);
  perform fencepost._check_text('savepoint', p_savepoint, 128);
  if p_groups is null or p_groups not between 1 and 4096 then
    raise exception 'groups is %; allowed: from 1 to 4096.', p_groups using errcode = 'ZF100', detail = '{"field": "groups"}';
  end if;
  perform 1 from fencepost.lease l
  where l.resource >= fencepost._flow_prefix(p_name) and l.resource < fencepost._flow_behind(p_name)
  order by l.resource for update;
  perform pg_advisory_xact_lock(hashtextextended(p_name || '/' || p_savepoint, 6090));
  v_now := fencepost.clock();
  select * into v_held from fencepost.lease l
  where l.resource >= fencepost._flow_prefix(p_name) and l.resource < fencepost._flow_behind(p_name)
    and not starts_with(l.resource, fencepost._flow_prefix(p_name) || 'slot/') and l.owner is not null and l.expires_at > v_now
  order by l.resource limit 1;
  if found then
    perform fencepost._refuse('in_flight', 'flow', p_name, jsonb_build_object('savepoint', p_savepoint, 'op', 'regroup'),
                              fencepost._lease_seen(v_held, v_now) || jsonb_build_object('resource', v_held.resource));
  end if;
  -- Parts are named and deleted under the locks of their resources. An open commit has that lock before the next one.
  for v_task in select distinct t.resource from (
      select unnest(p_resources) as resource union all select p.resource from fencepost.flow_part p
      where p.resource >= fencepost._flow_prefix(p_name) and p.resource < fencepost._flow_behind(p_name)) t
      order by t.resource loop
    perform pg_advisory_xact_lock(hashtextextended(v_task.resource, 6089));
  end loop;
  -- Also for a task whose first lease is taken meanwhile: its commit needs this lock, and then another edition.
  perform pg_advisory_xact_lock(hashtextextended(p_name, 6092));
  select * into v_flow from fencepost.flow f where f.name = p_name for no key update;
  if not found or not exists (select 1 from fencepost.flow_savepoint s where s.flow = p_name and s.savepoint = p_savepoint) then
    perform fencepost._refuse('not_found', 'flow', p_name, jsonb_build_object('savepoint', p_savepoint, 'op', 'regroup'), null);
  end if;
  if v_flow.shape ->> 'units' is distinct from 'groups' or v_flow.shape ? 'stages' or (
      select count(distinct r.resource) from unnest(p_resources) r (resource)
      where r.resource in (select t from fencepost._flow_tasks(p_name, jsonb_set(v_flow.shape, '{groups}', to_jsonb(p_groups))) t))
      is distinct from p_groups then
    perform fencepost._refuse('mismatch', 'flow', p_name, jsonb_build_object('op', 'regroup', 'groups', p_groups),
                              jsonb_build_object('why', 'groups', 'shape', v_flow.shape - 'senders'));
  end if;
  -- What a sink has prepared, or has not been given yet, only a task of its own number of groups can end.
  v_open := (select c.resource from fencepost.checkpoint c where c.status in ('begun', 'stored')
             and c.resource >= fencepost._flow_prefix(p_name) and c.resource < fencepost._flow_behind(p_name)
             order by c.resource limit 1);
  if v_open is not null then
    perform fencepost._refuse('in_flight', 'flow', p_name, jsonb_build_object('savepoint', p_savepoint, 'op', 'regroup'),
                              jsonb_build_object('resource', v_open, 'why', 'unfinished'));
  end if;
  update fencepost.checkpoint c set status = 'aborted', frontier = null, state = null
  where c.status = 'committed' and c.resource >= fencepost._flow_prefix(p_name) and c.resource < fencepost._flow_behind(p_name);
  delete from fencepost.flow_state s
  where s.resource >= fencepost._flow_prefix(p_name) and s.resource < fencepost._flow_behind(p_name);
  delete from fencepost.flow_activity a
  where a.resource >= fencepost._flow_prefix(p_name) and a.resource < fencepost._flow_behind(p_name);
  for v_task in
    select r.resource, min(r.place)::integer as first, max(r.place)::integer as last,
           -- Up to here a sink that numbers checkpoints may have taken this task's: it has everything that the savepoint has.
           coalesce((select max(s.number) from fencepost.flow_savepoint s
                     where s.flow = p_name and s.savepoint = p_savepoint and s.resource = r.resource), 0) as origin
    from unnest(p_resources) with ordinality r (resource, place) group by r.resource order by r.resource
  loop
    v_number := fencepost.flow_number(v_task.resource);
    v_first := null;
    v_token := coalesce((select l.token from fencepost.lease l where l.resource = v_task.resource), 1);
    for v_place in v_task.first .. v_task.last loop
      v_number := v_number + 1;
      insert into fencepost.checkpoint (resource, number, token, status, whole, frontier, state, begun_at, stored_at, committed_at)
      values (v_task.resource, v_number, v_token, 'committed', p_numbers[v_place] = 1, p_frontiers[v_place], p_states[v_place],
              v_now, v_now, v_now);
      v_first := least(v_first, v_number);
      if p_parts is not null and p_parts[v_place] is not null then
        perform fencepost._flow_name_parts(v_task.resource, v_number, v_first, array(
          select decode(h, 'hex') from jsonb_array_elements_text(p_parts[v_place]) with ordinality e (h, place) order by place));
      end if;
    end loop;
    insert into fencepost.flow_return (resource, number, origin, asked, at)
    values (v_task.resource, v_number, least(v_task.origin, v_number - 1), true, v_now);
  end loop;
  update fencepost.flow f set edition = f.edition + 1, shape = jsonb_set(f.shape, '{groups}', to_jsonb(p_groups))
  where f.name = p_name;
  perform fencepost._flow_lay_back(p_name, p_savepoint, v_now);
  -- The groups of before name no parts any more; those of their savepoints stay.
  for v_task in select distinct p.resource from fencepost.flow_part p
                where p.resource >= fencepost._flow_prefix(p_name) and p.resource < fencepost._flow_behind(p_name)
                order by p.resource loop
    perform fencepost._flow_sweep_parts(v_task.resource);
  end loop;
  return cardinality(p_resources);
end $$;
