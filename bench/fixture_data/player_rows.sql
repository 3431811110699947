with fresh as (
  insert into fencepost.player (player_id, version, bumped_by, created_at, updated_at)
  select 'p' || n, 1, pg_current_xact_id(), now(), now()
  from generate_series(%(first)s::bigint, %(first)s::bigint + %(count)s::bigint - 1) n returning player_id
), ours as (
  insert into fencepost.player_resource (player_id, resource, balance) select player_id, 'gold', 0 from fresh
), plain as (
  insert into bench_player (player_id, version) select player_id, 1 from fresh
)
insert into bench_resource (player_id, resource, balance) select player_id, 'gold', 0 from fresh
