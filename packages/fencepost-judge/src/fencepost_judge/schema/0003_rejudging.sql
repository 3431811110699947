-- Rejudging: submissions judged again beside their standing results, as a generation that is applied or dropped as a whole.

-- The generation that a standing result came from: 0 is the submission's own judging. Only a later one replaces it.
alter table fencepost.judge_result
  add column generation bigint not null default 0,
  add column version integer,
  add column points jsonb not null default '{}';
update fencepost.judge_result r set version = s.version from fencepost.judge_submission s where s.job_id = r.job_id;
alter table fencepost.judge_result alter column version set not null;

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
  constraint judge_rejudging_is_settled_by_somebody
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
  constraint judge_rejudged_pkey primary key (generation, submission_id),
  constraint judge_rejudged_job_key unique (job_id),
  constraint judge_rejudged_is_whole check ((judged_at is null) = (verdict is null) and (judged_at is null) = (attempt is null))
);

-- It answers now whether the result was kept, and takes the points of groups.
drop function if exists fencepost.judge_result_put(bigint, bigint, text, text, double precision, bigint, bigint, text, jsonb);
