\set first :base + :client_id * :span + :i
\set i :i + :batch
select outcome, response::text, claimed_at from fencepost.claim('bench', 'key-' || :first, 'digest', '{"ok": true}');
