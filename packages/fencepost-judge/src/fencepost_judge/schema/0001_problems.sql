-- The roles of the judge, and problems.
insert into fencepost.account_service_role (service, role, rank)
values ('judge', 'contestant', 1), ('judge', 'jury', 2), ('judge', 'admin', 3);
insert into fencepost.webhook_known_topic (topic, about) values ('judge', 'verdicts of submissions, and verdicts that a rejudging changes');

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
