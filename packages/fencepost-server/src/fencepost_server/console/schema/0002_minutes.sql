-- What happened in each minute, so that a chart of a day reads 1,440 rows and not a million jobs.
create table fencepost.console_minute (
  minute             timestamptz primary key,
  finished           bigint not null,
  dead               bigint not null,
  cancelled          bigint not null,
  workers            bigint not null,
  run_p50_seconds    double precision,
  run_p95_seconds    double precision,
  wait_p50_seconds   double precision,
  wait_p95_seconds   double precision,
  -- Looked at while the minute lasted; null for minutes that were counted afterwards.
  waiting            bigint,
  running            bigint,
  oldest_due_seconds double precision,
  refused            jsonb
);
