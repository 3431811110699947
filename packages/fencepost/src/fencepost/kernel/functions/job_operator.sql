-- The calls of an operator. An operator holds no attempt, so a write is guarded by the state that the
-- operator saw: if it has changed, the answer is the current state, and the operator decides again.

create or replace function fencepost._job_refuse_operator(p_id bigint, p_expected text, p_actor text, p_op text) returns void
language plpgsql volatile
as $$
declare
  v_seen jsonb := fencepost._job_seen(p_id);
begin
  perform fencepost._refuse(
    case when v_seen = '{}' then 'not_found'
         when v_seen ->> 'state' = 'finished' then 'already_finished'
         when v_seen ->> 'state' = 'cancelled' then 'cancelled'
         else 'mismatch' end,
    'job', p_id::text, jsonb_build_object('expected', p_expected, 'actor', p_actor, 'op', p_op), v_seen);
end $$;

-- Cancel. A waiting job is cancelled at once. A running one is asked to stop: its finish is refused from now
-- on, unless it has passed its fence; released, failed or lost, it ends as cancelled. Returns cancelled or
-- requested.
create or replace function fencepost.job_cancel(p_id bigint, p_actor text, p_expected text default null) returns text
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now     timestamptz;
  v_waiting fencepost.job_waiting;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('actor', p_actor, 256);
  if p_expected is not null then
    perform fencepost._check_word('expected', p_expected, array['pending', 'dispatched', 'running']);
  end if;
  loop
    -- Waiting before running: a claim moves the row that way. If it does so between the two reads, we find it
    -- running.
    select * into v_waiting from fencepost.job_waiting w where w.job_id = p_id
      and (p_expected is null or p_expected = case when w.dispatched_at is null then 'pending' else 'dispatched' end) for update;
    v_now := fencepost.clock();
    if found then
      with gone as (delete from fencepost.job_waiting w where w.job_id = p_id returning w.*)
      insert into fencepost.job_finished (job_id, state, final_status, queue, attempt, tries, finished_at, error)
      select g.job_id, 'cancelled', 'cancelled', g.queue, g.attempt, g.tries, v_now, g.last_error from gone g;
      perform fencepost._job_left(array[p_id], null, v_now);
      perform fencepost._event(v_now, 'job', p_id::text, 'cancelled', p_actor, v_waiting.attempt, null);
      return 'cancelled';
    end if;
    update fencepost.job_running r
    set cancel_requested_at = coalesce(r.cancel_requested_at, v_now), cancel_requested_by = coalesce(r.cancel_requested_by, p_actor)
    where r.job_id = p_id and coalesce(p_expected, 'running') = 'running';
    exit when found;
    -- Taken over while we waited for it: that is another row. Or put back: an operator who expects no state
    -- is not refused for the current one.
    continue when coalesce(p_expected, 'running') = 'running' and exists (select 1 from fencepost.job_running r where r.job_id = p_id);
    continue when p_expected is null and exists (select 1 from fencepost.job_waiting w where w.job_id = p_id);
    perform fencepost._job_refuse_operator(p_id, p_expected, p_actor, 'cancel');
  end loop;
  perform fencepost._event(v_now, 'job', p_id::text, 'cancel_requested', p_actor, null, null);
  return 'requested';
end $$;

