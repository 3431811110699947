-- Applies a change to a player and records it. All of it runs under the player's row lock, inside a function
-- that took the lock; nothing else may call these functions.
--
-- A change is a JSON object; each part may be missing:
--   resources       {name: signed amount}
--   stacks          {item: signed count}
--   paid            {resources: {name: amount}, stacks: {item: count}}   taken before anything is given; must be held
--   pieces_removed  [{piece_id, item, enhance_level, quality, metadata}]   exactly as they must be found
--   pieces_added    [{piece_id, item, enhance_level, quality, metadata}]
--   heroes          [{hero, from, to}]
--   draws           [{pool, season, before, count, dry_before, dry}]
--   clears          [{dungeon, before}]
--   lessons         [lesson]

-- The distributor: give and take, and record it. The function that locked the row has raised the version.
create or replace function fencepost._player_distribute(
  p_player text, p_change jsonb, p_method text, p_key text, p_source text, p_actor text, p_seed text
) returns void
language plpgsql volatile
as $$
declare
  v_now   timestamptz := fencepost.clock();
  v_unfit record;
begin
  if p_change ?| array['resources', 'stacks', 'paid'] then
    select * into v_unfit from fencepost._player_amounts_unfit(array[p_player], array[p_change]) u
    order by u.kind desc, u.name limit 1;
    if found then
      perform fencepost._player_refuse_amount(v_unfit.kind, v_unfit.name, v_unfit.had, v_unfit.delta, v_unfit.is_unknown);
    end if;
    perform fencepost._player_change_amounts(array[p_player], array[p_change]);
  end if;
  if p_change ?| array['pieces_removed', 'pieces_added'] then
    perform fencepost._player_change_pieces(p_player, p_change);
  end if;
  if p_change ?| array['heroes', 'draws', 'clears', 'lessons'] then
    perform fencepost._player_change_progress(p_player, p_change, v_now);
  end if;
  insert into fencepost.player_audit (player_id, version, at, method, request_id, source, actor, seed, changes)
  select p.player_id, p.version, v_now, p_method, p_key, p_source, p_actor, p_seed, p_change
  from fencepost.player p where p.player_id = p_player;
end $$;

-- Give and take amounts: for one player or for many, one change or several for each.
create or replace function fencepost._player_change_amounts(p_players text[], p_changes jsonb[]) returns void
language plpgsql volatile
as $$
begin
  insert into fencepost.player_resource (player_id, resource, balance)
  select t.player, t.name, coalesce(r.balance, 0) + t.delta
  from (select f.player, d.key as name, sum(d.value::numeric)::bigint as delta
        from unnest(p_players, p_changes) f (player, change) cross join jsonb_each_text(f.change -> 'resources') d
        group by f.player, d.key) t
  left join fencepost.player_resource r on r.player_id = t.player and r.resource = t.name
  on conflict (player_id, resource) do update set balance = excluded.balance;
  insert into fencepost.player_stack (player_id, item, count)
  select t.player, t.name, coalesce(s.count, 0) + t.delta
  from (select f.player, d.key as name, sum(d.value::numeric)::bigint as delta
        from unnest(p_players, p_changes) f (player, change) cross join jsonb_each_text(f.change -> 'stacks') d
        group by f.player, d.key) t
  left join fencepost.player_stack s on s.player_id = t.player and s.item = t.name
  on conflict (player_id, item) do update set count = excluded.count;
end $$;

