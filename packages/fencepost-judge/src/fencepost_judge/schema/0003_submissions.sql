-- Submissions and their results. What is judged is the job; a result is the job's one finishing write, so its key is the job's id, and
-- only the holder of the job's fence can write it.

-- No foreign key to the job: finished jobs are pruned, results stay.
create table fencepost.judge_submission (
  job_id       bigint not null,
  slug         text collate "C" not null,
  version      integer not null,
  language     text collate "C" not null,
  author       text not null,
  sources      jsonb not null,
  submitted_at timestamptz not null,
  contest      text collate "C" references fencepost.judge_contest,
  constraint judge_submission_pkey primary key (job_id),
  constraint judge_submission_has_a_problem foreign key (slug, version) references fencepost.judge_problem
);
create index judge_submission_by_author on fencepost.judge_submission (author, job_id);
create index judge_submission_by_problem on fencepost.judge_submission (slug, version, job_id);
create index judge_submission_by_contest on fencepost.judge_submission (contest, job_id) where contest is not null;

create table fencepost.judge_result (
  job_id    bigint not null,
  attempt   bigint not null,
  verdict   text collate "C" not null,
  score     double precision,
  time_ms   bigint not null,
  mem_kb    bigint not null,
  message   text not null,
  cases     jsonb not null,
  judged_at timestamptz not null,
  -- The rejudging that it came from: 0 is the submission's own judging. Only a later one replaces it.
  generation bigint not null default 0,
  version   integer not null,
  points    jsonb not null default '{}',
  started_at timestamptz,
  constraint judge_result_pkey primary key (job_id),
  constraint judge_result_has_a_submission foreign key (job_id) references fencepost.judge_submission,
  constraint judge_result_verdict_is_known
    check (verdict in ('AC', 'PA', 'WA', 'PE', 'TLE', 'MLE', 'OLE', 'RE', 'CE', 'SE'))
);

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

-- What a user may still submit: a bucket that fills by the clock.
create table fencepost.judge_allowance (
  name        text collate "C" not null,
  tokens      double precision not null,
  refilled_at timestamptz not null,
  constraint judge_allowance_pkey primary key (name),
  constraint judge_allowance_is_not_overdrawn check (tokens >= 0),
  constraint judge_allowance_has_an_account foreign key (name) references fencepost.account
);

-- Custom runs: a program that is compiled, and run on an input of its author's own if there is one. Not judged, and removed soon.
create table fencepost.judge_custom_run (
  job_id     bigint not null,
  author     text collate "C" not null,
  language   text collate "C" not null,
  sources    jsonb not null,
  input      text,
  keep       interval not null,
  made_at    timestamptz not null,
  expires_at timestamptz not null,
  outcome    jsonb,
  constraint judge_custom_run_pkey primary key (job_id)
);
create index judge_custom_run_by_expiry on fencepost.judge_custom_run (expires_at);

-- The submissions that a team has chosen to see in full.
create table fencepost.judge_token_played (
  contest   text collate "C" not null,
  team      text collate "C" not null,
  job_id    bigint not null references fencepost.judge_submission,
  played_at timestamptz not null,
  played_by text not null,
  constraint judge_token_played_pkey primary key (job_id),
  constraint judge_token_played_has_a_team foreign key (contest, team) references fencepost.judge_team
);
create index judge_token_played_by_team on fencepost.judge_token_played (contest, team);

-- Verdicts that a jury has verified. A verdict of a later generation has to be verified again.
create table fencepost.judge_verified (
  job_id      bigint not null references fencepost.judge_submission,
  generation  bigint not null,
  verified_at timestamptz not null,
  verified_by text not null,
  constraint judge_verified_pkey primary key (job_id)
);

-- What juries write to each other about a submission.
create table fencepost.judge_note (
  note_id bigint generated always as identity,
  job_id  bigint not null references fencepost.judge_submission,
  author  text not null,
  text    text not null,
  made_at timestamptz not null,
  constraint judge_note_pkey primary key (job_id, note_id)
);

-- Balloons that were delivered, and by which user. The results tell which team has one.
create table fencepost.judge_balloon (
  contest      text collate "C" not null,
  team         text collate "C" not null,
  slug         text collate "C" not null,
  delivered_at timestamptz not null,
  delivered_by text not null,
  constraint judge_balloon_pkey primary key (contest, team, slug),
  constraint judge_balloon_has_a_team foreign key (contest, team) references fencepost.judge_team
);
