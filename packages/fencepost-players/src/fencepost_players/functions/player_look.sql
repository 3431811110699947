-- Reads players. Nothing here locks: what is decided from it is checked again when it is written.

-- What a plan is made from, in one snapshot: what is known of the request, the player's version, and of
-- everything else only what the request names. p_needs: {"catalog": [[kind, name]], "heroes": [], "pools":
-- [], "dungeons": [], "lessons": [], "pieces": []}. The snapshot is consistent because the function is
-- STABLE: a request whose idempotency key is not visible has left no effect in it either. Served by primary
-- keys.
create or replace function fencepost.player_look(
  p_scope text, p_key text, p_digest text, p_player text, p_needs jsonb
) returns table (outcome text, response json, version bigint, state jsonb)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz;
begin
  select k.outcome, k.response into outcome, response from fencepost._mutation_known(p_scope, p_key, p_digest) k;
  if outcome = 'open' then
    v_now := fencepost.clock();
    version := (select p.version from fencepost.player p where p.player_id = p_player);
    state := jsonb_build_object('catalog',
      (select coalesce(jsonb_agg(jsonb_build_array(c.kind, c.name, c.definition)), '[]')
       from jsonb_array_elements(p_needs -> 'catalog') n
       join fencepost.player_catalog c on c.kind = n ->> 0 and c.name = n ->> 1));
    if p_needs ? 'heroes' then
      state := state || jsonb_build_object('heroes',
        (select coalesce(jsonb_object_agg(h.hero, h.stage), '{}') from jsonb_array_elements_text(p_needs -> 'heroes') n
         join fencepost.player_hero h on h.player_id = p_player and h.hero = n));
    end if;
    if p_needs ? 'pools' then
      state := state || fencepost._player_look_pools(p_player, p_needs -> 'pools', v_now);
    end if;
    if p_needs ? 'dungeons' then
      state := state || jsonb_build_object('clears',
        (select coalesce(jsonb_object_agg(c.dungeon, c.clears), '{}') from jsonb_array_elements_text(p_needs -> 'dungeons') n
         join fencepost.player_clear c on c.player_id = p_player and c.dungeon = n));
    end if;
    if p_needs ? 'lessons' then
      state := state || jsonb_build_object('lessons',
        (select coalesce(jsonb_agg(l.lesson), '[]') from jsonb_array_elements_text(p_needs -> 'lessons') n
         join fencepost.player_lesson l on l.player_id = p_player and l.lesson = n));
    end if;
    if p_needs ? 'pieces' then
      state := state || jsonb_build_object('pieces',
        (select coalesce(jsonb_agg(to_jsonb(h) - 'player_id'), '[]') from jsonb_array_elements_text(p_needs -> 'pieces') n
         join fencepost.player_piece h on h.piece_id = n::uuid and h.player_id = p_player));
    end if;
  end if;
  return next;
end $$;

-- The same on locked rows: every player that the mutation will change, in order of id, until the caller's
-- transaction ends. A plan that is made from this rests on what cannot change any more. Waits as
-- player_execute does. A missing player is not locked: the execution reports it.
create or replace function fencepost.player_hold(
  p_scope text, p_key text, p_digest text, p_player text, p_players text[], p_needs jsonb
) returns table (outcome text, response json, version bigint, state jsonb)
language plpgsql volatile security definer
set search_path = pg_catalog, fencepost, pg_temp set lock_timeout = '30s'
as $$
begin
  perform fencepost._require_read_committed();
  perform fencepost._bound_idle_time(fencepost._player_hold_max());
  perform from (select from fencepost.player p where p.player_id = any (p_players) order by p.player_id for update) l;
  return query select * from fencepost.player_look(p_scope, p_key, p_digest, p_player, p_needs);
end $$;

