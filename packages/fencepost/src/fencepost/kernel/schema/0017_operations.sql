-- Schedules of releases. A release is what a worker's code declares; its workers renew it. A schedule that no live release
-- declares retires; what was added or changed at run time stays beside it.
create table fencepost.job_schedule_release (
  release    text collate "C" primary key,
  -- By name, the columns of job_schedule that the code declares.
  schedules  jsonb not null,
  first_at   timestamptz not null,
  live_until timestamptz not null,
  constraint job_schedule_release_has_schedules check (jsonb_typeof(schedules) = 'object')
);
alter table fencepost.job_schedule
  -- The release whose declaration is stored here; null for a schedule that was added at run time.
  add column release text collate "C",
  -- What was set at run time, by column: it has precedence over what the release declares.
  add column changes jsonb,
  add column changed_at timestamptz,
  add column changed_by text,
  add column retired_at timestamptz,
  -- next_tick is when the expression changed, and no tick of it: the scheduler computes the next one.
  add column is_unplanned boolean not null default false;
-- Declared by workers that did not say of which release they are: the next workers declare them again.
update fencepost.job_schedule set release = 'unknown';
drop index fencepost.job_schedule_due;
create index job_schedule_due on fencepost.job_schedule (next_tick) where retired_at is null;

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
