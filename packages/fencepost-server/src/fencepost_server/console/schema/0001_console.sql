-- The roles of the console, and what its charts read.
insert into fencepost.account_service_role (service, role, rank)
values ('console', 'viewer', 1), ('console', 'operator', 2), ('console', 'admin', 3);

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
  -- Counted while the minute lasted; null for minutes that were counted afterwards.
  waiting            bigint,
  running            bigint,
  oldest_due_seconds double precision,
  refused            jsonb,
  -- The outbox: how many were delivered, and how late.
  delivered          bigint,
  delivery_p50_seconds double precision,
  delivery_p95_seconds double precision,
  outbox_lag_seconds double precision
);

-- What happened in each minute in a queue, by kind: so that a chart of one of them reads minutes and not jobs.
create table fencepost.console_minute_part (
  minute           timestamptz not null,
  queue            text collate "C" not null,
  kind             text collate "C" not null,
  finished         bigint not null,
  dead             bigint not null,
  cancelled        bigint not null,
  run_p50_seconds  double precision,
  run_p95_seconds  double precision,
  wait_p50_seconds double precision,
  wait_p95_seconds double precision,
  constraint console_minute_part_pkey primary key (queue, minute, kind)
);
create index console_minute_part_by_minute on fencepost.console_minute_part (minute);

-- The lock of this row lets one console at a time count a minute. The read-only role cannot take it.
create table fencepost.console_roll_lock (
  only_row boolean not null default true,
  constraint console_roll_lock_pkey primary key (only_row),
  constraint console_roll_lock_has_one_row check (only_row)
);
insert into fencepost.console_roll_lock default values;

-- Takeovers are among the events of every job: an index of their own finds them, however many jobs there are.
create index event_takeovers on fencepost.event (event_id) where noun = 'lease' and event = 'taken_over';
