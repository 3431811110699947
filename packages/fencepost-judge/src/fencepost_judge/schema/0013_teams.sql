-- Teams, organizations and groups of contests, and the feed of changes that the Contest API serves.

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

-- Participants are ranked. Observers are shown to all and not ranked. Hidden teams are there for juries only.
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
alter table fencepost.judge_contestant add column team text collate "C";
update fencepost.judge_contestant n
set team = case when n.name ~ '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,35}$' and n.name !~ '\.$' then n.name else 'u' || md5(n.name) end;
insert into fencepost.judge_team (contest, id, name, label) select n.contest, n.team, n.name, n.name from fencepost.judge_contestant n;
alter table fencepost.judge_contestant
  alter column team set not null,
  add constraint judge_contestant_has_a_team foreign key (contest, team) references fencepost.judge_team;
create index judge_contestant_by_team on fencepost.judge_contestant (contest, team);

alter table fencepost.judge_contest_problem
  add column color text,
  add column rgb text,
  add constraint judge_contest_problem_rgb_is_a_color check (rgb ~ '^#([0-9A-Fa-f]{3}|[0-9A-Fa-f]{6})$');

-- is_public: its scoreboard and what the Contest API shows to spectators need no login. medals: how many gold, silver and bronze.
alter table fencepost.judge_contest
  add column is_public boolean not null default false,
  add column medals integer[] not null default '{4,4,4}',
  add column finalized_at timestamptz,
  add column finalized_by text,
  add constraint judge_contest_medals_are_three check (cardinality(medals) = 3 and 0 <= all (medals) and 1000 >= all (medals)),
  add constraint judge_contest_final_has_an_actor check ((finalized_at is null) = (finalized_by is null)),
  add constraint judge_contest_is_final_after_its_end check (finalized_at >= ends_at);

-- The results that a contest reveals one by one: what the freeze hid of a team at a problem.
create table fencepost.judge_revealed (
  contest     text collate "C" not null,
  team        text collate "C" not null,
  slug        text collate "C" not null,
  revealed_at timestamptz not null,
  constraint judge_revealed_pkey primary key (contest, team, slug),
  constraint judge_revealed_has_a_team foreign key (contest, team) references fencepost.judge_team
);

-- When the judging of a result began.
alter table fencepost.judge_result add column started_at timestamptz;
alter table fencepost.judge_rejudged add column started_at timestamptz;

-- One row for each change, which names the object that changed; what the object is now is read when the row is served.
create table fencepost.judge_feed (
  contest text collate "C" not null references fencepost.judge_contest,
  seq     bigint not null,
  type    text collate "C" not null,
  id      text collate "C",
  constraint judge_feed_pkey primary key (contest, seq)
);

-- The number of the last change. told_at: until when the contest's own times were looked at.
create table fencepost.judge_feed_head (
  contest text collate "C" not null references fencepost.judge_contest,
  seq     bigint not null,
  told_at timestamptz not null,
  constraint judge_feed_head_pkey primary key (contest)
) with (fillfactor = 50);
insert into fencepost.judge_feed_head (contest, seq, told_at) select c.slug, 0, fencepost.clock() from fencepost.judge_contest c;

-- They take or answer more now.
drop function if exists fencepost.judge_contest_put(
  text, text, text, timestamptz, timestamptz, timestamptz, integer, text[], text[], text, text);
drop function if exists fencepost.judge_contests(text, text, integer);
drop function if exists fencepost.judge_contest_contestants(text);
drop function if exists fencepost.judge_contest_entries(text);

-- While the clock of a contest stands still, for all or for one team: nobody's time goes on, and the end comes later by as much.
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

-- feedback: what contestants are told of a verdict until the contest is over; all, points without tests, or nothing.
-- tokens: how many of its submissions a team may see in full all the same.
-- verifies: whether the results are final only when a jury has verified each verdict.
-- categories, answers: of questions, and the answers that a jury gives often. Empty means the usual ones.
alter table fencepost.judge_contest
  add column feedback text collate "C" not null default 'full',
  add column tokens integer not null default 0,
  add column verifies boolean not null default false,
  add column categories text[] not null default '{}',
  add column answers text[] not null default '{}',
  add constraint judge_contest_feedback_is_known check (feedback in ('full', 'points', 'none')),
  add constraint judge_contest_tokens_are_few check (tokens between 0 and 1000);

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

-- A verdict that a jury looked at. One of a later generation has to be verified again.
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

-- Which team has a balloon follows from the results; who brought it is here.
create table fencepost.judge_balloon (
  contest      text collate "C" not null,
  team         text collate "C" not null,
  slug         text collate "C" not null,
  delivered_at timestamptz not null,
  delivered_by text not null,
  constraint judge_balloon_pkey primary key (contest, team, slug),
  constraint judge_balloon_has_a_team foreign key (contest, team) references fencepost.judge_team
);

alter table fencepost.judge_clarification add column category text;

-- Until which change of the feed somebody has read the questions of a contest.
create table fencepost.judge_clarification_read (
  contest text collate "C" not null references fencepost.judge_contest,
  name    text collate "C" not null,
  seq     bigint not null,
  constraint judge_clarification_read_pkey primary key (contest, name)
);
create index judge_feed_clarifications on fencepost.judge_feed (contest, seq) where type = 'clarifications';

insert into fencepost.webhook_known_topic (topic, about) values ('judge', 'verdicts of submissions, and verdicts that a rejudging changes');

-- They answer more now, or take more.
drop function if exists fencepost.judge_status(bigint);
drop function if exists fencepost.judge_history(text, bigint, integer);
drop function if exists fencepost.judge_clarifications(text, text, bigint, integer);
drop function if exists fencepost.judge_clarification_ask(text, text, text, text);

-- open: as measured, and what a program writes to its stderr too.
alter table fencepost.judge_contest
  drop constraint judge_contest_secret_figures_is_known,
  add constraint judge_contest_secret_figures_is_known check (secret_figures in ('shown', 'rounded', 'withheld', 'open'));
