-- Unique jobs: how long a job holds its key, and labels by which jobs are found.

-- A key may outlive its job, and may be held in some states only. Null states stand for waiting and running.
alter table fencepost.job_unique add column held_until timestamptz;
alter table fencepost.job_unique add column states text[];
create index job_unique_by_end on fencepost.job_unique (held_until) where held_until is not null;

-- The labels of a job: its tags (tag:NAME) and the arguments that are searched (arg:NAME=VALUE). A job without labels has no
-- row here. Read from the newest job down.
create table fencepost.job_label (
  label  text collate "C" not null,
  job_id bigint not null,
  constraint job_label_pkey primary key (label, job_id)
);
create index job_label_by_job on fencepost.job_label (job_id);

-- What a schedule submits with, beside the columns: unique terms, tags and searched arguments.
alter table fencepost.job_schedule add column terms jsonb not null default '{}';

-- Their arguments or answers are others now.
drop function if exists fencepost.job_submit(
  text, text, jsonb, integer, timestamptz, integer, interval, text, text, integer, jsonb);
drop function if exists fencepost.job_submit_many(
  text, text, jsonb[], integer, timestamptz, integer, interval, text[], text[], integer, jsonb[]);
drop function if exists fencepost.schedule_declare(
  text, text, text, text, interval, timestamptz, text, text, jsonb, integer, integer, interval, text, text, integer, jsonb);
