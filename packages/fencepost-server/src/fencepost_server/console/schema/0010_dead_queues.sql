-- The kernel has it now, as _job_dead_queues.
drop function if exists fencepost._console_dead_queues();

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
