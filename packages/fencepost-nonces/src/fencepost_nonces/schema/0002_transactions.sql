-- Managed transactions: what is to be sent. The allocation has the nonce that carries it, and how far that has come. The data of
-- transactions that have ended is removed after a while; the rows stay.
create table fencepost.nonce_transaction (
  transaction_id  bigint generated always as identity,
  signer_id       bigint not null,
  idempotency_key text collate "C" not null,
  digest          text collate "C" not null,
  state           text collate "C" not null,
  recipient       text collate "C",
  value           numeric(78, 0) not null,
  data            bytea not null,
  gas_limit       bigint not null,
  webhook         text,
  nonce           bigint,
  hold            bigint,
  -- Chosen and stored before the signer is asked, so that a node that takes over asks for the same bytes.
  max_fee         numeric(78, 0),
  max_priority    numeric(78, 0),
  tx_hash         text collate "C",
  block_number    bigint,
  block_hash      text collate "C",
  receipt         jsonb,
  error           text,
  cancel_requested_at timestamptz,
  created_at      timestamptz not null,
  updated_at      timestamptz not null,
  -- After a restored backup: it may have been sent in the lost time, so it takes no further nonce.
  in_doubt_since  timestamptz,
  -- The owner has found that no block will ever take it: a no-op takes its nonce, and then it is REJECTED. A cancellation was asked
  -- for by a caller.
  rejected_at     timestamptz,
  -- The chain counts the nonce as used, and which transaction used it is not proved: it keeps its nonce, and needs attention.
  unproved_since  timestamptz,
  speed           text collate "C" not null default 'standard',
  -- In wei for a unit of gas; it holds for every version.
  fee_cap         numeric(78, 0),
  -- A transaction that is not mined at its deadline is cancelled: expired_at is when that was decided.
  deadline        timestamptz,
  expired_at      timestamptz,
  constraint nonce_transaction_pkey primary key (transaction_id),
  constraint nonce_transaction_once unique (idempotency_key),
  constraint nonce_transaction_state check (state in ('QUEUED', 'BOUND', 'MINED', 'CONFIRMED', 'CANCELLED', 'REJECTED')),
  constraint nonce_transaction_value_fits check (value >= 0 and value < 2::numeric ^ 256),
  constraint nonce_transaction_gas_is_positive check (gas_limit > 0),
  constraint nonce_transaction_bound_has_nonce
    check (state not in ('BOUND', 'MINED') or (nonce is not null and hold is not null)),
  constraint nonce_transaction_queued_has_none check (state <> 'QUEUED' or nonce is null),
  constraint nonce_transaction_mined_has_block check (state <> 'MINED' or block_hash is not null),
  constraint nonce_transaction_speed check (speed in ('slow', 'standard', 'fast')),
  constraint nonce_transaction_cap_is_positive check (fee_cap > 0),
  constraint nonce_transaction_expired_had_deadline check (expired_at is null or deadline is not null)
) with (fillfactor = 80);
-- What waits, in order; and what is under way. One nonce carries one transaction.
create index nonce_transaction_queued on fencepost.nonce_transaction (signer_id, transaction_id) where state = 'QUEUED';
create unique index nonce_transaction_open on fencepost.nonce_transaction (signer_id, nonce) where state in ('BOUND', 'MINED');
-- A few, or none.
create index nonce_transaction_in_doubt on fencepost.nonce_transaction (transaction_id) where in_doubt_since is not null;
create index nonce_transaction_unproved on fencepost.nonce_transaction (transaction_id) where unproved_since is not null;
create index nonce_transaction_old on fencepost.nonce_transaction (updated_at)
  where state in ('CONFIRMED', 'CANCELLED', 'REJECTED') and data <> '';
-- The deadlines of what is open. Also after one was acted on: its transaction may go back into the queue.
create index nonce_transaction_deadline on fencepost.nonce_transaction (signer_id, deadline)
  where deadline is not null and state in ('QUEUED', 'BOUND');
-- Lists, newest first, of one state each: a list of several states, or of all, merges them. So two indexes serve every filter.
create index nonce_transaction_by_state on fencepost.nonce_transaction (state, created_at, transaction_id);
create index nonce_transaction_by_signer on fencepost.nonce_transaction (signer_id, state, created_at, transaction_id);
