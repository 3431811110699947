-- What every component's functions and the grants were made from, so that nothing is made again that is there already.
create table fencepost.schema_digest (
  component  text not null,
  digest     text not null,
  applied_at timestamptz not null default clock_timestamp(),
  constraint schema_digest_pkey primary key (component)
);
