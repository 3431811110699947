\set player :base + :client_id
\set i :i + 1
select outcome, response::text from fencepost.player_execute('player' || chr(58) || 'p' || :player::text, 'r' || :i::text, 'sha256:0', '{"player_id": "p", "version": 7, "granted": [{"resource": "gold", "count": 1}]}', 'GrantItems', null, :i::bigint, jsonb_build_object('parties', jsonb_build_array(jsonb_build_object('player', 'p' || :player::text, 'change', '{"resources": {"gold": 1}}'::jsonb))));
