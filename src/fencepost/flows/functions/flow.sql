-- Flows: one commit in one call, the frontiers of all tasks, and what operators ask for.
--
-- A task of a flow is a resource 'flow:<name>/<task>' with a lease and checkpoints of its own. Nothing here is
-- fenced by anything but that lease's token.

-- The resources of a flow lie between these two texts: the column has the collation "C", so this is an index range.
create or replace function fencepost._flow_prefix(p_name text) returns text
language sql immutable
as $$ select 'flow:' || p_name || '/' $$;

create or replace function fencepost._flow_behind(p_name text) returns text
language sql immutable
as $$ select 'flow:' || p_name || '0' $$;

-- Make a flow known, or its plan anew. Takes the row's lock; served by the primary key.
create or replace function fencepost.flow_register(p_name text, p_plan jsonb, p_by text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._check_text('name', p_name, 128);
  perform fencepost._check_json('plan', p_plan, 1048576);
  perform fencepost._check_text('by', p_by, 256);
  insert into fencepost.flow (name, plan, registered_at, registered_by)
  values (p_name, p_plan, fencepost.clock(), p_by)
  on conflict (name) do update set plan = excluded.plan, registered_at = excluded.registered_at,
    registered_by = excluded.registered_by;
end $$;

-- Ask the workers of a flow to let go of it, or take that back. Raises not_found.
create or replace function fencepost.flow_drain(p_name text, p_draining boolean) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._check_text('name', p_name, 128);
  update fencepost.flow f set draining_at = case when p_draining then coalesce(f.draining_at, fencepost.clock()) end
  where f.name = p_name;
  if not found then
    perform fencepost._refuse('not_found', 'flow', p_name, jsonb_build_object('op', 'drain'), null);
  end if;
end $$;

-- A whole commit of a task: fence, a new checkpoint with state and frontier, flagged as committed. Called inside the
-- transaction that also writes the sinks' rows. Raises mismatch when another frontier than p_expected is durable.
-- Locks as checkpoint_store does. Answers the number.
create or replace function fencepost.flow_commit(
  p_resource text, p_token bigint, p_expected jsonb, p_frontier jsonb, p_state bytea, p_whole boolean
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_number bigint;
begin
  v_number := fencepost.checkpoint_begin(p_resource, p_token);
  perform fencepost.checkpoint_store(p_resource, p_token, v_number, p_expected, p_frontier, p_state, '[]', p_whole);
  perform fencepost.checkpoint_commit(p_resource, p_token, v_number);
  return v_number;
end $$;

-- The highest number that a task's checkpoints ever had, aborted ones too; 0 for none.
create or replace function fencepost.flow_number(p_resource text) returns bigint
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select coalesce((select c.number from fencepost.checkpoint c where c.resource = p_resource
                   order by c.number desc limit 1), 0)
$$;

-- The newest durable frontier of every task. One index probe a task (checkpoint_durable).
create or replace function fencepost.flow_frontiers(p_name text)
returns table (resource text, number bigint, status text, frontier jsonb, stored_at timestamptz, state_bytes bigint)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_found record;
  v_last  text := fencepost._flow_prefix(p_name);
begin
  loop
    select c.resource, c.number, c.status, c.frontier, c.stored_at, octet_length(c.state)::bigint as state_bytes
      into v_found from fencepost.checkpoint c
    where c.status in ('stored', 'committed') and c.resource > v_last and c.resource < fencepost._flow_behind(p_name)
    order by c.resource, c.number desc limit 1;
    exit when not found;
    v_last := v_found.resource;
    return query select v_found.resource, v_found.number, v_found.status, v_found.frontier, v_found.stored_at,
                        v_found.state_bytes;
  end loop;
end $$;

-- Who holds which task, and which workers there are (seats). Served by the lease's primary key.
create or replace function fencepost.flow_holders(p_name text)
returns table (resource text, owner text, token bigint, held boolean, expires_at timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := fencepost.clock();
begin
  return query
  select l.resource, l.owner, l.token, l.owner is not null and l.expires_at > v_now, l.expires_at from fencepost.lease l
  where l.resource >= fencepost._flow_prefix(p_name) and l.resource < fencepost._flow_behind(p_name)
  order by l.resource;
end $$;

-- Copy the newest durable checkpoint of every task under a name. No barrier: each task's commit is consistent by itself
-- with the frontier that it carries, and that is what a restore needs. Raises duplicate for a name that is taken.
create or replace function fencepost.flow_save(p_name text, p_savepoint text) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_found record;
  v_whole bigint;
  v_count bigint := 0;
begin
  perform fencepost._check_text('name', p_name, 128);
  perform fencepost._check_text('savepoint', p_savepoint, 128);
  perform pg_advisory_xact_lock(hashtextextended(p_name || '/' || p_savepoint, 6090));
  if exists (select 1 from fencepost.flow_savepoint s where s.flow = p_name and s.savepoint = p_savepoint) then
    perform fencepost._refuse('duplicate', 'flow', p_name, jsonb_build_object('savepoint', p_savepoint), null);
  end if;
  for v_found in select f.resource, f.number from fencepost.flow_frontiers(p_name) f loop
    v_whole := (select c.number from fencepost.checkpoint c where c.resource = v_found.resource and c.whole
                and c.status in ('stored', 'committed') and c.number <= v_found.number order by c.number desc limit 1);
    insert into fencepost.flow_savepoint (flow, savepoint, resource, number, whole, frontier, state, made_at)
    select p_name, p_savepoint, c.resource, c.number, c.whole, c.frontier, c.state, fencepost.clock()
    from fencepost.checkpoint c
    where c.resource = v_found.resource and c.status in ('stored', 'committed') and c.number between v_whole and v_found.number;
    v_count := v_count + 1;
  end loop;
  return v_count;
end $$;

-- Put every task back to a savepoint: its rows become the newest checkpoints, whole chains and committed. Refused with
-- in_flight while anybody holds a task. Takes the leases' row locks, in order of resource, so nobody acquires meanwhile.
create or replace function fencepost.flow_restore(p_name text, p_savepoint text) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_held  fencepost.lease;
  v_now   timestamptz;
  v_row   fencepost.flow_savepoint;
  v_count bigint := 0;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('name', p_name, 128);
  perform fencepost._check_text('savepoint', p_savepoint, 128);
  perform 1 from fencepost.lease l
  where l.resource >= fencepost._flow_prefix(p_name) and l.resource < fencepost._flow_behind(p_name)
  order by l.resource for update;
  v_now := fencepost.clock();
  select * into v_held from fencepost.lease l
  where l.resource >= fencepost._flow_prefix(p_name) and l.resource < fencepost._flow_behind(p_name)
    and l.resource not like '%/seat/%' and l.owner is not null and l.expires_at > v_now
  order by l.resource limit 1;
  if found then
    perform fencepost._refuse('in_flight', 'flow', p_name, jsonb_build_object('savepoint', p_savepoint),
                              fencepost._lease_seen(v_held, v_now) || jsonb_build_object('resource', v_held.resource));
  end if;
  -- A task that the savepoint does not have begins anew: its checkpoints would be of another time.
  delete from fencepost.checkpoint c
  where c.resource >= fencepost._flow_prefix(p_name) and c.resource < fencepost._flow_behind(p_name)
    and not exists (select 1 from fencepost.flow_savepoint s where s.flow = p_name and s.savepoint = p_savepoint
                    and s.resource = c.resource);
  for v_row in select * from fencepost.flow_savepoint s where s.flow = p_name and s.savepoint = p_savepoint
               order by s.resource, s.number loop
    insert into fencepost.checkpoint (resource, number, token, status, whole, frontier, state, begun_at, stored_at, committed_at)
    select v_row.resource, fencepost.flow_number(v_row.resource) + 1, coalesce((select l.token from fencepost.lease l
      where l.resource = v_row.resource), 1), 'committed', v_row.whole, v_row.frontier, v_row.state, v_now, v_now, v_now;
    v_count := v_count + 1;
  end loop;
  if v_count = 0 then
    perform fencepost._refuse('not_found', 'flow', p_name, jsonb_build_object('savepoint', p_savepoint), null);
  end if;
  return v_count;
end $$;

-- Put a task back to an older checkpoint of its own, because a sink has lost what came after it. Answers the new number;
-- raises not_found when that checkpoint is no longer kept. p_number 0 begins anew.
create or replace function fencepost.flow_rewind(p_resource text, p_token bigint, p_number bigint) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_whole  bigint;
  v_row    fencepost.checkpoint;
  v_newest bigint;
begin
  perform fencepost.lease_fence(p_resource, p_token);
  perform pg_advisory_xact_lock(hashtextextended(p_resource, 6089));
  v_newest := fencepost.flow_number(p_resource);
  if p_number = 0 then
    insert into fencepost.checkpoint (resource, number, token, status, whole, frontier, begun_at, stored_at, committed_at)
    values (p_resource, v_newest + 1, p_token, 'committed', true, '{}', fencepost.clock(), fencepost.clock(), fencepost.clock());
    return v_newest + 1;
  end if;
  v_whole := (select c.number from fencepost.checkpoint c where c.resource = p_resource and c.whole
              and c.status in ('stored', 'committed') and c.number <= p_number order by c.number desc limit 1);
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
  end loop;
  return v_newest;
end $$;

create or replace view fencepost.flows as
  select f.name, f.plan, f.registered_at, f.registered_by, f.draining_at from fencepost.flow f;

create or replace view fencepost.flow_savepoints as
  select s.flow, s.savepoint, count(distinct s.resource) as tasks, sum(octet_length(s.state)) as state_bytes, min(s.made_at) as made_at
  from fencepost.flow_savepoint s group by s.flow, s.savepoint;
