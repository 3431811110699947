-- The audit check: recomputes everything that a player holds from the recorded changes alone.

-- Where the two differ: kind, name, what is held and what the audit says. No row means that they agree. Runs
-- in one snapshot, so it may run beside mutations. Served by player_audit_by_player and the primary keys.
create or replace function fencepost.player_audit_check(p_player text)
returns table (what text, name text, held text, audited text)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  return query
    with change as materialized (
      select a.audit_id, a.version, a.changes from fencepost.player_audit a where a.player_id = p_player
    ), held (what, name, held) as (
      select 'version', '', p.version::text from fencepost.player p where p.player_id = p_player
      union all select 'resource', r.resource, r.balance::text from fencepost.player_resource r
                where r.player_id = p_player and r.balance > 0
      union all select 'stack', s.item, s.count::text from fencepost.player_stack s where s.player_id = p_player and s.count > 0
      union all select 'piece', h.piece_id::text,
                       jsonb_build_array(h.item, h.enhance_level, h.quality, h.metadata)::text
                from fencepost.player_piece h where h.player_id = p_player
      union all select 'hero', h.hero, h.stage::text from fencepost.player_hero h where h.player_id = p_player
      union all select 'draws', d.pool || '/' || d.season, d.draws::text from fencepost.player_draw d
                where d.player_id = p_player
      union all select 'clears', c.dungeon, c.clears::text from fencepost.player_clear c where c.player_id = p_player
      union all select 'lesson', l.lesson, '1' from fencepost.player_lesson l where l.player_id = p_player
    ), audited (what, name, audited) as (
      select 'version', '', max(c.version)::text from change c having count(*) > 0
      union all select 'resource', d.key, sum(d.value::numeric)::text from change c, jsonb_each_text(c.changes -> 'resources') d
                group by d.key having sum(d.value::numeric) <> 0
      union all select 'stack', d.key, sum(d.value::numeric)::text from change c, jsonb_each_text(c.changes -> 'stacks') d
                group by d.key having sum(d.value::numeric) <> 0
      union all select 'piece', m.piece_id, m.facts::text from (
                  select distinct on (x ->> 'piece_id') x ->> 'piece_id' as piece_id, side.is_added,
                         jsonb_build_array(x -> 'item', x -> 'enhance_level', x -> 'quality', x -> 'metadata') as facts
                  from change c, (values (true, 'pieces_added'), (false, 'pieces_removed')) side (is_added, part),
                       jsonb_array_elements(c.changes -> side.part) x
                  order by x ->> 'piece_id', c.audit_id desc, side.is_added desc) m where m.is_added
      union all select 'hero', h.hero, h.stage from (
                  select distinct on (x ->> 'hero') x ->> 'hero' as hero, x ->> 'to' as stage
                  from change c, jsonb_array_elements(c.changes -> 'heroes') x order by x ->> 'hero', c.audit_id desc) h
      union all select 'draws', (x ->> 'pool') || '/' || (x ->> 'season'), sum((x ->> 'count')::numeric)::text
                from change c, jsonb_array_elements(c.changes -> 'draws') x group by 2
      union all select 'clears', x ->> 'dungeon', count(*)::text from change c, jsonb_array_elements(c.changes -> 'clears') x
                group by 2
      union all select 'lesson', x, count(*)::text from change c, jsonb_array_elements_text(c.changes -> 'lessons') x group by 2
    ), told (what, name, held, audited) as (
      select h.what, h.name, h.held, null from held h
      union all select a.what, a.name, null, a.audited from audited a
    )
    -- Not a full join: that needs a hash or merge join, which the functions of this schema do not use.
    select t.what, t.name, max(t.held), max(t.audited) from told t
    group by t.what, t.name having max(t.held) is distinct from max(t.audited) order by t.what, t.name;
end $$;