-- The open season of each pool, the one that opened last where several are, and the player's draws in it.
create or replace function fencepost._player_look_pools(p_player text, p_pools jsonb, p_now timestamptz) returns jsonb
language plpgsql stable
as $$
begin
  return (
    select jsonb_build_object('pools', coalesce(jsonb_object_agg(n, jsonb_build_object(
      'season', s.season, 'entries', s.entries, 'draws', coalesce(d.draws, 0), 'dry', coalesce(d.dry, 0))), '{}'))
    from jsonb_array_elements_text(p_pools) n
    join lateral (select o.season, o.entries from fencepost.player_season o
                  where o.pool = n and o.opens_at <= p_now and o.closes_at > p_now
                  order by o.opens_at desc, o.season limit 1) s on true
    left join fencepost.player_draw d on d.player_id = p_player and d.pool = n and d.season = s.season);
end $$;

-- Everything about one player except the inventory and the history, which may be long; no row when it does
-- not exist.
create or replace function fencepost.player_state(p_player text)
returns table (player_id text, version bigint, created_at timestamptz, updated_at timestamptz, state jsonb)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  return query
    select p.player_id, p.version, p.created_at, p.updated_at, jsonb_build_object(
      'resources', (select coalesce(jsonb_object_agg(r.resource, r.balance), '{}') from fencepost.player_resource r
                    where r.player_id = p_player and r.balance > 0),
      'heroes', (select coalesce(jsonb_object_agg(h.hero, h.stage), '{}') from fencepost.player_hero h
                 where h.player_id = p_player),
      'draws', (select coalesce(jsonb_agg(jsonb_build_object('pool', d.pool, 'season', d.season, 'draws', d.draws)
                                          order by d.pool, d.season), '[]')
                from fencepost.player_draw d where d.player_id = p_player),
      'clears', (select coalesce(jsonb_object_agg(c.dungeon, c.clears), '{}') from fencepost.player_clear c
                 where c.player_id = p_player),
      'lessons', (select coalesce(jsonb_agg(l.lesson order by l.lesson), '[]') from fencepost.player_lesson l
                  where l.player_id = p_player))
    from fencepost.player p where p.player_id = p_player;
end $$;

-- A page of what a player holds, after the given position: stacks by item, then pieces by id.
create or replace function fencepost.player_inventory(
  p_player text, p_after_item text, p_after_piece uuid, p_limit integer
) returns table (item text, count bigint, piece_id uuid, enhance_level integer, quality integer, metadata jsonb)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_rows integer := 0;
begin
  perform fencepost._check_limit(p_limit);
  if p_after_piece is null then
    return query
      select s.item, s.count, null::uuid, null::integer, null::integer, null::jsonb from fencepost.player_stack s
      where s.player_id = p_player and s.item > coalesce(p_after_item, '') and s.count > 0 order by s.item limit p_limit;
    get diagnostics v_rows = row_count;
  end if;
  return query
    select h.item, 1::bigint, h.piece_id, h.enhance_level, h.quality, h.metadata from fencepost.player_piece h
    where h.player_id = p_player
      and (p_after_piece is null or (h.item, h.piece_id) > (p_after_item, p_after_piece))
    order by h.item, h.piece_id limit p_limit - v_rows;
end $$;

-- A page of a player's history, newest first, below the given number. Served by player_audit_by_player.
create or replace function fencepost.player_history(p_player text, p_before bigint, p_limit integer)
returns table (audit_id bigint, version bigint, at timestamptz, method text, request_id text, source text, actor text,
               seed text, changes jsonb)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  perform fencepost._check_limit(p_limit);
  return query
    select a.audit_id, a.version, a.at, a.method, a.request_id, a.source, a.actor, a.seed, a.changes
    from fencepost.player_audit a
    where a.player_id = p_player and a.audit_id < coalesce(p_before, 9223372036854775807)
    order by a.audit_id desc limit p_limit;
end $$;

-- A page of player ids. Served by the primary key.
create or replace function fencepost.player_ids(p_after text, p_limit integer) returns table (player_id text)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  perform fencepost._check_limit(p_limit);
  return query select p.player_id from fencepost.player p where p.player_id > coalesce(p_after, '')
               order by p.player_id limit p_limit;
end $$;
