-- The judges, and their system errors.

-- Each live worker has a number. The kernel's lease on judge-worker:<number> decides which worker holds it, and its row is never
-- deleted; the next worker takes a number that is free, so that there are never more numbers than there were workers at once.
create table fencepost.judge_worker (
  number       integer not null,
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
  constraint judge_worker_pkey primary key (number),
  constraint judge_worker_number_is_positive check (number > 0),
  constraint judge_worker_has_room check (slots > 0 and processors > 0),
  constraint judge_worker_load_is_a_load check (busy >= 0 and load_average >= 0 and load_average < 'infinity'),
  constraint judge_worker_languages_have_names check (jsonb_typeof(languages) = 'object'),
  constraint judge_worker_degraded_is_a_list check (jsonb_typeof(degraded) = 'array')
) with (fillfactor = 50);

-- Workers that take a number wait for each other by the lock of this row. The read-only role cannot take it.
create table fencepost.judge_worker_lock (
  only_row boolean not null default true,
  constraint judge_worker_lock_pkey primary key (only_row),
  constraint judge_worker_lock_has_one_row check (only_row)
);
insert into fencepost.judge_worker_lock default values;

-- The system errors of the last days: the judge and the job. blamed: it is counted against the judge.
create table fencepost.judge_system_error (
  job_id  bigint not null,
  attempt bigint not null,
  judge   text collate "C" not null,
  at      timestamptz not null,
  error   text not null,
  blamed  boolean not null,
  constraint judge_system_error_pkey primary key (job_id, attempt)
);
create index judge_system_error_by_time on fencepost.judge_system_error (at);

-- Judges (NAME@HOST) that had a system error lately: how each of their last judgings ended, the newest last, true for a
-- system error. A judge without one has no row.
create table fencepost.judge_record (
  judge    text collate "C" not null,
  recent   boolean[] not null,
  size_max integer not null,
  constraint judge_record_pkey primary key (judge),
  constraint judge_record_has_an_error check (true = any (recent)),
  constraint judge_record_is_bounded check (cardinality(recent) <= size_max and size_max between 1 and 1000)
) with (fillfactor = 50);
