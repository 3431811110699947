-- Flows: one commit in one call, the frontiers of all tasks, and the requests of operators.
--
-- A task of a flow is a resource 'flow:<name>/<task>' with its own lease and checkpoints. Functions here are fenced only by that
-- lease's token.

-- The resources of a flow lie between these two texts: the column has the collation "C", so this is an index range.
create or replace function fencepost._flow_prefix(p_name text) returns text
language sql immutable
as $$ select 'flow:' || p_name || '/' $$;

create or replace function fencepost._flow_behind(p_name text) returns text
language sql immutable
as $$ select 'flow:' || p_name || '0' $$;

-- Why a flow of one shape cannot continue as another, or null when it can. Its tasks' frontiers record how far each unit has read
-- each sender: with other units, or with another source under a sender's name, they would be wrong.
create or replace function fencepost._flow_unfit(p_stored jsonb, p_given jsonb) returns jsonb
language sql immutable
as $$
  select case
    when p_stored is null or p_given is null then null
    when p_stored - '{senders,entrances}'::text[] is distinct from p_given - '{senders,entrances}'::text[] then
      jsonb_build_object('why', 'units', 'stored', p_stored - 'senders', 'given', p_given - 'senders')
    else (
      select u.unfit from (
        select jsonb_build_object('why', 'sender', 'sender', g.key, 'stored', s.value, 'given', g.value) as unfit
        from jsonb_each_text(p_stored -> 'senders') s join jsonb_each_text(p_given -> 'senders') g
          on g.key = s.key and g.value <> s.value
        union all
        -- The same source under another name would be read from its beginning.
        select jsonb_build_object('why', 'name', 'stored', s.key, 'given', g.key, 'reads', s.value)
        from jsonb_each_text(p_stored -> 'senders') s join jsonb_each_text(p_given -> 'senders') g
          on g.value = s.value and g.key <> s.key
        where not p_given -> 'senders' ? s.key and not p_stored -> 'senders' ? g.key
      ) u order by u.unfit limit 1)
  end
$$;

-- Register a flow, or update its plan; returns the edition under which its tasks commit. The plan's shape must fit what is stored:
-- another shape replaces it only while nothing is committed and no other worker holds anything of the flow, and ends the previous
-- edition. Its stateful steps must account for all stored state (_flow_lay_out). Raises mismatch otherwise, with both. Takes the row's
-- lock, and for another shape waits until every open commit has ended; served by the primary key.
create or replace function fencepost.flow_register(p_name text, p_plan jsonb, p_by text) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_shape jsonb;
  v_flow  fencepost.flow;
  v_unfit jsonb;
  v_held  text;
  v_layout bigint;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('name', p_name, 128);
  perform fencepost._check_json('plan', p_plan, 1048576);
  perform fencepost._check_text('by', p_by, 256);
  v_shape := p_plan -> 'shape';
  insert into fencepost.flow (name, plan, registered_at, registered_by, shape)
  values (p_name, p_plan, fencepost.clock(), p_by, v_shape) on conflict (name) do nothing;
  select * into v_flow from fencepost.flow f where f.name = p_name for no key update;
  v_unfit := fencepost._flow_unfit(v_flow.shape, v_shape);
  if v_unfit is not null then
    perform pg_advisory_xact_lock(hashtextextended(p_name, 6092));
    v_held := (select l.owner from fencepost.lease l
               where l.resource >= fencepost._flow_prefix(p_name) and l.resource < fencepost._flow_behind(p_name)
                 and l.owner is not null and l.owner <> p_by and l.expires_at > fencepost.clock()
               order by l.resource limit 1);
    if v_held is not null or exists (
      select 1 from fencepost.checkpoint c where c.status in ('stored', 'committed')
        and c.resource >= fencepost._flow_prefix(p_name) and c.resource < fencepost._flow_behind(p_name)) then
      perform fencepost._refuse('mismatch', 'flow', p_name, jsonb_build_object('op', 'register', 'by', p_by),
                                v_unfit || jsonb_build_object('held_by', v_held));
    end if;
    v_flow.edition := v_flow.edition + 1;
  else
    -- What a sender has read stays recorded, also while the graph does not use it.
    v_shape := coalesce(jsonb_set(v_shape, '{senders}', coalesce(v_flow.shape -> 'senders', '{}') || (v_shape -> 'senders')),
                        v_shape, v_flow.shape);
  end if;
  v_layout := fencepost._flow_lay_out(v_flow, p_plan, p_by);
  -- Records in channels name the graph's entrances by number.
  if v_unfit is null and (v_layout <> v_flow.layout or v_shape -> 'entrances' is distinct from v_flow.shape -> 'entrances')
      and not (v_flow.layout = 0 and v_flow.registered_by = p_by) then
    perform pg_advisory_xact_lock(hashtextextended(p_name, 6092));
    v_flow.edition := v_flow.edition + 1;
  end if;
  update fencepost.flow f set plan = p_plan, registered_at = fencepost.clock(), registered_by = p_by, shape = v_shape,
    edition = v_flow.edition, layout = v_layout
  where f.name = p_name;
  return v_flow.edition;
end $$;

-- Prevents another shape from replacing the flow's until the end of the transaction. Raises mismatch when one has. Called after the
-- fence of the task's lease, which bounds how long a stalled holder keeps the lock.
create or replace function fencepost._flow_fence(p_resource text, p_edition bigint) returns void
language plpgsql volatile
as $$
declare
  v_name    text := split_part(substr(p_resource, 6), '/', 1);
  v_edition bigint;
