-- Workflows: jobs that remember their steps. A worker that takes a workflow over finds what was done and goes
-- on from there; what it had done without recording it is done again.
--
--   from        event                      to          guard
--   (none)      start                      pending     as for a job
--   running     step                       running     attempt and owner; unexpired lease or open fence; no cancel
--   running     spawn                      running     the same
--   running     sleep                      pending     the same; due when the time is over
--   running     await                      running     the same; the event was emitted, or the time for it is over
--   running     await                      pending     the same; due at its deadline, or when the event is emitted
--   running     join                       running     the same; every child has ended
--   running     join                       pending     the same; due when the last child has ended
--   running     restart                    pending     the same; drops the steps
--   pending     emit                       pending     it awaits the event: due now
--   dead        retry_from                 pending     no step that stays was undone; the undo of the others is done
--   cancelled   retry_from                 pending     the same
--
-- Everything else is as in job.sql. A step is written under KEY SHARE on the running row, as a fence is, so
-- that a heartbeat passes and a takeover waits. What parks a workflow gives the try back and frees its
-- concurrency slot; the unique key stays.
--
-- Locks: an event's advisory lock, then the job's row (waiting or running), then the batches of its children in
-- order of id, then steps and waits. The end of children takes their parts, their batches, and then the rows of
-- the workflows that await them, each in order of id.

-- A workflow waits in a queue of its own for each version: a worker that does not know the version never
-- reads that queue, so it never takes what it cannot run.
create or replace function fencepost._workflow_queue(p_queue text, p_name text, p_version integer) returns text
language sql immutable
as $$ select p_queue || '/' || p_name || '@' || p_version $$;

-- Start a workflow: a job of the kind NAME@VERSION. Like job_submit it only adds rows and works at any
-- isolation level.
create or replace function fencepost.workflow_start(
  p_queue text, p_name text, p_version integer, p_payload jsonb, p_priority integer default 1, p_run_at timestamptz default null,
  p_tries_max integer default 5, p_lease interval default '60 seconds', p_unique_key text default null,
  p_concurrency_key text default null, p_concurrency_limit integer default null, p_headers jsonb default '{}'
) returns table (job_id bigint, created boolean)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._check_text('queue', p_queue, 64);
  perform fencepost._check_text('name', p_name, 48);
  if p_queue ~ '[/@]' or p_name ~ '[/@]' then
    raise exception 'name and queue of a workflow contain neither / nor @.' using errcode = 'ZF100', detail = '{"field": "name"}';
  end if;
  if p_version is null or p_version < 1 then
    raise exception 'version is %; it must be 1 or more.', coalesce(p_version::text, 'null')
      using errcode = 'ZF100', detail = '{"field": "version"}';
  end if;
  return query select s.job_id, s.created from fencepost.job_submit(
    fencepost._workflow_queue(p_queue, p_name, p_version), p_name || '@' || p_version, p_payload, p_priority, p_run_at, p_tries_max,
    p_lease, p_unique_key, p_concurrency_key, p_concurrency_limit,
    coalesce(p_headers, '{}') || jsonb_build_object('workflow', jsonb_build_object('name', p_name, 'version', p_version, 'round', 0))) s;
end $$;

-- All steps of a workflow as one array, in order: [name, what, digest, result, is_large] each; and the
-- database's time, by which a sleep is over or not. A first attempt has none and need not ask.
create or replace function fencepost.workflow_load(p_id bigint) returns table (now timestamptz, steps jsonb)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select fencepost.clock(), coalesce(
    (select jsonb_agg(jsonb_build_array(s.name, s.what, s.digest, s.result, s.is_large) order by s.step_id)
     from fencepost.workflow_step s where s.job_id = p_id), '[]')
$$;

-- Whether the attempt before p_attempt ended without a park: it failed, or its worker was lost or stopped. Served by
-- event_by_subject.
create or replace function fencepost.workflow_repeats(p_id bigint, p_attempt bigint) returns boolean
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select exists (select 1 from fencepost.event e where e.noun = 'job' and e.subject = p_id::text and e.token = p_attempt - 1
                   and e.event in ('failed', 'lost', 'released'))
