-- What a transaction may cost and how long it may take, as its caller asked. `fee_cap` is in wei for a unit of gas, and holds for every
-- version. A transaction that is not mined at its deadline is cancelled: `expired_at` is when that was decided.
alter table fencepost.nonce_transaction
  add column speed      text collate "C" not null default 'standard',
  add column fee_cap    numeric(78, 0),
  add column deadline   timestamptz,
  add column expired_at timestamptz,
  add constraint nonce_transaction_speed check (speed in ('slow', 'standard', 'fast')),
  add constraint nonce_transaction_cap_is_positive check (fee_cap > 0),
  add constraint nonce_transaction_expired_had_deadline check (expired_at is null or deadline is not null);

-- The deadlines of what is open. Also after one was acted on: its transaction may go back into the queue.
create index nonce_transaction_deadline on fencepost.nonce_transaction (signer_id, deadline)
  where deadline is not null and state in ('QUEUED', 'BOUND');

-- Lists, newest first, of one state each: a list of several states, or of all, merges them. So two indexes serve every filter.
create index nonce_transaction_by_state on fencepost.nonce_transaction (state, created_at, transaction_id);
create index nonce_transaction_by_signer on fencepost.nonce_transaction (signer_id, state, created_at, transaction_id);

-- They take or answer more by now, which their successors in functions/ say.
drop function if exists fencepost.nonce_tx_submit(bigint, text, text, text, text, numeric, bytea, bigint, text);
drop function if exists fencepost.nonce_tx_open(bigint, text, integer);
