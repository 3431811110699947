-- The only way to change a player. A plan is a list of parties, each a player and a change; it was made
-- without a lock, so everything it rests on is checked again here, on locked rows. It does not rest on the
-- version: it is applied to the version that the locked row has, and the response contains that version.
--
-- Locks, in this order: the request's idempotency key; the players' rows FOR UPDATE in order of id; their
-- details; the audit. Two mutations that name the same players in opposite order wait for the same first row
-- and cannot deadlock.
--
-- Returns claimed (done), replay, duplicate, mismatch or in_flight. Raises ZF111, ZF112 (mutation.sql),
-- too_old and not_found; then nothing was written, the idempotency key included. Every access is by a primary
-- key.
--
-- p_version is the version that the caller expects; with p_is_strict, which the previous release uses,
-- another version raises ZF110. p_response contains "version":null where the version belongs. p_keep and
-- p_is_ordered: mutation.sql.
create or replace function fencepost._player_execute(
  p_scope text, p_key text, p_digest text, p_response text, p_method text, p_actor text, p_version bigint, p_plan jsonb,
  p_keep interval, p_is_ordered boolean, p_is_strict boolean,
  out outcome text, out response json, out version bigint
) language plpgsql volatile
as $$
declare
  v_players text[] := array(select distinct x ->> 'player' from jsonb_array_elements(p_plan -> 'parties') x order by 1);
  v_acting  text := p_plan #>> '{parties,0,player}';
  v_party   jsonb;
begin
  -- Usually the version is the expected one, and the response is stored with the idempotency key in one
  -- write.
  version := coalesce(p_version, 0) + 1;
  select c.outcome, c.response into outcome, response
  from fencepost._mutation_claim(p_scope, p_key, p_digest, fencepost._mutation_response(p_response, version), p_keep,
                                 p_is_ordered) c;
  if outcome <> 'claimed' then
    version := null;
    return;
  end if;
  perform fencepost._check_text('method', p_method, 128);
  if p_key is not null and (p_plan -> 'chance')::boolean then
    perform fencepost._mutation_check_seed(p_scope, p_key, p_digest, p_plan ->> 'seed');
  end if;
  -- Only a caller with its own transaction can idle in here: for ten seconds at most.
  perform fencepost._bound_idle_time(fencepost._player_hold_max());
  if (p_plan -> 'create')::boolean then
    perform fencepost._player_create(v_acting);
  else
    version := fencepost._player_lock(v_players, v_acting, p_version, p_is_strict);
  end if;
  if version <> coalesce(p_version, 0) + 1 and p_response is not null then
    response := fencepost._mutation_response(p_response, version);
    update fencepost.idempotency_key m set response = fencepost._mutation_response(p_response, version)::json
    where m.scope = p_scope and m.key = p_key and m.claimed_by = pg_current_xact_id();
  end if;
  for v_party in select x from jsonb_array_elements(p_plan -> 'parties') x loop
    perform fencepost._player_distribute(v_party ->> 'player', v_party -> 'change', p_method, p_key,
      coalesce(p_plan ->> 'source', p_method), p_actor, p_plan ->> 'seed');
  end loop;
end $$;

