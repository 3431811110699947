-- The one way to change a player. A plan is a list of parties, each a player and a change; it was made without a lock, so
-- everything it rests on is judged again here, on locked rows.
--
-- Locks, in this order: the request's marker; the players' rows FOR UPDATE in order of id; their details; the audit. Two
-- mutations that name the same players in opposite order wait for each other's first row and cannot deadlock.
--
-- Answers claimed (done), replay, duplicate, mismatch or in_flight. Raises ZF110, ZF111, ZF112 (mutation.sql) and not_found;
-- then nothing was written, the marker included. Every access is by a primary key.
create or replace function fencepost._player_execute(
  p_scope text, p_key text, p_digest text, p_response jsonb, p_method text, p_actor text, p_version bigint, p_plan jsonb,
  out outcome text, out response jsonb
) language plpgsql volatile
as $$
declare
  v_players text[] := array(select distinct x ->> 'player' from jsonb_array_elements(p_plan -> 'parties') x order by 1);
  v_acting  text := p_plan #>> '{parties,0,player}';
  v_party   jsonb;
begin
  select c.outcome, c.response into outcome, response from fencepost._mutation_claim(p_scope, p_key, p_digest, p_response) c;
  if outcome <> 'claimed' then
    return;
  end if;
  perform fencepost._check_text('method', p_method, 128);
  -- Only a caller with a transaction of its own can stand still in here: it does so for ten seconds at most.
  perform fencepost._bound_idle_time(fencepost._player_hold_max());
  if (p_plan -> 'create')::boolean then
    perform fencepost._player_create(v_acting);
  else
    perform fencepost._player_lock(v_players, v_acting, p_version);
  end if;
  for v_party in select x from jsonb_array_elements(p_plan -> 'parties') x loop
    perform fencepost._player_distribute(v_party ->> 'player', v_party -> 'change', p_method, p_key,
      coalesce(p_plan ->> 'source', p_method), p_actor, p_plan ->> 'seed');
  end loop;
end $$;

-- One mutation. It waits for its players' rows, and longer than anybody may hold them (player_hold.sql): the caller has time
-- to end who does.
create or replace function fencepost.player_execute(
  p_scope text, p_key text, p_digest text, p_response jsonb, p_method text, p_actor text, p_version bigint, p_plan jsonb
) returns table (outcome text, response jsonb)
language plpgsql volatile security definer
set search_path = pg_catalog, fencepost, pg_temp set lock_timeout = '30s'
as $$
begin
  select e.outcome, e.response into outcome, response
  from fencepost._player_execute(p_scope, p_key, p_digest, p_response, p_method, p_actor, p_version, p_plan) e;
  return next;
end $$;

-- Many mutations with one commit. What gives and takes amounts, most of what there is, is done by a few statements for all;
-- the rest, and all of it when anybody is in the way, one by one. Each of those is undone alone when it cannot be carried
-- out, and then has no row in the answer: it goes alone, waits where it must, and is told why. Nobody here waits for a row
-- longer than a moment, so one held row does not hold up the others; and because a wait is given up long before a deadlock
-- would be looked for, two batches that meet crosswise let go of each other.
create or replace function fencepost.player_execute_many(
  p_scopes text[], p_keys text[], p_digests text[], p_responses jsonb[], p_methods text[], p_actors text[], p_versions bigint[],
  p_plans jsonb[]
) returns table (place bigint, outcome text, response jsonb)
language plpgsql volatile security definer
set search_path = pg_catalog, fencepost, pg_temp set lock_timeout = '2ms'
as $$
declare
  v_done bigint[];
  v      record;
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
    v_done := fencepost._player_execute_amounts(p_scopes, p_keys, p_digests, p_responses, p_methods, p_actors, p_versions, p_plans);
  exception when others then
    v_done := '{}'; -- All undone, with their markers: somebody's row is held or has moved, or a plan does not fit.
  end;
  return query select d, 'claimed', p_responses[d] from unnest(v_done) d;
  if cardinality(v_done) = cardinality(p_scopes) then
    return;
  end if;
  for v in
    select a.* from unnest(p_scopes, p_keys, p_digests, p_responses, p_methods, p_actors, p_versions, p_plans)
      with ordinality a (scope, key, digest, response, method, actor, version, plan, place)
    where a.place <> all (v_done) order by a.scope, a.place
  loop
    -- Whoever names a player that is not there is refused, and a refusal counts once: alone.
    continue when not coalesce((v.plan -> 'create')::boolean, false) and (
      v.version is null or jsonb_array_length(v.plan -> 'parties') > 1 and exists (
        select 1 from jsonb_array_elements(v.plan -> 'parties') x
        where not exists (select 1 from fencepost.player p where p.player_id = x ->> 'player')));
    begin
      select e.outcome, e.response into outcome, response
      from fencepost._player_execute(v.scope, v.key, v.digest, v.response, v.method, v.actor, v.version, v.plan) e;
      place := v.place;
      return next;
    exception when others then
      null; -- Undone, with its marker: it has no row in the answer.
    end;
  end loop;
end $$;

