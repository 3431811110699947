-- Contests, their teams, and what juries and contestants do in them. A contest has no state of its own: its times tell it.

create table fencepost.judge_contest (
  slug            text collate "C" not null,
  title           text not null,
  scoring         text collate "C" not null,
  starts_at       timestamptz not null,
  freeze_at       timestamptz,
  ends_at         timestamptz not null,
  unfrozen_at     timestamptz,
  penalty_minutes integer not null,
  -- What contestants read of the time and the memory of secret tests. open: as measured, and what a program writes to its stderr too.
  secret_figures  text collate "C" not null default 'rounded',
  -- The scoreboard, and what the Contest API shows to spectators, need no login.
  is_public       boolean not null default false,
  -- How many gold, silver and bronze.
  medals          integer[] not null default '{4,4,4}',
  finalized_at    timestamptz,
  finalized_by    text,
  -- What contestants are told of a verdict until the contest is over: all, points without tests, or nothing.
  feedback        text collate "C" not null default 'full',
  -- How many of its submissions a team may see in full all the same.
  tokens          integer not null default 0,
  -- Whether the results are final only when a jury has verified each verdict.
  verifies        boolean not null default false,
  -- Of questions; and the answers that a jury gives often. Empty means the usual ones.
  categories      text[] not null default '{}',
  answers         text[] not null default '{}',
  constraint judge_contest_pkey primary key (slug),
  constraint judge_contest_slug_is_short check (slug ~ '^[a-z0-9][a-z0-9_-]{0,63}$'),
  constraint judge_contest_scoring_is_known check (scoring in ('icpc', 'ioi')),
  constraint judge_contest_has_a_length check (starts_at < ends_at),
  constraint judge_contest_freezes_within check (freeze_at between starts_at and ends_at),
  constraint judge_contest_penalty_is_sane check (penalty_minutes between 0 and 1440),
  constraint judge_contest_secret_figures_is_known check (secret_figures in ('shown', 'rounded', 'withheld', 'open')),
  constraint judge_contest_medals_are_three check (cardinality(medals) = 3 and 0 <= all (medals) and 1000 >= all (medals)),
  constraint judge_contest_final_has_an_actor check ((finalized_at is null) = (finalized_by is null)),
  constraint judge_contest_is_final_after_its_end check (finalized_at >= ends_at),
  constraint judge_contest_feedback_is_known check (feedback in ('full', 'points', 'none')),
  constraint judge_contest_tokens_are_few check (tokens between 0 and 1000)
);

create table fencepost.judge_contest_problem (
  contest text collate "C" not null references fencepost.judge_contest,
  label   text collate "C" not null,
  slug    text collate "C" not null,
  color   text,
  rgb     text,
  constraint judge_contest_problem_pkey primary key (contest, label),
  constraint judge_contest_problem_slug_key unique (contest, slug),
  constraint judge_contest_problem_label_is_short check (label ~ '^[A-Za-z0-9]{1,8}$'),
  constraint judge_contest_problem_rgb_is_a_color check (rgb ~ '^#([0-9A-Fa-f]{3}|[0-9A-Fa-f]{6})$')
);
create index judge_contest_problem_by_slug on fencepost.judge_contest_problem (slug, contest);

create table fencepost.judge_organization (
  contest     text collate "C" not null references fencepost.judge_contest,
  id          text collate "C" not null,
  name        text not null,
  formal_name text,
  country     text,
  icpc_id     text,
  constraint judge_organization_pkey primary key (contest, id),
  constraint judge_organization_id_is_plain check (id ~ '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,35}$' and id !~ '\.$'),
  constraint judge_organization_country_is_a_code check (country ~ '^[A-Z]{3}$')
);

-- Participants are ranked. Observers are shown to all and not ranked. Hidden teams are shown to juries only.
create table fencepost.judge_group (
  contest text collate "C" not null references fencepost.judge_contest,
  id      text collate "C" not null,
  name    text not null,
  kind    text collate "C" not null default 'participants',
  type    text,
  icpc_id text,
  constraint judge_group_pkey primary key (contest, id),
  constraint judge_group_id_is_plain check (id ~ '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,35}$' and id !~ '\.$'),
  constraint judge_group_kind_is_known check (kind in ('participants', 'observers', 'hidden'))
);

