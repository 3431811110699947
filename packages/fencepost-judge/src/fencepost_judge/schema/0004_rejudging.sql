-- Rejudging: submissions judged again beside their standing results, as a generation that is applied or dropped as a whole.
create table fencepost.judge_rejudging (
  generation bigint generated always as identity,
  scope      jsonb not null,
  reason     text not null,
  state      text collate "C" not null default 'judging',
  made_at    timestamptz not null,
  made_by    text not null,
  settled_at timestamptz,
  settled_by text,
  constraint judge_rejudging_pkey primary key (generation),
  constraint judge_rejudging_state_is_known check (state in ('judging', 'applied', 'dropped')),
  constraint judge_rejudging_settled_has_an_actor
    check ((state = 'judging') = (settled_at is null) and (settled_at is null) = (settled_by is null))
);

-- One submission of one generation: the job that judges it, by which version of the problem, and what it got.
create table fencepost.judge_rejudged (
  generation    bigint not null references fencepost.judge_rejudging,
  submission_id bigint not null references fencepost.judge_submission,
  job_id        bigint not null,
  version       integer not null,
  attempt       bigint,
  verdict       text collate "C",
  score         double precision,
  time_ms       bigint,
  mem_kb        bigint,
  message       text,
  cases         jsonb,
  points        jsonb,
  judged_at     timestamptz,
  before        jsonb,
  started_at    timestamptz,
  constraint judge_rejudged_pkey primary key (generation, submission_id),
  constraint judge_rejudged_job_key unique (job_id),
  constraint judge_rejudged_is_whole check ((judged_at is null) = (verdict is null) and (judged_at is null) = (attempt is null))
);
