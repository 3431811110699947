-- Who judges: a numbered place for each worker that is there. Who may sit on a place is decided by the kernel's lease on
-- judge-worker:<place>, whose row is never deleted; a place that is free is taken by the next one who comes, so that there
-- are never more of them than workers were there at once.
create table fencepost.judge_worker (
  place        integer not null,
  owner        text not null,
  token        bigint not null,
  host         text not null,
  version      text not null,
  languages    jsonb not null,
  slots        integer not null,
  processors   integer not null,
  sandbox      text not null,
  degraded     jsonb not null,
  busy         integer not null default 0,
  load_average double precision not null default 0,
  entered_at   timestamptz not null,
  constraint judge_worker_pkey primary key (place),
  constraint judge_worker_place_is_positive check (place > 0),
  constraint judge_worker_has_room check (slots > 0 and processors > 0),
  constraint judge_worker_load_is_a_load check (busy >= 0 and load_average >= 0 and load_average < 'infinity'),
  constraint judge_worker_languages_have_names check (jsonb_typeof(languages) = 'object'),
  constraint judge_worker_degraded_is_a_list check (jsonb_typeof(degraded) = 'array')
) with (fillfactor = 50);