-- A user that joins by itself is a team of one.
create table fencepost.judge_team (
  contest      text collate "C" not null references fencepost.judge_contest,
  id           text collate "C" not null,
  name         text not null,
  label        text not null,
  display_name text,
  organization text collate "C",
  icpc_id      text,
  hidden       boolean not null default false,
  location     text,
  members      text[] not null default '{}',
  constraint judge_team_pkey primary key (contest, id),
  constraint judge_team_has_an_organization foreign key (contest, organization) references fencepost.judge_organization,
  constraint judge_team_id_is_plain check (id ~ '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,35}$' and id !~ '\.$')
);

create table fencepost.judge_team_group (
  contest  text collate "C" not null,
  team     text collate "C" not null,
  group_id text collate "C" not null,
  constraint judge_team_group_pkey primary key (contest, team, group_id),
  constraint judge_team_group_has_a_team foreign key (contest, team) references fencepost.judge_team,
  constraint judge_team_group_has_a_group foreign key (contest, group_id) references fencepost.judge_group
);

-- Every contestant acts for a team.
create table fencepost.judge_contestant (
  contest   text collate "C" not null references fencepost.judge_contest,
  name      text collate "C" not null,
  joined_at timestamptz not null,
  team      text collate "C" not null,
  constraint judge_contestant_pkey primary key (contest, name),
  constraint judge_contestant_has_a_team foreign key (contest, team) references fencepost.judge_team
);
create index judge_contestant_by_team on fencepost.judge_contestant (contest, team);

-- Intervals in which the clock of a contest stands still, for all or for one team: they do not count, and the end is later by their
-- length.
create table fencepost.judge_interval (
  contest  text collate "C" not null references fencepost.judge_contest,
  id       bigint generated always as identity,
  team     text collate "C",
  from_at  timestamptz not null,
  until_at timestamptz not null,
  reason   text not null,
  made_at  timestamptz not null,
  made_by  text not null,
  constraint judge_interval_pkey primary key (contest, id),
  constraint judge_interval_has_a_team foreign key (contest, team) references fencepost.judge_team,
  constraint judge_interval_has_a_length check (from_at < until_at)
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
  category         text,
  constraint judge_clarification_pkey primary key (clarification_id),
  constraint judge_clarification_answer_has_an_author
    check ((answer is null) = (answered_at is null) and (answer is null) = (answered_by is null)),
  constraint judge_clarification_to_all_has_an_answer check (not to_all or answer is not null)
);
create index judge_clarification_by_contest on fencepost.judge_clarification (contest, clarification_id);

-- The change of the feed up to which a user has read the questions of a contest.
create table fencepost.judge_clarification_read (
  contest text collate "C" not null references fencepost.judge_contest,
  name    text collate "C" not null,
  seq     bigint not null,
  constraint judge_clarification_read_pkey primary key (contest, name)
);

-- One row for each change, which names the object that changed; what the object is now is read when the row is served.
create table fencepost.judge_feed (
  contest text collate "C" not null references fencepost.judge_contest,
  seq     bigint not null,
  type    text collate "C" not null,
  id      text collate "C",
  constraint judge_feed_pkey primary key (contest, seq)
);
create index judge_feed_clarifications on fencepost.judge_feed (contest, seq) where type = 'clarifications';

-- The number of the last change. told_at: until when the contest's own times are in the feed.
create table fencepost.judge_feed_head (
  contest text collate "C" not null references fencepost.judge_contest,
  seq     bigint not null,
  told_at timestamptz not null,
  constraint judge_feed_head_pkey primary key (contest)
) with (fillfactor = 50);

-- The results that a contest reveals one by one: a team at a problem, which the freeze hid.
create table fencepost.judge_revealed (
  contest     text collate "C" not null,
  team        text collate "C" not null,
  slug        text collate "C" not null,
  revealed_at timestamptz not null,
  constraint judge_revealed_pkey primary key (contest, team, slug),
  constraint judge_revealed_has_a_team foreign key (contest, team) references fencepost.judge_team
);