-- Run a dead or cancelled job again: its tries restart, its attempt keeps growing. A unique key that another
-- live job holds by now refuses it as duplicate. The callback of an open batch waits for it again. Locks the
-- finished row, then that batch, found by job_batch_callback_key.
create or replace function fencepost.job_replay(p_id bigint, p_actor text, p_expected text default 'dead') returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now      timestamptz;
  v_job      fencepost.job;
  v_finished fencepost.job_finished;
  v_batch    fencepost.job_batch;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('actor', p_actor, 256);
  perform fencepost._check_word('expected', p_expected, array['dead', 'cancelled']);
  select * into v_finished from fencepost.job_finished f where f.job_id = p_id and f.state = p_expected for update;
  if not found then
    perform fencepost._job_refuse_operator(p_id, p_expected, p_actor, 'replay');
  end if;
  perform fencepost._workflow_check_replay(p_id, p_actor);
  select * into strict v_job from fencepost.job j where j.job_id = p_id;
  v_now := fencepost.clock();
  if v_job.unique_key is not null then
    insert into fencepost.job_unique (unique_key, job_id) values (v_job.unique_key, p_id) on conflict (unique_key) do nothing;
    perform fencepost._unique_take_over(array[v_job.unique_key], array[p_id], null, null);
    if not exists (select 1 from fencepost.job_unique u where u.unique_key = v_job.unique_key and u.job_id = p_id) then
      perform fencepost._refuse('duplicate', 'job', p_id::text, jsonb_build_object('unique_key', v_job.unique_key, 'op', 'replay'),
        (select jsonb_build_object('job_id', u.job_id) from fencepost.job_unique u where u.unique_key = v_job.unique_key));
    end if;
  end if;
  -- The batch's completion comes before, or finds the waiting row after us: otherwise nothing would make it
  -- due.
  select * into v_batch from fencepost.job_batch b where b.callback_job_id = p_id for share;
  with gone as (delete from fencepost.job_finished f where f.job_id = p_id returning f.*)
  insert into fencepost.job_waiting (job_id, queue, priority, run_at, attempt, tries, concurrency_key)
  -- Above the floor: a job that ended before a backup was made may have run again in the time that the
  -- restore lost.
  select g.job_id, v_job.queue, v_job.priority,
         case when v_batch.batch_id is not null and v_batch.completed_at is null then fencepost._batch_never() else v_now end,
         greatest(g.attempt, (select f.floor from fencepost.token_floor f)), 0, v_job.concurrency_key from gone g;
  perform fencepost._event(v_now, 'job', p_id::text, 'replayed', p_actor, v_finished.attempt,
    jsonb_build_object('from', p_expected, 'error', v_finished.error, 'finished_at', v_finished.finished_at));
  perform fencepost._wake('job:' || v_job.queue);
end $$;

