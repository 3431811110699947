-- Problems, submissions and their results. What is judged is the job; a result is the job's one finishing write, so its
-- key is the job's id, and nobody but the holder of the job's fence can write it.

-- Every version that was ever imported: a submission is judged by the one it was sent to.
create table fencepost.judge_problem (
  slug        text collate "C" not null,
  version     integer not null,
  title       text not null,
  spec        jsonb not null,
  imported_at timestamptz not null,
  constraint judge_problem_pkey primary key (slug, version),
  constraint judge_problem_version_is_positive check (version > 0),
  constraint judge_problem_slug_is_short check (slug ~ '^[a-z0-9][a-z0-9_-]{0,63}$')
);

-- No foreign key to the job: finished jobs are pruned, results stay.
create table fencepost.judge_submission (
  job_id       bigint not null,
  slug         text collate "C" not null,
  version      integer not null,
  language     text collate "C" not null,
  author       text not null,
  sources      jsonb not null,
  submitted_at timestamptz not null,
  constraint judge_submission_pkey primary key (job_id),
  constraint judge_submission_has_a_problem foreign key (slug, version) references fencepost.judge_problem
);
create index judge_submission_by_author on fencepost.judge_submission (author, job_id);
create index judge_submission_by_problem on fencepost.judge_submission (slug, version, job_id);

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
  constraint judge_result_pkey primary key (job_id),
  constraint judge_result_has_a_submission foreign key (job_id) references fencepost.judge_submission,
  constraint judge_result_verdict_is_known
    check (verdict in ('AC', 'PA', 'WA', 'PE', 'TLE', 'MLE', 'OLE', 'RE', 'CE', 'SE'))
);
