-- Managed transactions: what shall be sent. Which nonce carries it, and how far that has come, is the allocation's matter.
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
  -- Chosen and stored before the signer is asked, so that whoever takes over asks for the same bytes.
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
  constraint nonce_transaction_pkey primary key (transaction_id),
  constraint nonce_transaction_once unique (idempotency_key),
  constraint nonce_transaction_state check (state in ('QUEUED', 'BOUND', 'MINED', 'CONFIRMED', 'CANCELLED', 'REJECTED')),
  constraint nonce_transaction_value_fits check (value >= 0 and value < 2::numeric ^ 256),
  constraint nonce_transaction_gas_is_positive check (gas_limit > 0),
  constraint nonce_transaction_bound_has_nonce
    check (state not in ('BOUND', 'MINED') or (nonce is not null and hold is not null)),
  constraint nonce_transaction_queued_has_none check (state <> 'QUEUED' or nonce is null),
  constraint nonce_transaction_mined_has_block check (state <> 'MINED' or block_hash is not null)
) with (fillfactor = 80);
-- What waits, in order; and what is under way. One nonce carries one transaction.
create index nonce_transaction_queued on fencepost.nonce_transaction (signer_id, transaction_id) where state = 'QUEUED';
create unique index nonce_transaction_open on fencepost.nonce_transaction (signer_id, nonce) where state in ('BOUND', 'MINED');
