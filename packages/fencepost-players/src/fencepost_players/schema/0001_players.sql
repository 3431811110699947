-- Players, what they hold, and the record of every change. A player's row is the lock of everything else that is the player's: a
-- transaction that writes a detail holds it, and has raised its version.

-- Programs with a token of their own call this service's API (accounts/programs.py).
insert into fencepost.account_service_role (service, role, rank) values ('players', 'program', 1);

create table fencepost.player (
  player_id  text collate "C" not null,
  version    bigint not null,
  -- The transaction that raised the version last: it raises it once, however much it writes.
  bumped_by  xid8 not null,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  constraint player_pkey primary key (player_id),
  constraint player_version_is_positive check (version > 0)
) with (fillfactor = 80);

create table fencepost.player_resource (
  player_id text collate "C" not null,
  resource  text collate "C" not null,
  balance   bigint not null,
  constraint player_resource_pkey primary key (player_id, resource),
  constraint player_resource_is_not_negative check (balance >= 0),
  constraint player_resource_has_a_player foreign key (player_id) references fencepost.player
) with (fillfactor = 80);

-- Items that are all alike: a count.
create table fencepost.player_stack (
  player_id text collate "C" not null,
  item      text collate "C" not null,
  count     bigint not null,
  constraint player_stack_pkey primary key (player_id, item),
  constraint player_stack_is_not_negative check (count >= 0),
  constraint player_stack_has_a_player foreign key (player_id) references fencepost.player
) with (fillfactor = 80);

-- Unique items: an id, and their attributes.
create table fencepost.player_piece (
  piece_id      uuid not null,
  player_id     text collate "C" not null,
  item          text collate "C" not null,
  enhance_level integer not null,
  quality       integer not null,
  metadata      jsonb not null,
  constraint player_piece_pkey primary key (piece_id),
  constraint player_piece_level_is_not_negative check (enhance_level >= 0),
  constraint player_piece_quality_is_not_negative check (quality >= 0),
  constraint player_piece_has_a_player foreign key (player_id) references fencepost.player
);
create index player_piece_by_player on fencepost.player_piece (player_id, item, piece_id);

create table fencepost.player_hero (
  player_id text collate "C" not null,
  hero      text collate "C" not null,
  stage     integer not null,
  constraint player_hero_pkey primary key (player_id, hero),
  constraint player_hero_stage_is_positive check (stage > 0),
  constraint player_hero_has_a_player foreign key (player_id) references fencepost.player
);

create table fencepost.player_draw (
  player_id text collate "C" not null,
  pool      text collate "C" not null,
  season    text collate "C" not null,
  draws     bigint not null,
  -- Draws since the last one of the guaranteed rarity.
  dry       bigint not null,
  constraint player_draw_pkey primary key (player_id, pool, season),
  constraint player_draw_counts check (draws > 0 and dry between 0 and draws),
  constraint player_draw_has_a_player foreign key (player_id) references fencepost.player
);

create table fencepost.player_clear (
  player_id text collate "C" not null,
  dungeon   text collate "C" not null,
  clears    bigint not null,
  constraint player_clear_pkey primary key (player_id, dungeon),
  constraint player_clear_is_positive check (clears > 0),
  constraint player_clear_has_a_player foreign key (player_id) references fencepost.player
);

create table fencepost.player_lesson (
  player_id text collate "C" not null,
  lesson    text collate "C" not null,
  taught_at timestamptz not null,
  constraint player_lesson_pkey primary key (player_id, lesson),
  constraint player_lesson_has_a_player foreign key (player_id) references fencepost.player
);

-- Each change: the player, the request, the version. Balances can be rebuilt from the changes alone.
create table fencepost.player_audit (
  audit_id   bigint generated always as identity,
  player_id  text collate "C" not null,
  version    bigint not null,
  at         timestamptz not null,
  method     text collate "C" not null,
  request_id text collate "C",
  source     text not null,
  actor      text,
  seed       text,
  changes    jsonb not null,
  constraint player_audit_pkey primary key (audit_id),
  constraint player_audit_has_a_player foreign key (player_id) references fencepost.player
);
create index player_audit_by_player on fencepost.player_audit (player_id, audit_id);

-- The catalogue of the game: one row for each resource, item, hero, pool, dungeon and lesson.
create table fencepost.player_catalog (
  kind       text collate "C" not null,
  name       text collate "C" not null,
  definition jsonb not null,
  changed_at timestamptz not null,
  constraint player_catalog_pkey primary key (kind, name),
  constraint player_catalog_kind_is_known check (kind in ('resource', 'item', 'hero', 'pool', 'dungeon', 'lesson')),
  constraint player_catalog_item_says_whether_it_stacks
    check (kind <> 'item' or coalesce(jsonb_typeof(definition -> 'stackable'), '') = 'boolean')
);

-- A pool is drawn from within a season, by the season's own entries.
create table fencepost.player_season (
  pool      text collate "C" not null,
  season    text collate "C" not null,
  opens_at  timestamptz not null,
  closes_at timestamptz not null,
  entries   jsonb not null,
  constraint player_season_pkey primary key (pool, season),
  constraint player_season_closes_after_it_opens check (closes_at > opens_at),
  constraint player_season_has_entries check (jsonb_typeof(entries) = 'array' and jsonb_array_length(entries) > 0)
);