-- Those of many mutations that change amounts of one player each, together; answers the places of those that are done. One
-- of each player, in the player's own scope: the next would be planned for a version that this one raises. Whose marker is there already, or is being
-- made, is left out before anything is locked. Whatever else is in the way raises, and undoes all of it. The locks are taken
-- as ever: markers, players in order of id, details, audit.
create or replace function fencepost._player_execute_amounts(
  p_scopes text[], p_keys text[], p_digests text[], p_responses jsonb[], p_methods text[], p_actors text[], p_versions bigint[],
  p_plans jsonb[]
) returns bigint[]
language plpgsql volatile
as $$
declare
  v_now     timestamptz := fencepost.clock();
  v_places  bigint[];
  v_players text[];
  v_changes jsonb[];
  v_scopes  text[];
  v_count   bigint;
begin
  select array_agg(f.place), array_agg(f.player), array_agg(f.change) into v_places, v_players, v_changes
  from (select distinct on (f.player) f.place, f.player, f.change
        from (select a.place, a.scope, a.plan #>> '{parties,0,player}' as player, a.plan #> '{parties,0,change}' as change
              from unnest(p_scopes, p_keys, p_versions, p_plans) with ordinality a (scope, key, version, plan, place)
              where a.key is not null and a.version is not null and not coalesce((a.plan -> 'create')::boolean, false)
                and jsonb_array_length(a.plan -> 'parties') = 1) f
        where f.change - '{resources,stacks,paid}'::text[] = '{}' and f.scope = 'player:' || f.player
        order by f.player, f.place) f;
  if v_places is null then
    return '{}';
  end if;
  perform fencepost._marker_check(p_scopes[f], p_keys[f], p_digests[f], p_responses[f]) from unnest(v_places) f;
  perform fencepost._check_text('method', p_methods[f], 128) from unnest(v_places) f;

  with free as materialized (
    select p_scopes[f] as scope, p_keys[f] as key, p_digests[f] as digest, p_responses[f] as response
    from unnest(v_places) f where fencepost._marker_lock(p_scopes[f], p_keys[f])
  ), fresh as (
    insert into fencepost.marker (scope, key, digest, response, claimed_by, claimed_at)
    select f.scope, f.key, f.digest, f.response, pg_current_xact_id(), v_now from free f
    on conflict (scope, key) do nothing
    returning scope
  )
  select array_agg(f.scope) into v_scopes from fresh f;
  if cardinality(v_scopes) is distinct from cardinality(v_places) then
    select array_agg(f.place), array_agg(f.player), array_agg(f.change) into v_places, v_players, v_changes
    from unnest(v_places, v_players, v_changes) f (place, player, change) where p_scopes[f.place] = any (v_scopes);
    if v_places is null then
      return '{}';
    end if;
  end if;

  perform fencepost._bound_idle_time(fencepost._player_hold_max());
  with locked as materialized (
    select p.player_id, p.version from fencepost.player p where p.player_id = any (v_players)
    order by p.player_id for update skip locked
  )
  select count(*) into v_count from unnest(v_places, v_players) f (place, player)
  join locked l on l.player_id = f.player and l.version = p_versions[f.place];
  if v_count <> cardinality(v_places) then
    raise exception 'A player is held, or has moved.' using errcode = 'ZF110';
  end if;
  if exists (select from fencepost._player_amounts_unfit(v_players, v_changes)) then
    raise exception 'An amount does not fit.' using errcode = 'ZF111';
  end if;

  update fencepost.player p set version = p.version + 1, bumped_by = pg_current_xact_id(), updated_at = v_now
  where p.player_id = any (v_players);
  perform fencepost._player_change_amounts(v_players, v_changes);
  insert into fencepost.player_audit (player_id, version, at, method, request_id, source, actor, seed, changes)
  select f.player, p_versions[f.place] + 1, v_now, p_methods[f.place], p_keys[f.place],
         coalesce(p_plans[f.place] ->> 'source', p_methods[f.place]), p_actors[f.place], p_plans[f.place] ->> 'seed', f.change
  from unnest(v_places, v_players, v_changes) f (place, player, change);
  return v_places;
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

-- Lock the players in order of id, compare the acting one's version, and raise the version of each, once.
create or replace function fencepost._player_lock(p_players text[], p_acting text, p_version bigint) returns void
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
  if v_version is distinct from p_version then
    perform fencepost._mutation_conflict(format('player %s', p_acting), p_version, v_version);
  end if;
  update fencepost.player p set version = p.version + 1, bumped_by = pg_current_xact_id(), updated_at = fencepost.clock()
  where p.player_id = any (p_players);
end $$;

-- Raise a player's version, once in this transaction, and lock the row until its end; the version that it has then. For
-- whoever distributes rewards inside a transaction of his own. Bounds how long that transaction may idle. Raising it is
-- recorded: nothing need be distributed afterwards, and every version has its line in the audit.
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

-- Give rewards inside a transaction of the caller's, which has claimed this key and raised the player's version: both are
-- checked, so that nothing is given without its marker or beside the lock.
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
  if not exists (select 1 from fencepost.marker m where m.scope = 'player:' || p_player and m.key = p_key
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
