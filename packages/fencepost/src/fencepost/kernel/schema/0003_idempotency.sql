-- An idempotency key says that the transaction of a request has committed. It is written first in that transaction, so that a
-- rollback removes it.

-- Arbitrary keys: remembered for the retention, removed in batches by age. A key with a retention of its own has expires_at. Each
-- is in one of the two indexes.
create table fencepost.idempotency_key (
  scope      text collate "C" not null,
  key        text collate "C" not null,
  digest     text collate "C",
  -- The text as it came, so that a repeat is answered with the same bytes: jsonb would sort the keys and rewrite the numbers.
  response   json,
  -- The top-level transaction that claimed it: only that one may still add the response.
  claimed_by xid8 not null,
  claimed_at timestamptz not null,
  expires_at timestamptz,
  constraint idempotency_key_pkey primary key (scope, key)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1);
create index idempotency_key_by_age on fencepost.idempotency_key (claimed_at) where expires_at is null;
create index idempotency_key_by_expiry on fencepost.idempotency_key (expires_at) where expires_at is not null;

-- Time-ordered keys (UUIDv7, ULID): a ring of eight slots, six hours of key time each. The slot is a function
-- of the key, so the primary key stays exact; a slot that has left the window is truncated whole.
create table fencepost.idempotency_ring (
  slot       smallint not null,
  scope      text collate "C" not null,
  key        text collate "C" not null,
  digest     text collate "C",
  response   json,
  claimed_by xid8 not null,
  claimed_at timestamptz not null,
  constraint idempotency_ring_pkey primary key (slot, scope, key)
) partition by list (slot);
create table fencepost.idempotency_ring_0 partition of fencepost.idempotency_ring for values in (0);
create table fencepost.idempotency_ring_1 partition of fencepost.idempotency_ring for values in (1);
create table fencepost.idempotency_ring_2 partition of fencepost.idempotency_ring for values in (2);
create table fencepost.idempotency_ring_3 partition of fencepost.idempotency_ring for values in (3);
create table fencepost.idempotency_ring_4 partition of fencepost.idempotency_ring for values in (4);
create table fencepost.idempotency_ring_5 partition of fencepost.idempotency_ring for values in (5);
create table fencepost.idempotency_ring_6 partition of fencepost.idempotency_ring for values in (6);
create table fencepost.idempotency_ring_7 partition of fencepost.idempotency_ring for values in (7);

-- What the ring has forgotten for good: a key of this slice or an earlier one is refused, also if a clock that
-- ran ahead is set back later.
create table fencepost.idempotency_forgotten (
  only_row boolean primary key default true,
  slice    bigint not null default 0,
  constraint idempotency_forgotten_has_one_row check (only_row)
);
insert into fencepost.idempotency_forgotten default values;
