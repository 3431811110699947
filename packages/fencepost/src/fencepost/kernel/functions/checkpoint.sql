-- Checkpoints: state, frontier and sink handles of a resource change together, fenced by the token of its
-- lease.
--
--   from        event    to          guard
--   (none)      begin    begun       the lease's token
--   begun       store    stored      the token; the frontier that was expected is still the newest durable one
--   stored      commit   committed   the token
--   committed   commit   committed   the token: a repeat is no error, because recovery repeats it
--   begun       abort    aborted     the token
--
-- Durable means stored or committed: recovery restores the newest durable one, commits its handles, and
-- aborts the handles of those that were begun and not stored. committed is a hint that the commit need not be
-- repeated.

create or replace function fencepost._checkpoint_fence(p_resource text, p_token bigint) returns void
language plpgsql volatile
as $$
begin
  perform fencepost._check_text('resource', p_resource, 512);
  perform fencepost.lease_fence(p_resource, p_token);
end $$;

create or replace function fencepost._checkpoint_refuse(
  p_reason text, p_resource text, p_number bigint, p_token bigint, p_op text, p_seen jsonb
) returns void
language sql volatile
as $$
  select fencepost._refuse(p_reason, 'checkpoint', p_resource || '#' || p_number,
                           jsonb_build_object('token', p_token, 'op', p_op), p_seen)
$$;

-- Begin the next checkpoint; returns its number. Handles that a sink opened for it are stored from here on,
-- so that they can be aborted if it is never stored.
create or replace function fencepost.checkpoint_begin(p_resource text, p_token bigint, p_handles jsonb default '[]')
returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_number bigint;
begin
  perform fencepost._checkpoint_fence(p_resource, p_token);
  perform fencepost._check_json('handles', p_handles, 1048576);
  -- The fence admits several transactions of one holder: the number is assigned under its own lock.
  perform pg_advisory_xact_lock(hashtextextended(p_resource, 6089));
  v_number := coalesce((select c.number from fencepost.checkpoint c where c.resource = p_resource
                        order by c.number desc limit 1), 0) + 1;
  insert into fencepost.checkpoint (resource, number, token, status, handles, begun_at)
  values (p_resource, v_number, p_token, 'begun', coalesce(p_handles, '[]'), fencepost.clock());
  return v_number;
end $$;

