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

-- One mutation, which waits for its players' rows for five seconds at most.
create or replace function fencepost.player_execute(
  p_scope text, p_key text, p_digest text, p_response jsonb, p_method text, p_actor text, p_version bigint, p_plan jsonb
) returns table (outcome text, response jsonb)
language plpgsql volatile security definer
set search_path = pg_catalog, fencepost, pg_temp set lock_timeout = '5s'
as $$
begin
  select e.outcome, e.response into outcome, response
  from fencepost._player_execute(p_scope, p_key, p_digest, p_response, p_method, p_actor, p_version, p_plan) e;
  return next;
end $$;

-- Many mutations with one commit. Each is undone alone when it cannot be carried out, and then has no row in the answer: it
-- goes alone, waits where it must, and is told why. Nobody here waits for a row longer than a moment, so one held row does
-- not hold up the others; and because a wait is given up long before a deadlock would be looked for, two batches that meet
-- crosswise let go of each other.
create or replace function fencepost.player_execute_many(
  p_scopes text[], p_keys text[], p_digests text[], p_responses jsonb[], p_methods text[], p_actors text[], p_versions bigint[],
  p_plans jsonb[]
) returns table (place bigint, outcome text, response jsonb)
language plpgsql volatile security definer
set search_path = pg_catalog, fencepost, pg_temp set lock_timeout = '2ms'
as $$
declare
  v record;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_lengths('keys', cardinality(p_scopes), cardinality(p_keys));
  perform fencepost._check_lengths('digests', cardinality(p_scopes), cardinality(p_digests));
  perform fencepost._check_lengths('responses', cardinality(p_scopes), cardinality(p_responses));
  perform fencepost._check_lengths('methods', cardinality(p_scopes), cardinality(p_methods));
  perform fencepost._check_lengths('actors', cardinality(p_scopes), cardinality(p_actors));
  perform fencepost._check_lengths('versions', cardinality(p_scopes), cardinality(p_versions));
  perform fencepost._check_lengths('plans', cardinality(p_scopes), cardinality(p_plans));
  for v in
    select a.* from unnest(p_scopes, p_keys, p_digests, p_responses, p_methods, p_actors, p_versions, p_plans)
      with ordinality a (scope, key, digest, response, method, actor, version, plan, place) order by a.scope, a.place
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
  -- Only a caller with a transaction of its own can stand still in here: it does so for ten seconds at most.
  perform fencepost._bound_idle_time(interval '20 seconds');
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
-- whoever distributes rewards inside a transaction of his own. Bounds how long that transaction may idle.
create or replace function fencepost.player_bump(p_player text) returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, fencepost, pg_temp set lock_timeout = '5s'
as $$
declare
  v_version bigint;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('player', p_player, 128);
  perform fencepost._bound_idle_time(interval '20 seconds');
  perform from fencepost.player p where p.player_id = p_player for update;
  update fencepost.player p set version = p.version + 1, bumped_by = pg_current_xact_id(), updated_at = fencepost.clock()
  where p.player_id = p_player and p.bumped_by <> pg_current_xact_id();
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
