-- One row while a recovery is open: a signer that is seen for the first time meanwhile may be one of the lost time.
create table fencepost.nonce_recovery (
  only_one   boolean not null default true,
  opened_at  timestamptz not null,
  actor      text not null,
  constraint nonce_recovery_pkey primary key (only_one),
  constraint nonce_recovery_is_one check (only_one)
);
