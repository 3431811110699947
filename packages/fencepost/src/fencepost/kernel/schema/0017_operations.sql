-- Claims by kind: a job that the claiming worker does not serve is set aside for the workers that do.

-- What jobs that were set aside need of a worker: that it serves the queue and the kind, knows the arguments,
-- and offers the abilities that the job's header "needs" names. The digest is of all four: arguments are as many and as long as a
-- payload has them, too long for a key.
create table fencepost.job_need (
  need_id   integer generated always as identity,
  queue     text collate "C" not null,
  kind      text collate "C" not null,
  arguments text[] not null,
  abilities text[] not null,
  digest    bytea not null,
  noted_at  timestamptz not null,
  constraint job_need_pkey primary key (need_id),
  constraint job_need_digest_key unique (digest)
);
create index job_need_by_queue on fencepost.job_need (queue);

-- Null for a job that any worker of the queue may look at, which is nearly every job. Jobs that were set aside lie in an index of
-- their own, so that a claim passes none that it may not take.
alter table fencepost.job_waiting add column need_id integer;
alter table fencepost.job_waiting add constraint job_waiting_aside_has_no_entry check (need_id is null or entry_id is null);
drop index fencepost.job_waiting_pending;
create index job_waiting_pending on fencepost.job_waiting (hashtext(queue), priority, run_at, job_id)
  where dispatched_at is null and need_id is null;
create index job_waiting_aside on fencepost.job_waiting (need_id, priority, run_at, job_id) where need_id is not null;

-- What each live worker serves. It announces itself under its lease; with another token the row is of a former holder of the place.
create table fencepost.job_worker (
  resource text collate "C" not null,
  token    bigint not null,
  queues   text[] not null,
  serves   jsonb not null,
  constraint job_worker_pkey primary key (resource)
);

-- They are told what the claiming worker serves.
drop function if exists fencepost._job_check_claim(text, interval);
drop function if exists fencepost._job_start(bigint[], bigint[], text, interval, timestamptz);
drop function if exists fencepost._job_claim(bigint[], text, interval, boolean);
drop function if exists fencepost._job_claim_one(bigint, text, interval);
drop function if exists fencepost.job_claim_many(bigint[], text, interval);
drop function if exists fencepost.job_claim_next(text, integer, text, integer, interval, boolean);
drop function if exists fencepost.job_claim_by_priority(text, text, integer, interval, boolean, bigint, timestamptz[]);
drop function if exists fencepost._priorities_due(text, integer, boolean, timestamptz, timestamptz[]);
