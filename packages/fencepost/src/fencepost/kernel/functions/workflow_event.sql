-- Events: a workflow awaits one by its name; any process emits it, once.
--
-- Awaiting and emitting take the same advisory lock, so either the emission finds the waiting workflow, or
-- the workflow finds the event. The lock comes before the rows of jobs.

create or replace function fencepost._event_lock(p_event text) returns void
language plpgsql volatile
as $$
begin
  perform pg_advisory_xact_lock(hashtextextended(p_event, 7711));
end $$;

-- Await an event. Answers emitted with its payload, or timed_out: both are recorded as a step. Otherwise
-- parks the workflow until the event or the deadline and answers parked; with p_park => false it only
-- registers the wait and answers registered. The deadline counts from the first call.
create or replace function fencepost.event_await(
  p_id bigint, p_attempt bigint, p_owner text, p_name text, p_event text, p_timeout interval default null,
  p_park boolean default true
) returns table (outcome text, payload jsonb)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_running fencepost.job_running;
  v_now     timestamptz;
  v_wait    fencepost.workflow_wait;
  v_event   fencepost.workflow_event;
begin
  perform fencepost._check_text('event', p_event, 512);
  perform fencepost._check_wait('timeout', coalesce(p_timeout, interval '0'), interval '10 years');
  perform fencepost._event_lock(p_event);
  v_running := fencepost._workflow_hold(p_id, p_attempt, p_owner, 'await', p_name);
  v_now := fencepost.clock();
  insert into fencepost.workflow_wait (job_id, name, event, deadline, since) values (p_id, p_name, p_event, v_now + p_timeout, v_now)
  on conflict (job_id, name) do nothing;
  select * into strict v_wait from fencepost.workflow_wait w where w.job_id = p_id and w.name = p_name;
  if v_wait.event is distinct from p_event then
    perform fencepost._workflow_refuse('mismatch', p_id, p_attempt, p_owner, 'await', p_name);
  end if;
  select * into v_event from fencepost.workflow_event e where e.event = p_event;
  if found or v_wait.deadline <= v_now then
    outcome := case when v_event.event is not null then 'emitted' else 'timed_out' end;
    payload := v_event.payload;
    perform fencepost._step_write(p_id, p_attempt, 'event', p_name, p_event,
      jsonb_build_object('outcome', outcome, 'payload', payload), null, v_now);
    delete from fencepost.workflow_wait w where w.job_id = p_id and w.name = p_name;
    return next;
    return;
  end if;
  outcome := 'registered';
  if p_park then
    perform fencepost._workflow_park(v_running, v_now);
    outcome := 'parked';
  end if;
  return next;
end $$;

-- Emit an event in the caller's transaction: the workflows that await it are due when that commits. The first
-- write stays; false when there was one already.
create or replace function fencepost.event_emit(p_event text, p_payload jsonb default null, p_actor text default null) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now   timestamptz;
  v_queue text;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('event', p_event, 512);
  perform fencepost._check_json('payload', p_payload, 65536);
  if p_actor is not null then
    perform fencepost._check_text('actor', p_actor, 256);
  end if;
  perform fencepost._event_lock(p_event);
  v_now := fencepost.clock();
  insert into fencepost.workflow_event (event, payload, actor, at) values (p_event, p_payload, p_actor, v_now)
  on conflict (event) do nothing;
  if not found then
    return false;
  end if;
  perform 1 from fencepost.job_waiting j
  where j.job_id in (select w.job_id from fencepost.workflow_wait w where w.event = p_event) order by j.job_id for update;
  for v_queue in
    with due as (
      update fencepost.job_waiting j set run_at = v_now
      where j.job_id in (select w.job_id from fencepost.workflow_wait w where w.event = p_event) and j.run_at > v_now
      returning j.queue)
    select distinct d.queue from due d
  loop
    perform fencepost._wake('job:' || v_queue);
  end loop;
  return true;
end $$;

-- Delete events emitted before p_keep ago that nothing waits for, at most p_limit. A workflow that awaits one
-- of them later waits for another emission. Served by workflow_event_by_age.
create or replace function fencepost.event_prune(p_keep interval, p_limit integer) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_before timestamptz := fencepost._prune_before(p_keep, p_limit);
  v_count  bigint;
begin
  delete from fencepost.workflow_event e where e.event = any (array(
    select o.event from fencepost.workflow_event o
    where o.at < v_before and not exists (select 1 from fencepost.workflow_wait w where w.event = o.event)
    order by o.at limit p_limit for update skip locked));
  get diagnostics v_count = row_count;
  return v_count;
end $$;
