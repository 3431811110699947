-- Programs with a token of their own call this service's API (accounts/programs.py).
insert into fencepost.account_service_role (service, role, rank) values ('nonces', 'program', 1);

-- One row for each signer of a chain: where its sequence stands. Never deleted, as its lease is not.
create table fencepost.nonce_signer (
  signer_id     bigint generated always as identity,
  chain_id      bigint not null,
  signer        text collate "C" not null,
  next_nonce    bigint not null,
  -- The highest token that was ever acquired: if the lease's row is deleted by hand, its token does not start again.
  fencing_token bigint not null default 0,
  -- What the chain has counted finally; the sequence is never below it.
  chain_count   bigint not null default 0,
  created_at    timestamptz not null,
  updated_at    timestamptz not null,
  -- A restored backup does not know what was reserved and sent after it was made. Until an operator has said where the signer
  -- continues, it reserves nothing.
  recovering_since timestamptz,
  constraint nonce_signer_pkey primary key (signer_id),
  constraint nonce_signer_key unique (chain_id, signer),
  constraint nonce_signer_chain_is_positive check (chain_id > 0),
  constraint nonce_signer_next_is_not_negative check (next_nonce >= 0),
  -- Two spellings of one address would be two sequences.
  constraint nonce_signer_address_is_lower check (signer !~* '^0x' or signer ~ '^0x[0-9a-f]{40}$')
) with (fillfactor = 50);

-- One row for each nonce. `hold` counts how often the nonce was reserved: a call that names an earlier hold is refused.
create table fencepost.nonce_allocation (
  signer_id     bigint not null,
  nonce         bigint not null,
  status        text collate "C" not null,
  -- Signed by the caller: then neither time nor a takeover shows that it was never signed.
  caller_signs  boolean not null,
  hold          bigint not null,
  request_id    text collate "C",
  locked_until  timestamptz,
  fencing_token bigint not null,
  tx_hash       text collate "C",
  created_at    timestamptz not null,
  updated_at    timestamptz not null,
  constraint nonce_allocation_pkey primary key (signer_id, nonce),
  constraint nonce_allocation_status check (status in ('HELD', 'SIGNING', 'SIGNED', 'BROADCAST', 'CONSUMED', 'RELEASED')),
  constraint nonce_allocation_is_not_negative check (nonce >= 0),
  constraint nonce_allocation_hold_is_positive check (hold > 0),
  constraint nonce_allocation_held_until check (status <> 'HELD' or locked_until is not null),
  constraint nonce_allocation_signed_has_hash check (status not in ('SIGNED', 'BROADCAST') or tx_hash is not null),
  constraint nonce_allocation_released_is_nobodys check (status <> 'RELEASED' or request_id is null)
) with (fillfactor = 80);

-- One request, one nonce.
create unique index nonce_allocation_request on fencepost.nonce_allocation (signer_id, request_id)
  where request_id is not null;
-- The gaps, lowest first; and what is under way. Both stay small, however long the history is.
create index nonce_allocation_gaps on fencepost.nonce_allocation (signer_id, nonce) where status = 'RELEASED';
create index nonce_allocation_open on fencepost.nonce_allocation (signer_id, nonce)
  where status in ('HELD', 'SIGNING', 'SIGNED', 'BROADCAST');

-- The signed bytes, stored before they are sent: a node that takes over sends the same bytes again. A replacement with a higher fee
-- is a further version. The bytes of used nonces are removed after a while; the rows stay, because they tell a repeat from a new
-- request.
create table fencepost.nonce_signature (
  signer_id     bigint not null,
  nonce         bigint not null,
  version       integer not null,
  hold          bigint not null,
  tx_hash       text collate "C" not null,
  raw           bytea not null,
  -- A cancellation takes the nonce of what it cancels; only one of the two is mined.
  purpose       text collate "C" not null default 'send',
  fencing_token bigint not null,
  created_at    timestamptz not null,
  constraint nonce_signature_pkey primary key (signer_id, nonce, version),
  constraint nonce_signature_once unique (signer_id, nonce, tx_hash),
  constraint nonce_signature_purpose check (purpose in ('send', 'cancel')),
  constraint nonce_signature_of_allocation foreign key (signer_id, nonce)
    references fencepost.nonce_allocation on delete cascade
);
create index nonce_signature_old on fencepost.nonce_signature (created_at);
