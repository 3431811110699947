-- What happens to mutations without a request id. In phase 1 they are executed, unprotected, and counted by method; in phase 2 they
-- are refused. A service is moved to phase 2 only when none came for a while.

create table fencepost.mutation_phase (
  service    text collate "C" not null,
  phase      smallint not null,
  changed_at timestamptz not null,
  changed_by text,
  constraint mutation_phase_pkey primary key (service),
  constraint mutation_phase_is_known check (phase in (1, 2))
);

-- One row for each such request: they are to become none, and separate rows do not wait for each other as one counter would.
create table fencepost.mutation_unkeyed (
  at      timestamptz not null,
  service text collate "C" not null,
  method  text collate "C" not null,
  refused boolean not null
);
create index mutation_unkeyed_by_time on fencepost.mutation_unkeyed (service, at);
create index mutation_unkeyed_by_age on fencepost.mutation_unkeyed (at);

-- The seed of a request that failed and will be sent again: the repeat draws the same random numbers. Kept no longer than its
-- idempotency key would be, so that an id which is used again after the retention is a new request with a new seed.
create table fencepost.mutation_seed (
  scope      text collate "C" not null,
  key        text collate "C" not null,
  digest     text collate "C" not null,
  seed       text collate "C" not null,
  expires_at timestamptz not null,
  constraint mutation_seed_pkey primary key (scope, key, digest)
);
create index mutation_seed_by_expiry on fencepost.mutation_seed (expires_at);