$$;

-- Claim one workflow and bring all of its steps. Raises as job_claim does.
create or replace function fencepost.workflow_claim(p_id bigint, p_owner text, p_lease interval default null)
returns table (job_id bigint, attempt bigint, tries integer, queue text, kind text, payload jsonb, headers jsonb, lease interval,
               expires_at timestamptz, submitted_at timestamptz, steps jsonb)
language sql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select c.job_id, c.attempt, c.tries, c.queue, c.kind, c.payload, c.headers, c.lease, c.expires_at, c.submitted_at, l.steps
  from fencepost.job_claim(p_id, p_owner, p_lease) c cross join lateral fencepost.workflow_load(c.job_id) l
$$;

-- Refuse what the owner of a workflow asked for, with the reason; p_op and p_name say what that was.
create or replace function fencepost._workflow_refuse(
  p_reason text, p_id bigint, p_attempt bigint, p_owner text, p_op text, p_name text
) returns void
language plpgsql volatile
as $$
begin
  perform fencepost._refuse(coalesce(p_reason, (select e.refusal from fencepost._job_explain(p_id, p_attempt, p_owner, fencepost.clock()) e)),
    'job', p_id::text, jsonb_build_object('attempt', p_attempt, 'owner', p_owner, 'op', p_op, 'name', p_name),
    fencepost._job_seen(p_id));
end $$;

-- The running row, locked, when p_owner with p_attempt may still park the workflow; raises the reason
-- otherwise. A requested cancel is a reason: the next step of a cancelled workflow is refused.
create or replace function fencepost._workflow_hold(p_id bigint, p_attempt bigint, p_owner text, p_op text, p_name text)
returns fencepost.job_running
language plpgsql volatile
as $$
declare
  v record;
begin
  perform fencepost._check_holder(p_attempt, p_owner);
  perform fencepost._check_text('name', p_name, 256);
  select * into v from fencepost._job_hold(p_id, p_attempt, p_owner);
  if v.refusal is not null or (v.running).cancel_requested_at is not null then
    perform fencepost._workflow_refuse(coalesce(v.refusal, 'cancelled'), p_id, p_attempt, p_owner, p_op, p_name);
  end if;
  return v.running;
end $$;

-- Running to waiting until the earliest deadline of what it waits for; without one, until it is called. The
-- try is given back and the slot is freed.
create or replace function fencepost._workflow_park(p_running fencepost.job_running, p_now timestamptz) returns void
language plpgsql volatile
as $$
begin
  perform fencepost._job_put_back(p_running,
    coalesce((select min(w.deadline) from fencepost.workflow_wait w where w.job_id = p_running.job_id), fencepost._batch_never()),
    p_running.tries - 1, null, p_now);
end $$;

