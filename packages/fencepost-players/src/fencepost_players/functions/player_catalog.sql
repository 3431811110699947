-- The game's definitions. Written by operators, read by every plan.

-- Define one thing, or redefine it. Whether an item stacks cannot be changed: players hold it in one form.
create or replace function fencepost.player_catalog_put(p_kind text, p_name text, p_definition jsonb) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._check_word('kind', p_kind, array['resource', 'item', 'hero', 'pool', 'dungeon', 'lesson']);
  perform fencepost._check_text('name', p_name, 128);
  perform fencepost._check_json('definition', p_definition, 65536);
  if jsonb_typeof(p_definition) is distinct from 'object'
     or (p_kind = 'item' and coalesce(jsonb_typeof(p_definition -> 'stackable'), '') <> 'boolean') then
    raise exception 'definition must be an object; that of an item says whether it is stackable.'
      using errcode = 'ZF100', detail = '{"field": "definition"}';
  end if;
  insert into fencepost.player_catalog as c (kind, name, definition, changed_at)
  values (p_kind, p_name, p_definition, fencepost.clock())
  on conflict (kind, name) do update set definition = excluded.definition, changed_at = excluded.changed_at
  where c.kind <> 'item' or c.definition -> 'stackable' = excluded.definition -> 'stackable';
  if not found then
    perform fencepost._refuse('mismatch', 'item', p_name, jsonb_build_object('stackable', p_definition -> 'stackable'), null);
  end if;
end $$;

-- Open a season of a pool, or redefine it.
create or replace function fencepost.player_season_put(
  p_pool text, p_season text, p_opens_at timestamptz, p_closes_at timestamptz, p_entries jsonb
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._check_text('pool', p_pool, 128);
  perform fencepost._check_text('season', p_season, 128);
  perform fencepost._check_json('entries', p_entries, 65536);
  if p_opens_at is null or p_closes_at is null or p_closes_at <= p_opens_at then
    raise exception 'closes_at must be after opens_at.' using errcode = 'ZF100', detail = '{"field": "closes_at"}';
  end if;
  if coalesce(jsonb_typeof(p_entries), '') <> 'array' or p_entries = '[]' then
    raise exception 'entries must be an array with at least one entry.'
      using errcode = 'ZF100', detail = '{"field": "entries"}';
  end if;
  if not exists (select 1 from fencepost.player_catalog c where c.kind = 'pool' and c.name = p_pool) then
    perform fencepost._refuse('not_found', 'pool', p_pool, '{}', null);
  end if;
  insert into fencepost.player_season (pool, season, opens_at, closes_at, entries)
  values (p_pool, p_season, p_opens_at, p_closes_at, p_entries)
  on conflict (pool, season) do update
    set opens_at = excluded.opens_at, closes_at = excluded.closes_at, entries = excluded.entries;
end $$;

-- Views for operators, under the names that they know from such services.
create or replace view fencepost.players as
  select p.player_id as user_id, p.version as data_version, p.created_at, p.updated_at from fencepost.player p;

create or replace view fencepost.player_mutation_idempotency as
  select substr(m.scope, 8) as user_id, m.key as request_id, m.claimed_at as created_at
  from fencepost.idempotency_key m where m.scope >= 'player:' and m.scope < 'player;';

create or replace view fencepost.player_things as
  select c.kind, c.name, c.definition, c.changed_at from fencepost.player_catalog c;

create or replace view fencepost.player_seasons as
  select s.pool, s.season, s.opens_at, s.closes_at, s.entries from fencepost.player_season s;

create or replace view fencepost.player_audits as
  select a.audit_id, a.player_id, a.version, a.at, a.method, a.request_id, a.source, a.actor, a.changes
  from fencepost.player_audit a;
