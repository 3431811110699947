-- The owner has found that no block will ever take it: a no-op takes its nonce, and then it is REJECTED. Told apart from a
-- cancellation, which somebody has asked for.
alter table fencepost.nonce_transaction add column rejected_at timestamptz;

-- What is large is forgotten after a while: the signed bytes of nonces that are used, and the data of transactions that have
-- ended. The rows stay, for they are what tells a repeat from a new request, so nothing need find the old ones among them.
drop index fencepost.nonce_allocation_old;
create index nonce_signature_old on fencepost.nonce_signature (created_at);
create index nonce_transaction_old on fencepost.nonce_transaction (updated_at)
  where state in ('CONFIRMED', 'CANCELLED', 'REJECTED') and data <> '';

-- They answer more by now, which their successors in functions/ say.
drop function if exists fencepost.nonce_tx_open(bigint, text, integer);
drop function if exists fencepost.nonce_tx_signers();
