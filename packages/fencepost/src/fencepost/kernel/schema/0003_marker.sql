-- A marker says: this request's transaction committed. It is written first in that transaction, so that a
-- rollback takes it along.

-- Arbitrary keys: remembered for the retention, removed in batches by age.
create table fencepost.marker (
  scope      text collate "C" not null,
  key        text collate "C" not null,
  digest     text collate "C",
  response   jsonb,
  -- The top-level transaction that claimed it: only that one may still add the response.
  claimed_by xid8 not null,
  claimed_at timestamptz not null,
  constraint marker_pkey primary key (scope, key)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1);
create index marker_by_age on fencepost.marker (claimed_at);

-- Time-ordered keys (UUIDv7, ULID): a ring of eight slots, 15 minutes of key time each. The slot is a function
-- of the key, so the primary key stays exact; a slot that has left the window is truncated whole.
create table fencepost.marker_ring (
  slot       smallint not null,
  scope      text collate "C" not null,
  key        text collate "C" not null,
  digest     text collate "C",
  response   jsonb,
  claimed_by xid8 not null,
  claimed_at timestamptz not null,
  constraint marker_ring_pkey primary key (slot, scope, key)
) partition by list (slot);
create table fencepost.marker_ring_0 partition of fencepost.marker_ring for values in (0);
create table fencepost.marker_ring_1 partition of fencepost.marker_ring for values in (1);
create table fencepost.marker_ring_2 partition of fencepost.marker_ring for values in (2);
create table fencepost.marker_ring_3 partition of fencepost.marker_ring for values in (3);
create table fencepost.marker_ring_4 partition of fencepost.marker_ring for values in (4);
create table fencepost.marker_ring_5 partition of fencepost.marker_ring for values in (5);
create table fencepost.marker_ring_6 partition of fencepost.marker_ring for values in (6);
create table fencepost.marker_ring_7 partition of fencepost.marker_ring for values in (7);

-- What the ring has forgotten for good: a key of this slice or an earlier one is refused, also if a clock that
-- ran ahead is set back later.
create table fencepost.marker_forgotten (
  only_row boolean primary key default true,
  slice    bigint not null default 0,
  constraint marker_forgotten_has_one_row check (only_row)
);
insert into fencepost.marker_forgotten default values;