-- Park a workflow on what it has registered with p_park => false.
create or replace function fencepost.workflow_park(p_id bigint, p_attempt bigint, p_owner text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._workflow_park(fencepost._workflow_hold(p_id, p_attempt, p_owner, 'park', '-'), fencepost.clock());
end $$;

-- Sleep: record the time at which it ends, and put the workflow back until then, in one. Called again, it
-- keeps the time of the first call. Returns that time; with p_park => false it only records and registers.
create or replace function fencepost.workflow_sleep(
  p_id bigint, p_attempt bigint, p_owner text, p_name text, p_digest text, p_delay interval, p_park boolean default true
) returns timestamptz
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_running fencepost.job_running;
  v_step    fencepost.workflow_step;
  v_now     timestamptz;
  v_until   timestamptz;
begin
  perform fencepost._check_wait('delay', p_delay, interval '10 years');
  perform fencepost._check_text('digest', p_digest, 256);
  v_running := fencepost._workflow_hold(p_id, p_attempt, p_owner, 'sleep', p_name);
  v_now := fencepost.clock();
  perform fencepost._step_write(p_id, p_attempt, 'sleep', p_name, p_digest, to_jsonb(v_now + p_delay), null, v_now);
  select * into strict v_step from fencepost.workflow_step s where s.job_id = p_id and s.name = p_name;
  if v_step.what <> 'sleep' or v_step.digest <> p_digest then
    perform fencepost._step_refuse_known(p_id, p_attempt, p_owner, p_name, p_digest);
  end if;
  v_until := (v_step.result #>> '{}')::timestamptz;
  delete from fencepost.workflow_wait w where w.job_id = p_id and w.event is null and w.deadline <= v_now;
  insert into fencepost.workflow_wait (job_id, name, deadline, since) values (p_id, p_name, v_until, v_now)
  on conflict (job_id, name) do nothing;
  if p_park then
    perform fencepost._workflow_park(v_running, v_now);
  end if;
  return v_until;
end $$;

-- Begin again from the start with other arguments, under the same id: the steps are dropped, also those with
-- an undo, and the tries begin again. For loops without an end.
create or replace function fencepost.workflow_restart(p_id bigint, p_attempt bigint, p_owner text, p_payload jsonb) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_running fencepost.job_running;
  v_now     timestamptz;
begin
  perform fencepost._check_json('payload', p_payload, 1048576);
  if p_payload is null then
    raise exception 'payload must not be null.' using errcode = 'ZF100', detail = '{"field": "payload"}';
  end if;
  v_running := fencepost._workflow_hold(p_id, p_attempt, p_owner, 'restart', '-');
  v_now := fencepost.clock();
  perform fencepost._workflow_drop(p_id, 0);
  update fencepost.job j
  set payload = p_payload,
      headers = jsonb_set(j.headers, '{workflow, round}', to_jsonb(coalesce((j.headers #>> '{workflow, round}')::integer, 0) + 1))
  where j.job_id = p_id;
  perform fencepost._job_put_back(v_running, v_now, 0, null, v_now);
end $$;

-- Delete the steps of a workflow from p_from on, and everything it waits for.
create or replace function fencepost._workflow_drop(p_id bigint, p_from bigint) returns void
language plpgsql volatile
as $$
begin
  delete from fencepost.workflow_result r using fencepost.workflow_step s
  where s.job_id = p_id and s.step_id >= p_from and r.job_id = p_id and r.name = s.name;
  delete from fencepost.workflow_step s where s.job_id = p_id and s.step_id >= p_from;
  delete from fencepost.workflow_wait w where w.job_id = p_id;
end $$;

-- A workflow whose steps were undone must not go on as if they had happened. Called by job_replay.
create or replace function fencepost._workflow_check_replay(p_id bigint, p_actor text) returns void
language plpgsql volatile
as $$
begin
  if exists (select 1 from fencepost.workflow_step s where s.job_id = p_id and s.undone_by is not null) then
    perform fencepost._refuse('mismatch', 'job', p_id::text,
      jsonb_build_object('op', 'replay', 'actor', p_actor, 'expected', 'no step that was undone'),
      fencepost._job_seen(p_id) || jsonb_build_object('undone', (
        select jsonb_agg(s.name order by s.step_id) from fencepost.workflow_step s where s.job_id = p_id and s.undone_by is not null)));
  end if;
end $$;

-- Run a dead or cancelled workflow again from a step: that step and all later ones are dropped. Refused as
-- mismatch while an undo of a dropped step has not ended well, or when a step that stays was undone.
create or replace function fencepost.workflow_retry_from(p_id bigint, p_step text, p_actor text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_finished fencepost.job_finished;
  v_from     bigint;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('step', p_step, 256);
  perform fencepost._check_text('actor', p_actor, 256);
  select * into v_finished from fencepost.job_finished f where f.job_id = p_id and f.state in ('dead', 'cancelled') for update;
  if not found then
    perform fencepost._job_refuse_operator(p_id, 'dead', p_actor, 'retry_from');
  end if;
  select s.step_id into v_from from fencepost.workflow_step s where s.job_id = p_id and s.name = p_step;
  if not found then
    perform fencepost._refuse('not_found', 'job', p_id::text,
      jsonb_build_object('op', 'retry_from', 'actor', p_actor, 'step', p_step), fencepost._job_seen(p_id));
  end if;
  if exists (select 1 from fencepost.workflow_step s
             where s.job_id = p_id and s.step_id >= v_from and s.undone_by is not null
               and not exists (select 1 from fencepost.job_finished f where f.job_id = s.undone_by and f.state = 'finished')
               and exists (select 1 from fencepost.job j where j.job_id = s.undone_by)) then
    perform fencepost._refuse('mismatch', 'job', p_id::text,
      jsonb_build_object('op', 'retry_from', 'actor', p_actor, 'step', p_step, 'expected', 'every undo has finished'),
      fencepost._job_seen(p_id));
  end if;
  perform fencepost._workflow_drop(p_id, v_from);
  perform fencepost.job_replay(p_id, p_actor, v_finished.state);
  perform fencepost._event(fencepost.clock(), 'job', p_id::text, 'retried_from', p_actor, v_finished.attempt,
                           jsonb_build_object('step', p_step));
end $$;

-- How many workflows live on each version: waiting (parked ones too) and running. Served by
-- job_waiting_pending only in part: it counts every waiting row once.
create or replace function fencepost.workflow_versions()
returns table (queue text, name text, version integer, waiting bigint, running bigint, oldest timestamptz)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select split_part(q.queue, '/', 1), split_part(split_part(q.queue, '/', 2), '@', 1), split_part(q.queue, '@', 2)::integer,
         sum(q.waiting)::bigint, sum(q.running)::bigint,
         (select min(j.submitted_at) from fencepost.job j where j.job_id = min(q.first_id))
  from (select w.queue, count(*) as waiting, 0 as running, min(w.job_id) as first_id from fencepost.job_waiting w group by w.queue
        union all
        select r.queue, 0, count(*), min(r.job_id) from fencepost.job_running r group by r.queue) q
  where q.queue ~ '^[^/]+/[^/@]+@[0-9]{1,9}$' group by q.queue order by 1, 2, 3
$$;

-- The refusals of steps that were recorded with other arguments, or by another attempt. These two bounds cover every subject ID/NAME.
create or replace function fencepost._workflow_refusals(p_id bigint)
returns table (at timestamptz, event text, actor text, token bigint, detail jsonb)
language sql stable
as $$
  select r.at, 'refused:' || r.reason, r.actor, null::bigint,
         jsonb_build_object('step', substr(r.subject, length(p_id || '/') + 1), 'attempted', r.attempted, 'seen', r.seen)
  from fencepost.refusal r where r.noun = 'workflow step' and r.subject > p_id || '/' and r.subject < p_id || '0'
$$;

-- The life of a workflow, for explain: its steps, the refused ones too, what it waits for, and the jobs that undo it.
create or replace function fencepost._explain_workflow(p_id bigint)
returns table (at timestamptz, event text, actor text, token bigint, detail jsonb)
language sql stable
as $$
  select s.at, s.what || ':' || s.name, null::text, s.attempt,
         jsonb_strip_nulls(jsonb_build_object('digest', s.digest, 'result', case when pg_column_size(s.result) <= 1024 then s.result end,
                                              'is_large', nullif(s.is_large, false), 'undo', s.undo -> 'kind', 'undone_by', s.undone_by))
  from fencepost.workflow_step s where s.job_id = p_id
  union all
  select w.since, 'waits:' || w.name, null, null, jsonb_strip_nulls(jsonb_build_object('event', w.event, 'deadline', w.deadline))
  from fencepost.workflow_wait w where w.job_id = p_id
  union all
  select * from fencepost._workflow_refusals(p_id)
$$;

create or replace view fencepost.workflow_steps as
  select s.job_id, s.name, s.what, s.step_id, s.attempt, s.digest, coalesce(s.result, r.result) as result, s.undo, s.undone_by, s.at
  from fencepost.workflow_step s left join fencepost.workflow_result r on s.is_large and r.job_id = s.job_id and r.name = s.name;

create or replace view fencepost.workflow_waits as
  select w.job_id, w.name, w.event, w.deadline, w.since from fencepost.workflow_wait w;

create or replace view fencepost.workflow_events as
  select e.event, e.payload, e.actor, e.at from fencepost.workflow_event e;
