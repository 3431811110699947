-- Schedules, which submit jobs by the clock, and the releases that declare them.

-- A schedule submits one job for each of its ticks. The scheduler reads the expression; the database keeps the next tick
-- and makes sure that each is taken once. A schedule that no live release declares retires; what was added or changed at run time
-- stays beside it.
create table fencepost.job_schedule (
  name              text collate "C" primary key,
  expression        text collate "C" not null,
  zone              text collate "C" not null,
  missed            text collate "C" not null,
  grace             interval not null,
  -- What each tick submits.
  queue             text collate "C" not null,
  kind              text collate "C" not null,
  payload           jsonb not null,
  headers           jsonb not null,
  priority          smallint not null,
  tries_max         integer not null,
  lease             interval not null,
  unique_key        text collate "C",
  concurrency_key   text collate "C",
  concurrency_limit integer,
  next_tick         timestamptz not null,
  declared_at       timestamptz not null,
  paused_at         timestamptz,
  paused_by         text,
  -- What each tick submits with, beside the columns: unique terms, tags and searched arguments.
  terms             jsonb not null default '{}',
  -- The release whose declaration is stored here; null for a schedule that was added at run time.
  release           text collate "C",
  -- What was set at run time, by column: it has precedence over what the release declares.
  changes           jsonb,
  changed_at        timestamptz,
  changed_by        text,
  retired_at        timestamptz,
  -- next_tick is when the expression changed, and no tick of it: the scheduler computes the next one.
  is_unplanned      boolean not null default false,
  constraint job_schedule_missed_is_known check (missed in ('once', 'all', 'skip')),
  constraint job_schedule_grace_is_not_negative check (grace >= interval '0')
);
create index job_schedule_due on fencepost.job_schedule (next_tick) where retired_at is null;
create index job_schedule_by_kind on fencepost.job_schedule (kind);

-- One firing for each tick, on any number of nodes: the key makes sure of it.
create table fencepost.job_tick (
  schedule text collate "C" not null,
  tick     timestamptz not null,
  job_id   bigint not null,
  fired_at timestamptz not null,
  constraint job_tick_pkey primary key (schedule, tick)
);
create index job_tick_by_time on fencepost.job_tick (fired_at);

-- A release is what a worker's code declares; its workers renew it.
create table fencepost.job_schedule_release (
  release    text collate "C" primary key,
  -- By name, the columns of job_schedule that the code declares.
  schedules  jsonb not null,
  first_at   timestamptz not null,
  live_until timestamptz not null,
  constraint job_schedule_release_has_schedules check (jsonb_typeof(schedules) = 'object')
);
-- The jobs of a schedule that were submitted by a person, beside its ticks.
create table fencepost.job_schedule_run (
  run_id   bigint generated always as identity primary key,
  schedule text collate "C" not null,
  job_id   bigint not null,
  run_at   timestamptz not null,
  actor    text not null
);
create index job_schedule_run_by_schedule on fencepost.job_schedule_run (schedule, run_at);
create index job_schedule_run_by_time on fencepost.job_schedule_run (run_at);
