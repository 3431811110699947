-- Flows: what runs under which name, how it is divided, and how its tasks were put back. State, frontier and handles are the
-- kernel's checkpoints; ownership is leases.

create table fencepost.flow (
  name          text collate "C" not null,
  plan          jsonb not null,
  registered_at timestamptz not null,
  registered_by text not null,
  -- Set by an operator: workers commit, release everything and take nothing.
  draining_at   timestamptz,
  -- Units, key groups and senders: what the frontiers of its tasks mean. Null until it registers.
  shape         jsonb,
  -- Grows when another shape replaces it, so that a worker of the earlier shape can commit nothing any more.
  edition       bigint not null default 1,
  -- Set by an operator: every task commits, whether it is due or not.
  commit_asked_at timestamptz,
  -- The newest row of flow_layout; 0 until it registers.
  layout        bigint not null default 0,
  constraint flow_pkey primary key (name),
  constraint flow_edition_is_counted check (edition > 0),
  constraint flow_layout_is_counted check (layout >= 0)
);

-- One row for each set of stateful steps that a flow had. A state that was stored under a layout is read under a later one by what was
-- renamed and dropped on the way, from row to row by their origins.
create table fencepost.flow_layout (
  flow    text collate "C" not null,
  layout  bigint not null,
  -- The layout that it continues: the one before it, or after a restore that of the savepoint.
  origin  bigint not null,
  -- By name: kind, window, and a fingerprint of place and function.
  steps   jsonb not null,
  renamed jsonb not null,
  dropped jsonb not null,
  made_at timestamptz not null,
  made_by text not null,
  constraint flow_layout_pkey primary key (flow, layout),
  constraint flow_layout_goes_on check (layout > 0 and origin >= 0 and origin < layout)
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
  -- The layout of its states; null is the first one of the flow.
  layout    bigint,
  -- As flow_state has them; null where a checkpoint has no parts and continues none.
  since     bigint,
  parts     bytea[],
  bytes     bigint,
  constraint flow_savepoint_pkey primary key (flow, savepoint, resource, number)
);

-- A task that was put back: its checkpoint `number` is a copy of `origin` (0: it began anew). A numbered sink is judged by it:
-- a sink that does not know of it yet has lost nothing.
create table fencepost.flow_return (
  resource text collate "C" not null,
  number   bigint not null,
  origin   bigint not null,
  -- By a person, who restored a savepoint; or because a sink had lost what came after the origin.
  asked    boolean not null,
  at       timestamptz not null,
  constraint flow_return_pkey primary key (resource, number),
  constraint flow_return_goes_back check (origin >= 0 and origin < number)
);

-- Records that no window took, counted in the commit that passes them by; and the newest of them, in words.
create table fencepost.flow_late (
  resource text collate "C" not null,
  records  bigint not null,
  last_at  timestamptz not null,
  samples  jsonb not null,
  constraint flow_late_pkey primary key (resource),
  constraint flow_late_is_counted check (records > 0)
);

-- What each task did lately: for display only. One row for each task, replaced again and again.
create table fencepost.flow_activity (
  resource    text collate "C" not null,
  token       bigint not null,
  reported_at timestamptz not null,
  activity    jsonb not null,
  constraint flow_activity_pkey primary key (resource)
) with (fillfactor = 50);
