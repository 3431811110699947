-- A restored backup does not know what was given out and sent after it was made. Until somebody has said where a signer goes on,
-- it gives out nothing; and a transaction that may have been sent in the lost time takes no further nonce.
alter table fencepost.nonce_signer add column recovering_since timestamptz;
alter table fencepost.nonce_transaction add column in_doubt_since timestamptz;

-- A few, or none: whoever watches counts them.
create index nonce_transaction_in_doubt on fencepost.nonce_transaction (transaction_id) where in_doubt_since is not null;

-- One row while a recovery is open: a signer that is seen for the first time meanwhile may be one of the lost time.
create table fencepost.nonce_recovery (
  only_one   boolean not null default true,
  opened_at  timestamptz not null,
  actor      text not null,
  constraint nonce_recovery_pkey primary key (only_one),
  constraint nonce_recovery_is_one check (only_one)
);

-- It answers something by now, which its successor in functions/ says.
drop function if exists fencepost._nonce_reserve(bigint, bigint, text[], interval, boolean);
