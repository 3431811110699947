-- Trials: a program that is compiled, and run on an input of its author's own if there is one. Not judged, and soon forgotten.

create table fencepost.judge_trial (
  job_id     bigint not null,
  author     text collate "C" not null,
  language   text collate "C" not null,
  sources    jsonb not null,
  input      text,
  keep       interval not null,
  made_at    timestamptz not null,
  expires_at timestamptz not null,
  outcome    jsonb,
  constraint judge_trial_pkey primary key (job_id)
);
create index judge_trial_by_expiry on fencepost.judge_trial (expires_at);