-- Discard a dead job that will not be replayed: it ends as cancelled and leaves the dead letters.
create or replace function fencepost.job_discard(p_id bigint, p_actor text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_dead fencepost.job_finished;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('actor', p_actor, 256);
  select * into v_dead from fencepost.job_finished f where f.job_id = p_id and f.state = 'dead' for update;
  if not found then
    perform fencepost._job_refuse_operator(p_id, 'dead', p_actor, 'discard');
  end if;
  update fencepost.job_finished f set state = 'cancelled', final_status = 'discarded' where f.job_id = p_id;
  perform fencepost._event(fencepost.clock(), 'job', p_id::text, 'discarded', p_actor, v_dead.attempt,
    jsonb_build_object('from', 'dead', 'final_status', v_dead.final_status));
  perform fencepost._workflow_undo_next(array[p_id], fencepost.clock());
end $$;

-- Give a waiting job another time. One that is dispatched becomes pending again: its entry is refused at the claim. Refuses a job
-- that runs or has ended, and the callback of an open batch, whose time is the end of the batch. Locks the waiting row.
create or replace function fencepost.job_reschedule(p_id bigint, p_run_at timestamptz, p_actor text) returns timestamptz
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now     timestamptz;
  v_waiting fencepost.job_waiting;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('actor', p_actor, 256);
  perform fencepost._check_moment('run_at', p_run_at);
  if p_run_at is null then
    raise exception 'run_at must not be null.' using errcode = 'ZF100', detail = '{"field": "run_at"}';
  end if;
  select * into v_waiting from fencepost.job_waiting w where w.job_id = p_id and w.run_at < fencepost._batch_never() for update;
  if not found then
    perform fencepost._job_refuse_operator(p_id, 'pending', p_actor, 'reschedule');
  end if;
  v_now := fencepost.clock();
  update fencepost.job_waiting w
  set run_at = greatest(p_run_at, v_now), dispatched_at = null, entry_id = null, incarnation = null, deferred_at = null
  where w.job_id = p_id;
  perform fencepost._event(v_now, 'job', p_id::text, 'rescheduled', p_actor, v_waiting.attempt,
    jsonb_build_object('from', v_waiting.run_at, 'to', greatest(p_run_at, v_now)));
  perform fencepost._wake('job:' || v_waiting.queue);
  return greatest(p_run_at, v_now);
end $$;

-- Replace the outcome of a finished job, because its work was repeated elsewhere and that result counts now.
-- Its state, its attempt and its time stay; p_event records the actor and the previous outcome. Locks in
-- order of id.
create or replace function fencepost._job_restate(
  p_ids bigint[], p_statuses text[], p_results jsonb[], p_event text, p_actor text, p_detail jsonb
) returns void
language plpgsql volatile
as $$
declare
  v_now timestamptz;
  v     record;
begin
  perform 1 from fencepost.job_finished f where f.job_id = any (p_ids) and f.state = 'finished' order by f.job_id for update;
  v_now := fencepost.clock();
  for v in
    select f.job_id, f.final_status as before, a.status, a.result
    from unnest(p_ids, p_statuses, p_results) a (job_id, status, result)
    join fencepost.job_finished f on f.job_id = a.job_id and f.state = 'finished' order by f.job_id
  loop
    update fencepost.job_finished f set final_status = v.status, result = v.result where f.job_id = v.job_id;
    if v.before <> v.status then
      perform fencepost._event(v_now, 'job', v.job_id::text, p_event, p_actor, null,
        p_detail || jsonb_build_object('from', v.before, 'to', v.status));
    end if;
  end loop;
end $$;

-- Pause a queue: none of its jobs is dispatched or claimed; running ones continue. Idempotent.
create or replace function fencepost.queue_pause(p_queue text, p_actor text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz := fencepost.clock();
begin
  perform fencepost._check_text('queue', p_queue, 128);
  perform fencepost._check_text('actor', p_actor, 256);
  insert into fencepost.job_queue as q (queue, paused_at, paused_by) values (p_queue, v_now, p_actor)
  on conflict (queue) do update set paused_at = coalesce(q.paused_at, v_now), paused_by = coalesce(q.paused_by, p_actor);
  perform fencepost._event(v_now, 'queue', p_queue, 'paused', p_actor, null, null);
end $$;

-- Resume a queue: waiting jobs are dispatched and claimed again, and loops that sleep on it are woken.
-- Idempotent.
create or replace function fencepost.queue_resume(p_queue text, p_actor text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._check_text('queue', p_queue, 128);
  perform fencepost._check_text('actor', p_actor, 256);
  update fencepost.job_queue q set paused_at = null, paused_by = null where q.queue = p_queue;
  perform fencepost._event(fencepost.clock(), 'queue', p_queue, 'resumed', p_actor, null, null);
  perform fencepost._wake('job:' || p_queue);
end $$;

-- Bound the waiting jobs of a queue; null lifts the bound.
create or replace function fencepost.queue_bound(p_queue text, p_waiting_max bigint, p_actor text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._check_text('queue', p_queue, 128);
  perform fencepost._check_text('actor', p_actor, 256);
  if p_waiting_max < 1 then
    raise exception 'waiting_max is %; it must be at least 1, or null for no bound.', p_waiting_max
      using errcode = 'ZF100', detail = '{"field": "waiting_max"}';
  end if;
  insert into fencepost.job_queue (queue, waiting_max) values (p_queue, p_waiting_max)
  on conflict (queue) do update set waiting_max = excluded.waiting_max;
  perform fencepost._event(fencepost.clock(), 'queue', p_queue, 'bounded', p_actor, null,
                           jsonb_build_object('waiting_max', p_waiting_max));
end $$;

-- Count the waiting jobs of the queues that have a bound. A loop calls it; submissions read the count.
create or replace function fencepost.queue_count() returns void
language sql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  update fencepost.job_queue q
  set waiting_now = fencepost._queue_waiting(q.queue, q.waiting_max), counted_at = fencepost.clock()
  where q.waiting_max is not null
$$;

-- Delete finished and cancelled jobs older than p_keep, at most p_limit; dead ones stay for an operator.
-- Served by job_finished_by_time.
create or replace function fencepost.job_prune(p_keep interval, p_limit integer, p_dead boolean default false) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_before   timestamptz := fencepost._prune_before(p_keep, p_limit);
  v_children boolean := fencepost._workflow_has_children();
  v_batches  boolean := fencepost._batch_has_callbacks();
  v_ids      bigint[];
begin
  with gone as (
    delete from fencepost.job_finished f where f.ctid = any (array(
      select o.ctid from fencepost.job_finished o where o.finished_at < v_before and (p_dead or o.state <> 'dead')
        and not (v_children and fencepost._workflow_needs(o.job_id)) and not (v_batches and fencepost._batch_needs(o.job_id))
      order by o.finished_at limit p_limit for update skip locked))
    returning f.job_id
  )
  select coalesce(array_agg(g.job_id), '{}') into v_ids from gone g;
  delete from fencepost.job j where j.job_id = any (v_ids);
  delete from fencepost.job_label l where l.job_id = any (v_ids);
  perform fencepost._history_release(v_ids);
  return cardinality(v_ids);
end $$;
