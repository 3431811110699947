-- The gate in front of mutations without a request id. In phase 1 they pass, unprotected, and are counted by method; in
-- phase 2 they are refused. A service is moved to phase 2 only when none came for a while.

create table fencepost.mutation_gate (
  service    text collate "C" not null,
  phase      smallint not null,
  changed_at timestamptz not null,
  changed_by text,
  constraint mutation_gate_pkey primary key (service),
  constraint mutation_gate_has_two_phases check (phase in (1, 2))
);

-- One row for each such request: they are to become none, and rows of their own do not queue up behind one counter.
create table fencepost.mutation_unkeyed (
  at      timestamptz not null,
  service text collate "C" not null,
  method  text collate "C" not null,
  refused boolean not null
);
create index mutation_unkeyed_by_time on fencepost.mutation_unkeyed (service, at);
create index mutation_unkeyed_by_age on fencepost.mutation_unkeyed (at);
