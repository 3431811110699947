-- How fast jobs may start: queue:NAME for all jobs of a queue, kind:NAME for each key of a kind. Few rows; when there
-- are none, a claim looks here once and goes on.
create table fencepost.job_rate (
  name       text collate "C" primary key,
  per_second double precision not null,
  burst      double precision not null,
  constraint job_rate_is_positive check (per_second > 0),
  constraint job_rate_burst_is_one_or_more check (burst >= 1)
);

-- The token buckets. tokens is what was left at refilled_at; the clock gives the rest.
create table fencepost.job_bucket (
  name           text collate "C" not null,
  key            text collate "C" not null,
  tokens         double precision not null,
  refilled_at    timestamptz not null,
  -- The latest start that was promised to a job which found no token: the next one starts after it.
  promised_until timestamptz not null default '-infinity',
  constraint job_bucket_pkey primary key (name, key),
  constraint job_bucket_is_not_overdrawn check (tokens >= 0)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
create index job_bucket_by_age on fencepost.job_bucket (refilled_at);
