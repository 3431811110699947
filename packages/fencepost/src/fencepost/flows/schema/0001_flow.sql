-- Flows: what runs under which name. State, frontier and handles are the kernel's checkpoints; ownership is leases.
create table fencepost.flow (
  name          text collate "C" not null,
  plan          jsonb not null,
  registered_at timestamptz not null,
  registered_by text not null,
  -- Set by an operator: workers commit, let go of everything and take nothing.
  draining_at   timestamptz,
  constraint flow_pkey primary key (name)
);

-- A savepoint is a copy of the newest durable checkpoint of every task, with the changes that lead to it.
create table fencepost.flow_savepoint (
  flow      text collate "C" not null,
  savepoint text collate "C" not null,
  resource  text collate "C" not null,
  number    bigint not null,
  whole     boolean not null,
  frontier  jsonb not null,
  state     bytea,
  made_at   timestamptz not null,
  constraint flow_savepoint_pkey primary key (flow, savepoint, resource, number)
);
