\set s random(0, :signers - 1)
\set i :i + 1
select * from fencepost.nonce_reserve(1, 'bench-' || :s, 'owner', 1, array['r-' || :round || '-' || :client_id || '-' || :i]);
