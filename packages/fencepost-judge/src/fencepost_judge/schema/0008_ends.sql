-- How submissions end without a verdict, how long test data is waited for, and what a contest tells of secret tests.

-- Kept when the job is pruned, so that pruning changes nothing that a submission reads. A verdict has a result instead.
create table fencepost.judge_ended (
  job_id       bigint not null references fencepost.judge_submission,
  state        text collate "C" not null,
  final_status text collate "C" not null,
  attempt      bigint not null,
  ended_at     timestamptz not null,
  constraint judge_ended_pkey primary key (job_id),
  constraint judge_ended_state_is_known check (state in ('dead', 'cancelled'))
);

-- Since when a job of the judge cannot reach its test data. Removed with its verdict, or with the job.
create table fencepost.judge_store_wait (
  job_id bigint not null,
  since  timestamptz not null,
  constraint judge_store_wait_pkey primary key (job_id)
);

-- What contestants read of the time and the memory of secret tests: as measured, rounded up, or nothing.
alter table fencepost.judge_contest
  add column secret_figures text collate "C" not null default 'rounded',
  add constraint judge_contest_secret_figures_is_known check (secret_figures in ('shown', 'rounded', 'withheld'));

-- They answer more columns now, or take another argument.
drop function if exists fencepost.judge_status(bigint);
drop function if exists fencepost.judge_history(text, bigint, integer);
drop function if exists fencepost.judge_recent(bigint, integer);
drop function if exists fencepost.judge_contests(text, text, integer);
drop function if exists fencepost.judge_contest_put(
  text, text, text, timestamptz, timestamptz, timestamptz, integer, text[], text[], text);
