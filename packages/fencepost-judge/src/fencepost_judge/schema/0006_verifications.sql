-- Packages that a setter has verified before an import, or instead of one. The zip is in the store of test data.
create table fencepost.judge_verification (
  job_id             bigint not null,
  name               text collate "C" not null,
  digest             text collate "C" not null,
  bytes              bigint not null,
  time_limit_seconds double precision,
  asked_by           text not null,
  asked_at           timestamptz not null,
  ended_at           timestamptz,
  report             jsonb,
  constraint judge_verification_pkey primary key (job_id),
  constraint judge_verification_has_a_report check ((ended_at is null) = (report is null))
);
