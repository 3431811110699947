-- How a flow is divided and what it reads, under which number; commits on demand; and how tasks were put back.
alter table fencepost.flow
  -- Units, key groups and senders: what the frontiers of its tasks mean. Null for a flow of before, until it registers again.
  add column shape jsonb,
  -- Grows when another shape takes its place, so that a worker of the shape before can commit nothing any more.
  add column edition bigint not null default 1,
  -- Set by an operator: every task commits, whether it is due or not.
  add column commit_asked_at timestamptz,
  add constraint flow_edition_is_counted check (edition > 0);

-- A task that was put back: its checkpoint `number` is a copy of `origin` (0: it began anew). Numbered sinks are judged by it: a
-- sink that does not know of it yet has lost nothing.
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

-- These have other arguments or answers now.
drop function if exists fencepost.flow_register(text, jsonb, text);
drop function if exists fencepost.flow_commit(text, bigint, jsonb, jsonb, bytea, boolean);
