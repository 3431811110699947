-- Removes the players whose names begin with demo-, and the definitions of the demo.
delete from fencepost.player_audit where player_id like 'demo-%';
delete from fencepost.player_clear where player_id like 'demo-%';
delete from fencepost.player_draw where player_id like 'demo-%';
delete from fencepost.player_hero where player_id like 'demo-%';
delete from fencepost.player_lesson where player_id like 'demo-%';
delete from fencepost.player_piece where player_id like 'demo-%';
delete from fencepost.player_resource where player_id like 'demo-%';
delete from fencepost.player_stack where player_id like 'demo-%';
delete from fencepost.player where player_id like 'demo-%';
delete from fencepost.player_catalog where name in ('demo-gold', 'demo-potion', 'demo-cave');
delete from fencepost.idempotency_key where scope like 'player:demo-%';
delete from fencepost.idempotency_ring where scope like 'player:demo-%';
delete from fencepost.mutation_seed where scope like 'player:demo-%';
delete from fencepost.refusal where noun = 'request' and subject like 'player:demo-%';
