-- System errors, and the judges that produce them.

-- Every system error of the last days: which judge failed at which job. blamed: it is counted against the judge.
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
