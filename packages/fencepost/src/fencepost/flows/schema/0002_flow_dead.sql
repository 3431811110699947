-- Dead letters: records that a step could not take, written in the commit that passes them by. A person who asks for a
-- replay gives them a number; the flow reads them by it, as it reads any other source.
create table fencepost.flow_dead (
  id           bigint generated always as identity,
  flow         text collate "C" not null,
  step         text collate "C" not null,
  resource     text collate "C" not null,
  -- The key and the value as state is packed, so that they come back as they were; and in words, for people.
  record       bytea not null,
  preview      text not null,
  error        text not null,
  died_at      timestamptz not null,
  replay       bigint,
  replay_at    timestamptz,
  replay_by    text,
  constraint flow_dead_pkey primary key (id),
  constraint flow_dead_replay_is_whole check ((replay is null) = (replay_at is null) and (replay is null) = (replay_by is null)),
  constraint flow_dead_replay_is_counted check (replay is null or replay > 0)
);
create index flow_dead_waiting on fencepost.flow_dead (flow, step, id) where replay is null;
-- A replay's place among those of its step: what the flow's frontier stands at.
create unique index flow_dead_replays on fencepost.flow_dead (flow, step, replay) where replay is not null;

-- What each task did lately: for pictures, not for truth. One row a task, replaced again and again.
create table fencepost.flow_activity (
  resource    text collate "C" not null,
  token       bigint not null,
  reported_at timestamptz not null,
  activity    jsonb not null,
  constraint flow_activity_pkey primary key (resource)
) with (fillfactor = 50);
