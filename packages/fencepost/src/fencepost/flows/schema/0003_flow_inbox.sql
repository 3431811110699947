-- Outbox channels as sources. A message leaves the outbox once and has no lasting number there; so it is moved, in one transaction,
-- into a log of the flow's own, where its number is an offset like any other.
create table fencepost.flow_inbox (
  flow    text collate "C" not null,
  source  text collate "C" not null,
  channel text not null,
  -- The highest number that was ever used: it never goes back, also when everything below it was removed.
  last    bigint not null default 0,
  constraint flow_inbox_pkey primary key (flow, source)
);

create table fencepost.flow_inbox_message (
  flow       text collate "C" not null,
  source     text collate "C" not null,
  number     bigint not null,
  message_id bigint not null,
  key        text,
  payload    jsonb not null,
  headers    jsonb not null,
  created_at timestamptz not null,
  constraint flow_inbox_message_pkey primary key (flow, source, number),
  constraint flow_inbox_message_once unique (message_id)
);
