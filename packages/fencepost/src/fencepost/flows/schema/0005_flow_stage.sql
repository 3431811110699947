-- What a keyed stage of a flow sends to later stages: a log of each of its key groups, appended to in the group's own commits, so that it
-- can be sent again exactly. And its rows in savepoints.
create table fencepost.flow_stage (
  flow     text collate "C" not null,
  sender   text collate "C" not null,
  -- The task that appends.
  resource text collate "C" not null,
  -- The highest number that was ever given: it goes back only with a restore, which ends the edition.
  last     bigint not null default 0,
  -- The token of the lease under which the task ended with the last row; null while it has not.
  ended_by bigint,
  constraint flow_stage_pkey primary key (flow, sender),
  constraint flow_stage_is_counted check (last >= 0)
);

create table fencepost.flow_stage_row (
  flow       text collate "C" not null,
  sender     text collate "C" not null,
  number     bigint not null,
  -- The commit that appended it; 0 after a restore.
  checkpoint bigint not null,
  content    bytea not null,
  records    integer not null,
  -- Of the sender, behind the row; null where it has not moved.
  watermark  double precision,
  constraint flow_stage_row_pkey primary key (flow, sender, number)
);

create table fencepost.flow_stage_saved (
  flow      text collate "C" not null,
  savepoint text collate "C" not null,
  sender    text collate "C" not null,
  -- 0 for how far the sender was, in `last`; the others are its rows.
  number    bigint not null,
  resource  text collate "C",
  last      bigint,
  ended     boolean,
  content   bytea,
  records   integer,
  watermark double precision,
  constraint flow_stage_saved_pkey primary key (flow, savepoint, sender, number)
);
