-- The stateful steps of a flow, as they were accepted one after the other; and how many records came too late.
alter table fencepost.flow
  -- The newest row of flow_layout; 0 for a flow of before, until it registers again.
  add column layout bigint not null default 0,
  add constraint flow_layout_is_counted check (layout >= 0);

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

-- Null for a savepoint of before: it is of the layout that the flow had first.
alter table fencepost.flow_savepoint add column layout bigint;

-- Records that no window took, counted in the commit that passes them by; and the newest of them, in words.
create table fencepost.flow_late (
  resource text collate "C" not null,
  records  bigint not null,
  last_at  timestamptz not null,
  samples  jsonb not null,
  constraint flow_late_pkey primary key (resource),
  constraint flow_late_is_counted check (records > 0)
);

-- Dead letters of sinks: what a service rejected, with the body that it got and what it answered. And what stops a task.
alter table fencepost.flow_dead
  add column body   bytea,
  add column answer text;

-- These have other arguments or answers now.
drop function if exists fencepost.flow_bury(text, text, text, bigint, bytea[], text[], text[]);
drop function if exists fencepost.flow_failing(text, interval);
