-- Dead letters: records that a step could not take or a sink rejected, written in the commit that skips them. A replay gives them a
-- number, by which the flow reads them as it reads any other source.
create table fencepost.flow_dead (
  id           bigint generated always as identity,
  flow         text collate "C" not null,
  step         text collate "C" not null,
  resource     text collate "C" not null,
  -- The key and the value, encoded as state is, so that they come back as they were; and as text, for people.
  record       bytea not null,
  preview      text not null,
  error        text not null,
  died_at      timestamptz not null,
  replay       bigint,
  replay_at    timestamptz,
  replay_by    text,
  -- What a service rejected: the body that it got, and what it answered.
  body         bytea,
  answer       text,
  constraint flow_dead_pkey primary key (id),
  constraint flow_dead_replay_is_whole check ((replay is null) = (replay_at is null) and (replay is null) = (replay_by is null)),
  constraint flow_dead_replay_is_counted check (replay is null or replay > 0)
);
create index flow_dead_waiting on fencepost.flow_dead (flow, step, id) where replay is null;
-- The numbers of a step's replays: the flow's frontier is one of them.
create unique index flow_dead_replays on fencepost.flow_dead (flow, step, replay) where replay is not null;