-- Amounts of unknown things, those that could fall below zero or exceed 64 bits, and those that must be paid
-- and may not be held, whatever comes back for them. In numeric, which does not overflow. For one change of a
-- player this is exact; for several it reports whatever could fail in some order, so that the caller applies
-- them one by one.
create or replace function fencepost._player_amounts_unfit(p_players text[], p_changes jsonb[])
returns table (kind text, name text, had numeric, delta numeric, is_unknown boolean)
language sql stable
as $$
  with wanted as materialized (
    select p.player, p.kind, p.name, sum(greatest(p.paid, -p.delta, 0)) as taken, sum(greatest(p.delta, 0)) as given
    from (
      select a.player, a.place, a.kind, a.name, sum(a.delta) as delta, sum(a.paid) as paid
      from (
        select f.player, f.place, 'resource' as kind, d.key as name, d.value::numeric as delta, 0::numeric as paid
        from unnest(p_players, p_changes) with ordinality f (player, change, place)
        cross join jsonb_each_text(f.change -> 'resources') d
        union all
        select f.player, f.place, 'item', d.key, d.value::numeric, 0
        from unnest(p_players, p_changes) with ordinality f (player, change, place)
        cross join jsonb_each_text(f.change -> 'stacks') d
        union all
        select f.player, f.place, 'resource', d.key, 0, d.value::numeric
        from unnest(p_players, p_changes) with ordinality f (player, change, place)
        cross join jsonb_each_text(f.change #> '{paid,resources}') d
        union all
        select f.player, f.place, 'item', d.key, 0, d.value::numeric
        from unnest(p_players, p_changes) with ordinality f (player, change, place)
        cross join jsonb_each_text(f.change #> '{paid,stacks}') d
      ) a group by a.player, a.place, a.kind, a.name
    ) p group by p.player, p.kind, p.name
  ), held as (
    select w.kind, w.name, w.taken, w.given, coalesce(r.balance, 0)::numeric as had, c.name is null as is_unknown
    from wanted w
    left join fencepost.player_resource r on r.player_id = w.player and r.resource = w.name
    left join fencepost.player_catalog c on c.kind = 'resource' and c.name = w.name
    where w.kind = 'resource'
    union all
    select w.kind, w.name, w.taken, w.given, coalesce(s.count, 0)::numeric,
           not coalesce((c.definition -> 'stackable')::boolean, false)
    from wanted w
    left join fencepost.player_stack s on s.player_id = w.player and s.item = w.name
    left join fencepost.player_catalog c on c.kind = 'item' and c.name = w.name
    where w.kind = 'item'
  )
  select h.kind, h.name, h.had, case when h.had < h.taken then -h.taken else h.given end, h.is_unknown
  from held h where h.is_unknown or h.had < h.taken or h.had + h.given > 9223372036854775807
$$;

create or replace function fencepost._player_refuse_amount(
  p_kind text, p_name text, p_had numeric, p_delta numeric, p_is_unknown boolean
) returns void
language plpgsql volatile
as $$
begin
  if p_is_unknown then
    perform fencepost._mutation_unfit(format('There is no %s %s of this kind.', p_kind, p_name),
      jsonb_build_object('reason', 'unknown_' || p_kind, p_kind, p_name));
  elsif p_delta < 0 then
    perform fencepost._mutation_unfit(format('%s: %s are there, and %s are needed.', p_name, p_had, -p_delta),
      jsonb_build_object('reason', 'not_enough', p_kind, p_name, 'held', p_had::text, 'needed', (-p_delta)::text));
  else
    perform fencepost._mutation_unfit(format('%s: %s and %s more are past what a balance can hold.', p_name, p_had, p_delta),
      jsonb_build_object('reason', 'overflow', p_kind, p_name, 'held', p_had::text));
  end if;
end $$;

create or replace function fencepost._player_change_pieces(p_player text, p_change jsonb) returns void
language plpgsql volatile
as $$
declare
  v_piece   jsonb;
  v_deleted integer;
  v_item    text;
begin
  for v_piece in select x from jsonb_array_elements(p_change -> 'pieces_removed') x loop
    delete from fencepost.player_piece h
    where h.piece_id = (v_piece ->> 'piece_id')::uuid and h.player_id = p_player and h.item = v_piece ->> 'item'
      and h.enhance_level = (v_piece ->> 'enhance_level')::integer and h.quality = (v_piece ->> 'quality')::integer
      and h.metadata = v_piece -> 'metadata';
    get diagnostics v_deleted = row_count;
    if v_deleted = 0 then
      perform fencepost._mutation_stale(format('The piece %s of player %s', v_piece ->> 'piece_id', p_player));
    end if;
  end loop;
  select x ->> 'item' into v_item from jsonb_array_elements(p_change -> 'pieces_added') x
  where not exists (select 1 from fencepost.player_catalog c where c.kind = 'item' and c.name = x ->> 'item'
                    and not (c.definition -> 'stackable')::boolean)
  limit 1;
  if found then
    perform fencepost._player_refuse_amount('item', v_item, 0, 1, true);
  end if;
  insert into fencepost.player_piece (piece_id, player_id, item, enhance_level, quality, metadata)
  select (x ->> 'piece_id')::uuid, p_player, x ->> 'item', (x ->> 'enhance_level')::integer, (x ->> 'quality')::integer,
         x -> 'metadata'
  from jsonb_array_elements(p_change -> 'pieces_added') x;
end $$;

-- Stages, draws, clears and lessons: what was true when the plan was made must still be true.
create or replace function fencepost._player_change_progress(p_player text, p_change jsonb, p_now timestamptz) returns void
language plpgsql volatile
as $$
declare
  x jsonb;
begin
  for x in select h from jsonb_array_elements(p_change -> 'heroes') h loop
    if coalesce((select h.stage from fencepost.player_hero h where h.player_id = p_player and h.hero = x ->> 'hero'), 0)
       <> (x ->> 'from')::integer then
      perform fencepost._mutation_stale(format('The hero %s of player %s', x ->> 'hero', p_player));
    end if;
    insert into fencepost.player_hero (player_id, hero, stage) values (p_player, x ->> 'hero', (x ->> 'to')::integer)
    on conflict (player_id, hero) do update set stage = excluded.stage;
  end loop;
  for x in select d from jsonb_array_elements(p_change -> 'draws') d loop
    perform fencepost._player_change_draw(p_player, x, p_now);
  end loop;
  for x in select c from jsonb_array_elements(p_change -> 'clears') c loop
    if coalesce((select c.clears from fencepost.player_clear c where c.player_id = p_player and c.dungeon = x ->> 'dungeon'), 0)
       <> (x ->> 'before')::bigint then
      perform fencepost._mutation_stale(format('The dungeon %s of player %s', x ->> 'dungeon', p_player));
    end if;
    insert into fencepost.player_clear as h (player_id, dungeon, clears) values (p_player, x ->> 'dungeon', 1)
    on conflict (player_id, dungeon) do update set clears = h.clears + 1;
  end loop;
  for x in select l from jsonb_array_elements(p_change -> 'lessons') l loop
    insert into fencepost.player_lesson (player_id, lesson, taught_at) values (p_player, x #>> '{}', p_now)
    on conflict (player_id, lesson) do nothing;
    if not found then
      perform fencepost._mutation_stale(format('The lesson %s of player %s', x #>> '{}', p_player));
    end if;
  end loop;
end $$;

-- A draw counts only within its season; the season is looked up again, because it may have closed meanwhile.
create or replace function fencepost._player_change_draw(p_player text, p_draw jsonb, p_now timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_known fencepost.player_draw;
begin
  perform from fencepost.player_season s
  where s.pool = p_draw ->> 'pool' and s.season = p_draw ->> 'season' and s.opens_at <= p_now and s.closes_at > p_now;
  if not found then
    perform fencepost._mutation_unfit(format('The pool %s has no open season.', p_draw ->> 'pool'),
      jsonb_build_object('reason', 'no_season', 'pool', p_draw ->> 'pool'));
  end if;
  select * into v_known from fencepost.player_draw d
  where d.player_id = p_player and d.pool = p_draw ->> 'pool' and d.season = p_draw ->> 'season';
  if coalesce(v_known.draws, 0) <> (p_draw ->> 'before')::bigint
     or coalesce(v_known.dry, 0) <> (p_draw ->> 'dry_before')::bigint then
    perform fencepost._mutation_stale(format('The pool %s of player %s', p_draw ->> 'pool', p_player));
  end if;
  -- The whole row as it will be: its constraint is checked before the conflict is.
  insert into fencepost.player_draw (player_id, pool, season, draws, dry)
  values (p_player, p_draw ->> 'pool', p_draw ->> 'season', coalesce(v_known.draws, 0) + (p_draw ->> 'count')::bigint,
          (p_draw ->> 'dry')::bigint)
  on conflict (player_id, pool, season) do update set draws = excluded.draws, dry = excluded.dry;
end $$;
