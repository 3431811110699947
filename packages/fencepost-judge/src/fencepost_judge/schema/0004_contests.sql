-- Contests, who takes part, and clarifications. A contest has no state of its own: what it is follows from its times.

create table fencepost.judge_contest (
  slug            text collate "C" not null,
  title           text not null,
  scoring         text collate "C" not null,
  starts_at       timestamptz not null,
  freeze_at       timestamptz,
  ends_at         timestamptz not null,
  unfrozen_at     timestamptz,
  penalty_minutes integer not null,
  constraint judge_contest_pkey primary key (slug),
  constraint judge_contest_slug_is_short check (slug ~ '^[a-z0-9][a-z0-9_-]{0,63}$'),
  constraint judge_contest_scoring_is_known check (scoring in ('icpc', 'ioi')),
  constraint judge_contest_has_a_length check (starts_at < ends_at),
  constraint judge_contest_freezes_within check (freeze_at between starts_at and ends_at),
  constraint judge_contest_penalty_is_sane check (penalty_minutes between 0 and 1440)
);

create table fencepost.judge_contest_problem (
  contest text collate "C" not null references fencepost.judge_contest,
  label   text collate "C" not null,
  slug    text collate "C" not null,
  constraint judge_contest_problem_pkey primary key (contest, label),
  constraint judge_contest_problem_slug_key unique (contest, slug),
  constraint judge_contest_problem_label_is_short check (label ~ '^[A-Za-z0-9]{1,8}$')
);
create index judge_contest_problem_by_slug on fencepost.judge_contest_problem (slug, contest);

create table fencepost.judge_contestant (
  contest   text collate "C" not null references fencepost.judge_contest,
  name      text collate "C" not null,
  joined_at timestamptz not null,
  constraint judge_contestant_pkey primary key (contest, name)
);

create table fencepost.judge_clarification (
  clarification_id bigint generated always as identity,
  contest          text collate "C" not null references fencepost.judge_contest,
  label            text collate "C",
  author           text collate "C" not null,
  question         text not null,
  asked_at         timestamptz not null,
  answer           text,
  answered_at      timestamptz,
  answered_by      text,
  to_all           boolean not null default false,
  constraint judge_clarification_pkey primary key (clarification_id),
  constraint judge_clarification_is_answered_by_somebody
    check ((answer is null) = (answered_at is null) and (answer is null) = (answered_by is null)),
  constraint judge_clarification_to_all_has_an_answer check (not to_all or answer is not null)
);
create index judge_clarification_by_contest on fencepost.judge_clarification (contest, clarification_id);

alter table fencepost.judge_submission add column contest text collate "C" references fencepost.judge_contest;
create index judge_submission_by_contest on fencepost.judge_submission (contest, job_id) where contest is not null;

-- It takes the contest now.
drop function if exists fencepost.judge_submission_put(bigint, text, text, text, jsonb);
