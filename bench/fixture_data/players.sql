-- Players from p<first> on, in both schemas: ours, and plain tables for pgbench.
create table if not exists bench_player (player_id text primary key, version bigint not null) with (fillfactor = 80);
create table if not exists bench_resource (player_id text, resource text, balance bigint not null, primary key (player_id, resource))
  with (fillfactor = 80);
create table if not exists bench_key (user_id text, request_id text, created_at timestamptz not null default now(),
  primary key (user_id, request_id));
create index if not exists bench_key_by_age on bench_key (created_at);
create table if not exists bench_audit (audit_id bigint generated always as identity primary key, player_id text not null,
  version bigint not null, at timestamptz not null, method text not null, request_id text, changes jsonb not null);
create index if not exists bench_audit_by_player on bench_audit (player_id, audit_id);
grant select, insert, update on bench_player, bench_resource, bench_key, bench_audit to fencepost_app;
insert into fencepost.player_catalog (kind, name, definition, changed_at)
values ('resource', 'gold', '{}', now()), ('pool', 'bench', '{"guarantee_after": 10, "guarantee_rarity": 5}', now())
  on conflict do nothing;
insert into fencepost.player_season (pool, season, opens_at, closes_at, entries)
values ('bench', 's1', now() - interval '1 day', now() + interval '1 day',
        '[{"weight": 94, "rarity": 3, "reward": {"resource": "gold", "count": 1}},
          {"weight": 6, "rarity": 5, "reward": {"resource": "gold", "count": 9}}]')
  on conflict do nothing;
