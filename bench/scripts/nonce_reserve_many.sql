\set i :i + 1
select count(*) from fencepost.nonce_reserve(1, 'bench-0', 'owner', 1,
  array(select 'm-' || :round || '-' || :client_id || '-' || :i || '-' || n from generate_series(1, :batch) n));
