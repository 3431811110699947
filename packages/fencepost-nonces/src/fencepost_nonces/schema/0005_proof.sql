-- The chain counts the nonce of a signed transaction as used, and which transaction used it is not proved: it keeps its nonce, and a
-- person sees it. Few, or none.
alter table fencepost.nonce_transaction add column unproved_since timestamptz;
create index nonce_transaction_unproved on fencepost.nonce_transaction (transaction_id) where unproved_since is not null;

-- They take or answer more by now, which their successors in functions/ say.
drop function if exists fencepost.nonce_tx_lost(bigint, text, text, bigint, bigint);
drop function if exists fencepost.nonce_tx_open(bigint, text, integer);
drop function if exists fencepost.nonce_measures();
