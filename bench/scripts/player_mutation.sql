\set player :base + :client_id
\set i :i + 1
begin;
insert into bench_key (user_id, request_id) values ('p' || :player, 'r' || :i) on conflict do nothing;
select version as seen from bench_player where player_id = 'p' || :player for update \gset
update bench_player set version = version + 1 where player_id = 'p' || :player and version = :seen;
update bench_resource set balance = balance + 1 where player_id = 'p' || :player and resource = 'gold';
insert into bench_audit (player_id, version, at, method, request_id, changes) values ('p' || :player, :seen, now(), 'GrantItems', 'r' || :i, '{"resources": {"gold": 1}}');
commit;
