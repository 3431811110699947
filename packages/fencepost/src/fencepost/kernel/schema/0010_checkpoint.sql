-- A checkpoint is state, frontier and sink handles that move together. It belongs to a resource, and only the
-- holder of that resource's lease may write it.
create table fencepost.checkpoint (
  resource     text collate "C" not null,
  number       bigint not null,
  token        bigint not null,
  status       text collate "C" not null,
  -- A whole state, or a change against the checkpoint before it.
  whole        boolean not null default true,
  frontier     jsonb,
  state        bytea,
  handles      jsonb not null default '[]',
  begun_at     timestamptz not null,
  stored_at    timestamptz,
  committed_at timestamptz,
  constraint checkpoint_pkey primary key (resource, number),
  constraint checkpoint_status_is_known check (status in ('begun', 'stored', 'committed', 'aborted')),
  constraint checkpoint_durable_has_frontier
    check (status not in ('stored', 'committed') or (frontier is not null and stored_at is not null)),
  constraint checkpoint_number_is_positive check (number > 0)
);
create index checkpoint_durable on fencepost.checkpoint (resource, number desc) where status in ('stored', 'committed');
create index checkpoint_begun on fencepost.checkpoint (resource, number) where status = 'begun';