begin
  perform pg_advisory_xact_lock_shared(hashtextextended(v_name, 6092));
  v_edition := (select f.edition from fencepost.flow f where f.name = v_name);
  if v_edition is distinct from p_edition then
    perform fencepost._refuse('mismatch', 'flow', v_name, jsonb_build_object('op', 'commit', 'edition', p_edition),
                              jsonb_build_object('why', 'edition', 'edition', v_edition));
  end if;
end $$;

-- Whether a flow still has an edition, for a task that commits nothing. Raises mismatch when not.
create or replace function fencepost.flow_check_edition(p_name text, p_edition bigint) returns void
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_edition bigint := (select f.edition from fencepost.flow f where f.name = p_name);
begin
  if v_edition is distinct from p_edition then
    perform fencepost._refuse('mismatch', 'flow', p_name, jsonb_build_object('op', 'send', 'edition', p_edition),
                              jsonb_build_object('why', 'edition', 'edition', v_edition));
  end if;
end $$;

-- Ask the workers of a flow to release it, or withdraw that request. Raises not_found.
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

-- Ask every task of a flow for a commit; returns the time of the request. Raises not_found.
create or replace function fencepost.flow_ask(p_name text) returns timestamptz
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_at timestamptz;
begin
  perform fencepost._check_text('name', p_name, 128);
  update fencepost.flow f set commit_asked_at = greatest(f.commit_asked_at, fencepost.clock()) where f.name = p_name
  returning f.commit_asked_at into v_at;
  if not found then
    perform fencepost._refuse('not_found', 'flow', p_name, jsonb_build_object('op', 'ask'), null);
  end if;
  return v_at;
end $$;

-- The tasks that are held and have finished no commit since p_since, whatever they have begun after it. Shuffle senders commit
-- nothing. One index probe per task (the checkpoint's primary key).
create or replace function fencepost.flow_unanswered(p_name text, p_since timestamptz) returns setof text
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  return query
  select h.resource from fencepost.flow_holders(p_name) h left join lateral (
    select c.stored_at from fencepost.checkpoint c where c.resource = h.resource and c.status = 'committed'
    order by c.number desc limit 1) n on true
  where h.held and not starts_with(h.resource, fencepost._flow_prefix(p_name) || 'slot/')
    and not starts_with(h.resource, fencepost._flow_prefix(p_name) || 'source/')
    and (n.stored_at is null or n.stored_at < p_since)
  order by h.resource;
end $$;

-- A whole commit of a task: fence, a new checkpoint with state and frontier, flagged as committed. Called inside the
-- transaction that also writes the sinks' rows. Raises mismatch when another frontier than p_expected is durable, or another
-- edition of the flow is registered. Locks as checkpoint_store does. Returns the number. A worker of the previous version knows no
-- edition: it continues until the flow gets its second.
create or replace function fencepost.flow_commit(
  p_resource text, p_token bigint, p_expected jsonb, p_frontier jsonb, p_state bytea, p_whole boolean, p_edition bigint default 1
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_number bigint;
begin
  v_number := fencepost.checkpoint_begin(p_resource, p_token);
  perform fencepost._flow_fence(p_resource, p_edition);
  perform fencepost.checkpoint_store(p_resource, p_token, v_number, p_expected, p_frontier, p_state, '[]', p_whole);
  perform fencepost.checkpoint_commit(p_resource, p_token, v_number);
  return v_number;
end $$;

-- The same for a checkpoint that was begun and whose sinks are written after it: it is durable when this commits.
create or replace function fencepost.flow_store(
  p_resource text, p_token bigint, p_number bigint, p_expected jsonb, p_frontier jsonb, p_state bytea, p_handles jsonb,
  p_whole boolean, p_edition bigint
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost.checkpoint_store(p_resource, p_token, p_number, p_expected, p_frontier, p_state, p_handles, p_whole);
  perform fencepost._flow_fence(p_resource, p_edition);
end $$;

-- The highest number that a task's checkpoints ever had, aborted ones too; 0 for none.
create or replace function fencepost.flow_number(p_resource text) returns bigint
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select coalesce((select c.number from fencepost.checkpoint c where c.resource = p_resource
                   order by c.number desc limit 1), 0)
$$;

-- The newest durable frontier of every task. One index probe per task (checkpoint_durable).
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
    select c.resource, c.number, c.status, c.frontier, c.stored_at,
           nullif(coalesce(octet_length(c.state), 0)
                  + coalesce((select s.bytes from fencepost.flow_state s
                              where s.resource = c.resource and s.number = c.number), 0), 0) as state_bytes
      into v_found from fencepost.checkpoint c
    where c.status in ('stored', 'committed') and c.resource > v_last and c.resource < fencepost._flow_behind(p_name)
    order by c.resource, c.number desc limit 1;
    exit when not found;
    v_last := v_found.resource;
    return query select v_found.resource, v_found.number, v_found.status, v_found.frontier, v_found.stored_at,
                        v_found.state_bytes;
  end loop;
end $$;

-- The holder of each task, and the workers (their slots). Served by the lease's primary key.
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

create or replace view fencepost.flows as
  select f.name, f.plan, f.registered_at, f.registered_by, f.draining_at, f.shape, f.commit_asked_at from fencepost.flow f;