-- One mutation. It waits for its players' rows, and longer than a transaction may hold them
-- (player_hold.sql): so the caller has time to terminate a holder past the limit.
create or replace function fencepost.player_execute(
  p_scope text, p_key text, p_digest text, p_response text, p_method text, p_actor text, p_version bigint, p_plan jsonb,
  p_keep interval, p_is_ordered boolean
) returns table (outcome text, response json, version bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, fencepost, pg_temp set lock_timeout = '30s'
as $$
begin
  return query select * from fencepost._player_execute(p_scope, p_key, p_digest, p_response, p_method, p_actor, p_version,
    p_plan, p_keep, p_is_ordered, false);
end $$;

-- The same with the signature of the previous release: for exactly the version in the response.
create or replace function fencepost.player_execute(
  p_scope text, p_key text, p_digest text, p_response jsonb, p_method text, p_actor text, p_version bigint, p_plan jsonb
) returns table (outcome text, response jsonb)
language plpgsql volatile security definer
set search_path = pg_catalog, fencepost, pg_temp set lock_timeout = '30s'
as $$
begin
  return query select e.outcome, e.response::jsonb
               from fencepost._player_execute(p_scope, p_key, p_digest, p_response::text, p_method, p_actor, p_version, p_plan,
                                              null, false, true) e;
end $$;

-- Many mutations with one commit. Mutations that only change amounts, which most do, are done by a few
-- statements for all; the rest, and all of them when any is blocked, one by one. Each of those is rolled back
-- alone when it cannot be executed, and then has no row in the result: the caller executes it alone, where it
-- may wait and gets its reason; or its outcome is stale, when it must be planned again. Nothing here waits
-- for a row longer than a moment, so one held row does not delay the others; and because a wait is given up
-- long before deadlock detection would start, two batches that lock in opposite order release each other.
-- p_waits: all of them are of one player, whose row may be waited for a little longer.
create or replace function fencepost._player_execute_many(
  p_scopes text[], p_keys text[], p_digests text[], p_responses text[], p_methods text[], p_actors text[], p_versions bigint[],
  p_plans jsonb[], p_keep interval, p_is_ordered boolean, p_is_strict boolean, p_waits boolean
) returns table (place bigint, outcome text, response json, version bigint)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_done     bigint[] := '{}';
  v_versions bigint[];
  v_detail   text;
  v          record;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_lengths('keys', cardinality(p_scopes), cardinality(p_keys));
  perform fencepost._check_lengths('digests', cardinality(p_scopes), cardinality(p_digests));
  perform fencepost._check_lengths('responses', cardinality(p_scopes), cardinality(p_responses));
  perform fencepost._check_lengths('methods', cardinality(p_scopes), cardinality(p_methods));
  perform fencepost._check_lengths('actors', cardinality(p_scopes), cardinality(p_actors));
  perform fencepost._check_lengths('versions', cardinality(p_scopes), cardinality(p_versions));
  perform fencepost._check_lengths('plans', cardinality(p_scopes), cardinality(p_plans));
  begin
    if p_waits then
      perform set_config('lock_timeout', '50ms', true);
    end if;
    select coalesce(array_agg(d.place), '{}'), array_agg(d.version) into v_done, v_versions
    from fencepost._player_execute_amounts(p_scopes, p_keys, p_digests, p_responses, p_methods, p_actors, p_versions, p_plans,
                                           p_keep, p_is_ordered, p_is_strict, p_waits) d;
  exception when others then
    v_done := '{}'; -- All rolled back, with their idempotency keys: a row is held, or a plan does not fit.
  end;
  return query select d.place, 'claimed', fencepost._mutation_response(p_responses[d.place], d.version)::json, d.version
               from unnest(v_done, v_versions) d (place, version);
  if cardinality(v_done) = cardinality(p_scopes) then
    return;
  end if;
  perform set_config('lock_timeout', '2ms', true);
  for v in
    select a.* from unnest(p_scopes, p_keys, p_digests, p_responses, p_methods, p_actors, p_versions, p_plans)
      with ordinality a (scope, key, digest, response, method, actor, version, plan, place)
    where a.place <> all (v_done) order by a.scope, a.place
  loop
    -- A request that names a missing player is refused, and a refusal counts once: when it is executed alone.
    continue when not coalesce((v.plan -> 'create')::boolean, false) and (
      p_is_strict and v.version is null or exists (
        select 1 from jsonb_array_elements(v.plan -> 'parties') x
        where not exists (select 1 from fencepost.player p where p.player_id = x ->> 'player')));
    begin
      select e.outcome, e.response, e.version into outcome, response, version
      from fencepost._player_execute(v.scope, v.key, v.digest, v.response, v.method, v.actor, v.version, v.plan, p_keep,
                                     p_is_ordered, p_is_strict) e;
      place := v.place;
      return next;
    exception
      when sqlstate 'ZF112' then
        if not p_is_strict then
          get stacked diagnostics v_detail = pg_exception_detail;
          place := v.place;
          outcome := 'stale';
          response := v_detail::json;
          version := null;
          return next;
        end if;
      when others then
        null; -- Rolled back, with its idempotency key: it has no row in the result.
    end;
  end loop;
end $$;

-- The public form of the same.
create or replace function fencepost.player_execute_many(
  p_scopes text[], p_keys text[], p_digests text[], p_responses text[], p_methods text[], p_actors text[], p_versions bigint[],
  p_plans jsonb[], p_keep interval, p_is_ordered boolean, p_waits boolean
) returns table (place bigint, outcome text, response json, version bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, fencepost, pg_temp set lock_timeout = '2ms'
as $$
begin
  return query select * from fencepost._player_execute_many(p_scopes, p_keys, p_digests, p_responses, p_methods, p_actors,
    p_versions, p_plans, p_keep, p_is_ordered, false, p_waits);
end $$;

-- The same with the signature of the previous release.
create or replace function fencepost.player_execute_many(
  p_scopes text[], p_keys text[], p_digests text[], p_responses jsonb[], p_methods text[], p_actors text[], p_versions bigint[],
  p_plans jsonb[]
) returns table (place bigint, outcome text, response jsonb)
language plpgsql volatile security definer
set search_path = pg_catalog, fencepost, pg_temp set lock_timeout = '2ms'
as $$
begin
  return query select e.place, e.outcome, e.response::jsonb
               from fencepost._player_execute_many(p_scopes, p_keys, p_digests, p_responses::text[], p_methods, p_actors,
                                                   p_versions, p_plans, null, false, true, false) e;
end $$;

-- Executes together those of many mutations that change amounts of one player each; returns the places of
-- those that are done, and the version that each made. In the player's own scope; several of one player
-- follow each other in order of place. A mutation whose idempotency key exists already, or is being claimed,
-- is left out before anything is locked, and so is the copy of a request in the same batch. Any other
-- obstacle raises, and rolls all of it back. The locks are taken in the usual order: idempotency keys,
-- players in order of id, details, audit.
create or replace function fencepost._player_execute_amounts(
  p_scopes text[], p_keys text[], p_digests text[], p_responses text[], p_methods text[], p_actors text[], p_versions bigint[],
  p_plans jsonb[], p_keep interval, p_is_ordered boolean, p_is_strict boolean, p_waits boolean
) returns table (place bigint, version bigint)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_now      timestamptz := fencepost.clock();
  v_places   bigint[];
  v_players  text[];
  v_changes  jsonb[];
  v_versions bigint[];
  v_fresh    bigint[];
  v_count    bigint;
begin
  select array_agg(f.place order by f.place), array_agg(f.player order by f.place), array_agg(f.change order by f.place)
  into v_places, v_players, v_changes
  from (select f.place, f.player, f.change, row_number() over (partition by f.player order by f.place) as number,
               row_number() over (partition by f.scope, f.key order by f.place) as copy
        from (select a.place, a.scope, a.key, a.plan #>> '{parties,0,player}' as player,
                     a.plan #> '{parties,0,change}' as change
              from unnest(p_scopes, p_keys, p_versions, p_plans) with ordinality a (scope, key, version, plan, place)
              where a.key is not null and a.version is not null and not coalesce((a.plan -> 'create')::boolean, false)
                and jsonb_array_length(a.plan -> 'parties') = 1
                and not (coalesce((a.plan -> 'chance')::boolean, false) and exists (
                  select from fencepost.mutation_seed d where d.scope = a.scope and d.key = a.key))) f
        where f.change - '{resources,stacks,paid}'::text[] = '{}' and f.scope = 'player:' || f.player) f
  where f.copy = 1 and (f.number = 1 or not p_is_strict);
  if v_places is null then
    return;
  end if;
  perform fencepost._idempotency_check(p_scopes[f], p_keys[f], p_digests[f], p_responses[f]) from unnest(v_places) f;
  perform fencepost._check_text('method', p_methods[f], 128) from unnest(v_places) f;

  with free as materialized (
    select f, p_scopes[f] as scope, p_keys[f] as key, p_digests[f] as digest,
           fencepost._mutation_response(p_responses[f], p_versions[f] + 1)::json as response,
           case when p_is_ordered then fencepost._mutation_key_time(p_keys[f]) end as key_time
    from unnest(v_places) f where fencepost._idempotency_lock(p_scopes[f], p_keys[f])
  ), fresh as (
    insert into fencepost.idempotency_key (scope, key, digest, response, claimed_by, claimed_at, expires_at)
    select f.scope, f.key, f.digest, f.response, pg_current_xact_id(), v_now, greatest(v_now, f.key_time) + p_keep from free f
    on conflict (scope, key) do nothing
    returning scope, key
  )
  select array_agg(f.f) into v_fresh from fresh n join free f on f.scope = n.scope and f.key = n.key;
  if cardinality(v_fresh) is distinct from cardinality(v_places) then
    select array_agg(f.place), array_agg(f.player), array_agg(f.change) into v_places, v_players, v_changes
    from unnest(v_places, v_players, v_changes) f (place, player, change) where f.place = any (v_fresh);
    if v_places is null then
      return;
    end if;
  end if;
  if p_is_ordered then
    perform fencepost._mutation_refuse_old(p_scopes[f], p_keys[f], fencepost._mutation_key_time(p_keys[f]), p_keep)
    from unnest(v_places) f;
  end if;

  perform fencepost._bound_idle_time(fencepost._player_hold_max());
  if p_waits then
    perform from (select from fencepost.player p where p.player_id = any (v_players) order by p.player_id for update) l;
  end if;
  with locked as materialized (
    select p.player_id, p.version from fencepost.player p where p.player_id = any (v_players)
    order by p.player_id for update skip locked
  )
  select count(*), array_agg(f.version order by f.number) into v_count, v_versions
  from (select f.number, l.version + row_number() over (partition by f.player order by f.number) as version
        from unnest(v_places, v_players) with ordinality f (place, player, number)
        join locked l on l.player_id = f.player and (l.version = p_versions[f.place] or not p_is_strict)) f;
  if v_count <> cardinality(v_places) then
    raise exception 'A player is held, or has moved.' using errcode = 'ZF110';
  end if;
  if exists (select from fencepost._player_amounts_unfit(v_players, v_changes)) then
    raise exception 'An amount does not fit.' using errcode = 'ZF111';
  end if;

  update fencepost.player p set version = f.version, bumped_by = pg_current_xact_id(), updated_at = v_now
  from (select f.player, max(f.version) as version from unnest(v_players, v_versions) f (player, version) group by f.player) f
  where p.player_id = f.player;
  update fencepost.idempotency_key m set response = fencepost._mutation_response(p_responses[f.place], f.version)::json
  from unnest(v_places, v_versions) f (place, version)
  where m.scope = p_scopes[f.place] and m.key = p_keys[f.place] and f.version <> p_versions[f.place] + 1
    and p_responses[f.place] is not null;
  perform fencepost._player_change_amounts(v_players, v_changes);
  insert into fencepost.player_audit (player_id, version, at, method, request_id, source, actor, seed, changes)
  select f.player, f.version, v_now, p_methods[f.place], p_keys[f.place],
         coalesce(p_plans[f.place] ->> 'source', p_methods[f.place]), p_actors[f.place], p_plans[f.place] ->> 'seed', f.change
  from unnest(v_places, v_players, v_changes, v_versions) with ordinality f (place, player, change, version, number)
  order by f.number;
  return query select f.place, f.version from unnest(v_places, v_versions) f (place, version);
end $$;

create or replace function fencepost._player_create(p_player text) returns void
language plpgsql volatile
as $$
declare
  v_now timestamptz := fencepost.clock();
begin
  perform fencepost._check_text('player', p_player, 128);
  insert into fencepost.player (player_id, version, bumped_by, created_at, updated_at)
  values (p_player, 1, pg_current_xact_id(), v_now, v_now) on conflict (player_id) do nothing;
  if not found then
    perform fencepost._mutation_unfit(format('The player %s exists already.', p_player),
      jsonb_build_object('reason', 'player_exists', 'player', p_player));
  end if;
end $$;

-- Lock the players in order of id, and raise the version of each, once; returns the acting player's new
-- version.
create or replace function fencepost._player_lock(p_players text[], p_acting text, p_version bigint, p_is_strict boolean)
returns bigint
language plpgsql volatile
as $$
declare
  v_found   integer;
  v_version bigint;
  v_missing text;
begin
  if cardinality(p_players) = 1 then
    select 1, p.version into v_found, v_version from fencepost.player p where p.player_id = p_acting for update;
  else
    select count(*), max(l.version) filter (where l.player_id = p_acting) into v_found, v_version
    from (select p.player_id, p.version from fencepost.player p where p.player_id = any (p_players)
          order by p.player_id for update) l;
  end if;
  if v_found is distinct from cardinality(p_players) then
    select x into v_missing from unnest(p_players) x
    where not exists (select 1 from fencepost.player p where p.player_id = x) order by x limit 1;
    perform fencepost._refuse('not_found', 'player', coalesce(v_missing, ''), '{}', null);
  end if;
  if p_is_strict and v_version is distinct from p_version then
    perform fencepost._mutation_conflict(format('player %s', p_acting), p_version, v_version);
  end if;
  update fencepost.player p set version = p.version + 1, bumped_by = pg_current_xact_id(), updated_at = fencepost.clock()
  where p.player_id = any (p_players);
  return v_version + 1;
end $$;

-- Raise a player's version, once in this transaction, and lock the row until its end; returns the version.
-- For callers that distribute rewards inside their own transaction. Limits how long that transaction may
-- idle. Raising the version is recorded: nothing need be distributed afterwards, and every version has its
-- row in the audit.
create or replace function fencepost.player_bump(p_player text) returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, fencepost, pg_temp set lock_timeout = '30s'
as $$
declare
  v_version bigint;
  v_now     timestamptz;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('player', p_player, 128);
  perform fencepost._bound_idle_time(fencepost._player_hold_max());
  perform from fencepost.player p where p.player_id = p_player for update;
  v_now := fencepost.clock();
  update fencepost.player p set version = p.version + 1, bumped_by = pg_current_xact_id(), updated_at = v_now
  where p.player_id = p_player and p.bumped_by <> pg_current_xact_id() returning p.version into v_version;
  if found then
    insert into fencepost.player_audit (player_id, version, at, method, source, actor, changes)
    values (p_player, v_version, v_now, 'Bump', 'bump', session_user, '{}');
    return v_version;
  end if;
  select p.version into v_version from fencepost.player p where p.player_id = p_player;
  if not found then
    perform fencepost._refuse('not_found', 'player', p_player, '{}', null);
  end if;
  return v_version;
end $$;

-- Give rewards inside the caller's transaction, which has claimed this key and raised the player's version:
-- both are checked, so that nothing is given without its idempotency key or outside the lock.
create or replace function fencepost.player_distribute(
  p_player text, p_version bigint, p_key text, p_source text, p_change jsonb, p_actor text default null
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_seen fencepost.player;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('player', p_player, 128);
  perform fencepost._check_text('source', p_source, 256);
  perform fencepost._check_text('key', p_key, 512);
  perform fencepost._check_json('change', p_change, 262144);
  if not exists (select 1 from fencepost.idempotency_key m where m.scope = 'player:' || p_player and m.key = p_key
                 and m.claimed_by = pg_current_xact_id()) then
    perform fencepost._refuse('not_found', 'request', 'player:' || p_player || '/' || p_key, '{}', null);
  end if;
  select * into v_seen from fencepost.player p where p.player_id = p_player;
  if v_seen.version is distinct from p_version or v_seen.bumped_by is distinct from pg_current_xact_id() then
    perform fencepost._refuse('not_owner', 'player', p_player, jsonb_build_object('version', p_version),
      jsonb_build_object('version', v_seen.version));
  end if;
  perform fencepost._player_distribute(p_player, p_change, 'Distribute', p_key, p_source, p_actor, null);
end $$;