-- Store: the checkpoint is durable when this commits. p_expected is the frontier that the caller started from (null for
-- the first): if another one is durable by now, raises mismatch. p_whole false: p_state is a change against the
-- checkpoint before it.
create or replace function fencepost.checkpoint_store(
  p_resource text, p_token bigint, p_number bigint, p_expected jsonb, p_frontier jsonb, p_state bytea,
  p_handles jsonb default '[]', p_whole boolean default true
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_mine  fencepost.checkpoint;
  v_newest fencepost.checkpoint;
begin
  perform fencepost._checkpoint_fence(p_resource, p_token);
  perform fencepost._check_json('frontier', p_frontier, 1048576);
  perform fencepost._check_json('handles', p_handles, 1048576);
  if p_frontier is null then
    raise exception 'frontier must not be null.' using errcode = 'ZF100', detail = '{"field": "frontier"}';
  end if;
  if p_whole is null then
    raise exception 'whole must not be null.' using errcode = 'ZF100', detail = '{"field": "whole"}';
  end if;
  if octet_length(p_state) > 268435456 then
    raise exception 'state has % bytes; at most 268435456 are allowed.', octet_length(p_state)
      using errcode = 'ZF100', detail = '{"field": "state"}';
  end if;
  perform pg_advisory_xact_lock(hashtextextended(p_resource, 6089));
  select * into v_mine from fencepost.checkpoint c where c.resource = p_resource and c.number = p_number for update;
  if not found then
    perform fencepost._checkpoint_refuse('not_found', p_resource, p_number, p_token, 'store', null);
  end if;
  if v_mine.status <> 'begun' then
    perform fencepost._checkpoint_refuse('already_finished', p_resource, p_number, p_token, 'store',
                                         jsonb_build_object('status', v_mine.status, 'token', v_mine.token));
  end if;
  if v_mine.token <> p_token then
    perform fencepost._checkpoint_refuse('not_owner', p_resource, p_number, p_token, 'store',
                                         jsonb_build_object('status', v_mine.status, 'token', v_mine.token));
  end if;
  select * into v_newest from fencepost.checkpoint c
  where c.resource = p_resource and c.status in ('stored', 'committed') order by c.number desc limit 1;
  if v_newest.frontier is distinct from p_expected or v_newest.number > p_number then
    perform fencepost._checkpoint_refuse('mismatch', p_resource, p_number, p_token, 'store',
      jsonb_build_object('expected', p_expected, 'frontier', v_newest.frontier, 'number', v_newest.number));
  end if;
  if not p_whole and v_newest.number is null then
    raise exception 'state is a change, but there is no checkpoint that it could change.'
      using errcode = 'ZF100', detail = '{"field": "whole"}';
  end if;
  update fencepost.checkpoint c
  set status = 'stored', whole = p_whole, frontier = p_frontier, state = p_state, handles = coalesce(p_handles, '[]'),
      stored_at = fencepost.clock()
  where c.resource = p_resource and c.number = p_number;
end $$;

-- Record that the sinks have committed the handles of this checkpoint. A repeat is no error.
create or replace function fencepost.checkpoint_commit(p_resource text, p_token bigint, p_number bigint) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_mine fencepost.checkpoint;
begin
  perform fencepost._checkpoint_fence(p_resource, p_token);
  select * into v_mine from fencepost.checkpoint c where c.resource = p_resource and c.number = p_number for update;
  if v_mine.status is null or v_mine.status not in ('stored', 'committed') then
    perform fencepost._checkpoint_refuse(case when v_mine.status is null then 'not_found' else 'mismatch' end, p_resource,
      p_number, p_token, 'commit', jsonb_build_object('status', v_mine.status));
  end if;
  update fencepost.checkpoint c set status = 'committed', committed_at = coalesce(c.committed_at, fencepost.clock())
  where c.resource = p_resource and c.number = p_number and c.status = 'stored';
end $$;

-- Abort a checkpoint that was begun and will never be stored. A repeat is no error; a durable one is refused.
create or replace function fencepost.checkpoint_abort(p_resource text, p_token bigint, p_number bigint) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_mine fencepost.checkpoint;
begin
  perform fencepost._checkpoint_fence(p_resource, p_token);
  select * into v_mine from fencepost.checkpoint c where c.resource = p_resource and c.number = p_number for update;
  if v_mine.status is null or v_mine.status not in ('begun', 'aborted') then
    perform fencepost._checkpoint_refuse(case when v_mine.status is null then 'not_found' else 'already_finished' end,
      p_resource, p_number, p_token, 'abort', jsonb_build_object('status', v_mine.status));
  end if;
  update fencepost.checkpoint c set status = 'aborted' where c.resource = p_resource and c.number = p_number;
end $$;

-- Everything that a new owner needs, in one read: the newest durable checkpoint with the changes that lead to
-- it, oldest first, and after them the ones that were begun and never stored. Fenced, so that none is stored
-- meanwhile.
create or replace function fencepost.checkpoint_restore(p_resource text, p_token bigint)
returns table (number bigint, status text, whole boolean, frontier jsonb, state bytea, handles jsonb)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_whole bigint;
begin
  perform fencepost._checkpoint_fence(p_resource, p_token);
  v_whole := (select c.number from fencepost.checkpoint c
              where c.resource = p_resource and c.status in ('stored', 'committed') and c.whole
              order by c.number desc limit 1);
  return query
  -- Two arms, each with its own index: with an OR the whole history of the resource would be read.
  select * from (
    select c.number, c.status, c.whole, c.frontier, c.state, c.handles from fencepost.checkpoint c
    where c.resource = p_resource and c.status in ('stored', 'committed') and c.number >= v_whole
    union all
    select c.number, c.status, c.whole, c.frontier, c.state, c.handles from fencepost.checkpoint c
    where c.resource = p_resource and c.status = 'begun'
  ) needed
  order by needed.status = 'begun', needed.number;
end $$;

-- Delete all but what a restore needs and the newest p_keep committed ones; returns how many.
create or replace function fencepost.checkpoint_prune(p_resource text, p_token bigint, p_keep integer) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_floor bigint;
  v_count bigint;
begin
  perform fencepost._checkpoint_fence(p_resource, p_token);
  if p_keep is null or p_keep < 1 then
    raise exception 'keep is %; at least 1 checkpoint must be kept.', coalesce(p_keep::text, 'null')
      using errcode = 'ZF100', detail = '{"field": "keep"}';
  end if;
  -- The oldest of the kept ones, then from it back to the whole state that it builds on.
  v_floor := (select min(k.number) from (select c.number from fencepost.checkpoint c
    where c.resource = p_resource and c.status in ('stored', 'committed') order by c.number desc limit p_keep) k);
  v_floor := (select c.number from fencepost.checkpoint c where c.resource = p_resource and c.number <= v_floor
              and c.status in ('stored', 'committed') and c.whole order by c.number desc limit 1);
  delete from fencepost.checkpoint c
  where c.resource = p_resource and c.number < v_floor and c.status <> 'begun';
  get diagnostics v_count = row_count;
  return v_count;
end $$;
