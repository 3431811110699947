-- The calls of a running job's owner: renew, report progress, fence, finish. All of them are fenced by the
-- attempt.

-- The current row of a job, in whichever table it is, for refusals and for operators.
create or replace function fencepost._job_seen(p_id bigint) returns jsonb
language sql stable
as $$
  select coalesce(
    (select jsonb_build_object('state', 'running', 'attempt', r.attempt, 'owner', r.owner, 'expires_at', r.expires_at,
                               'cancel_requested_at', r.cancel_requested_at)
     from fencepost.job_running r where r.job_id = p_id),
    (select jsonb_build_object('state', case when w.dispatched_at is null then 'pending' else 'dispatched' end,
                               'attempt', w.attempt, 'run_at', w.run_at)
     from fencepost.job_waiting w where w.job_id = p_id),
    (select jsonb_build_object('state', f.state, 'final_status', f.final_status, 'attempt', f.attempt, 'owner', f.owner,
                               'finished_at', f.finished_at)
     from fencepost.job_finished f where f.job_id = p_id),
    '{}'::jsonb)
$$;

-- Why p_owner with p_attempt (null: any) may not act on the job. One statement, so one snapshot of all three
-- tables; called after the write found nothing, so never older than the refusal.
create or replace function fencepost._job_explain(p_id bigint, p_attempt bigint, p_owner text, p_now timestamptz)
returns table (refusal text, attempt bigint)
language sql stable
as $$
  select case
      when r.attempt > p_attempt then 'stale_attempt'
      when r.owner <> p_owner then 'not_owner'
      when r.attempt < p_attempt then 'not_owner'
      when r.expires_at <= p_now then 'lease_expired'
      when r.cancel_requested_at is not null then 'cancelled'
      when r.job_id is not null then 'in_flight'
      when w.attempt > p_attempt then 'stale_attempt'
      when w.job_id is not null then 'not_running'
      when f.state = 'cancelled' then 'cancelled'
      when f.attempt > p_attempt then 'stale_attempt'
      when f.job_id is not null then 'already_finished'
      else 'not_found'
    end,
    coalesce(r.attempt, w.attempt, f.attempt)
  from (select p_id as job_id) asked
  left join fencepost.job_running r on r.job_id = asked.job_id
  left join fencepost.job_waiting w on w.job_id = asked.job_id
  left join fencepost.job_finished f on f.job_id = asked.job_id
$$;

-- The jobs that this transaction has fenced, as ,id:attempt,id:attempt, in a setting that is local to it and
-- undone with the savepoint that undoes the fence. Forging it gains nothing: attempt and owner are still
-- checked, and only the expiry check is skipped.
create or replace function fencepost._job_is_fenced(p_id bigint, p_attempt bigint) returns boolean
language sql stable
as $$ select position(',' || p_id || ':' || p_attempt || ',' in coalesce(current_setting('fencepost.fenced', true), '')) > 0 $$;

-- The fence of a job: from here to the end of the transaction no takeover succeeds, and job_finish in the
-- same transaction does not check the clock again. Takes FOR KEY SHARE: renewals pass. Raises the reason
-- otherwise. One statement does it all, as in job_finish: each expression and each statement of a function is
-- made ready again in each transaction, which costs more than it does. What it says of the time, and what it
-- sets, is evaluated when the row is locked: above the part that locks.
create or replace function fencepost.job_fence(p_id bigint, p_attempt bigint, p_owner text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_holds  boolean;
  v_fenced text;
  v_idle   text;
begin
  if fencepost._is_holder(p_attempt, p_owner) is not true then
    perform fencepost._check_holder(p_attempt, p_owner);
  end if;
  select l.owner = p_owner and l.cancel_requested_at is null and l.expires_at > fencepost.clock(),
         set_config('fencepost.fenced',
           coalesce(nullif(current_setting('fencepost.fenced', true), ''), ',') || p_id || ':' || p_attempt || ',', true),
         -- As _bound_idle_time.
         case when current_setting('idle_in_transaction_session_timeout')::interval between interval '1 millisecond' and l.lease / 2
              then null
              else set_config('idle_in_transaction_session_timeout',
                              greatest(1, extract(epoch from l.lease) * 500)::bigint::text, true)
         end
  into v_holds, v_fenced, v_idle
  from (select r.owner, r.expires_at, r.cancel_requested_at, r.lease from fencepost.job_running r
        where r.job_id = p_id and r.attempt = p_attempt for key share) l;
  if v_holds is not true then
    perform fencepost._refuse((select e.refusal from fencepost._job_explain(p_id, p_attempt, p_owner, fencepost.clock()) e), 'job',
      p_id::text, jsonb_build_object('attempt', p_attempt, 'owner', p_owner, 'op', 'fence'), fencepost._job_seen(p_id));
  end if;
end $$;

-- job_fence for many, in order of id: all of them, or it raises the reason of the first that is refused. Locks as job_fence does. Pinned to
-- one walk over the index, merged with the arrays, as _job_finish is.
create or replace function fencepost.job_fence_all(p_ids bigint[], p_attempts bigint[], p_owner text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_nestloop = off set enable_mergejoin = on
as $$
declare
  v_held  record;
  v_asked record;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('owner', p_owner, 256);
  perform fencepost._check_tokens('ids', p_ids);
  perform fencepost._check_tokens('attempts', p_attempts);
  perform fencepost._check_lengths('attempts', cardinality(p_ids), cardinality(p_attempts));
  select count(*) as jobs, min(l.expires_at) as expires_at, count(l.cancel_requested_at) as cancelled, min(l.lease) as lease,
         string_agg(l.job_id || ':' || l.attempt || ',', '') as fenced
  into v_held
  from (select r.job_id, r.attempt, r.expires_at, r.cancel_requested_at, r.lease
        from (select u.job_id, u.attempt from unnest(p_ids, p_attempts) u (job_id, attempt) order by u.job_id) a
        join fencepost.job_running r on r.job_id = a.job_id and r.attempt = a.attempt and r.owner = p_owner
        where r.job_id = any (p_ids) order by r.job_id for key share of r) l;
  -- One at a time when one is refused, or when a job is named twice: the single form has the reasons.
  if v_held.jobs < cardinality(p_ids) or v_held.expires_at <= fencepost.clock() or v_held.cancelled > 0 then
    for v_asked in select u.job_id, u.attempt from unnest(p_ids, p_attempts) u (job_id, attempt) order by u.job_id loop
      perform fencepost.job_fence(v_asked.job_id, v_asked.attempt, p_owner);
    end loop;
  elsif v_held.jobs > 0 then
    perform set_config('fencepost.fenced',
      coalesce(nullif(current_setting('fencepost.fenced', true), ''), ',') || v_held.fenced, true);
    perform fencepost._bound_idle_time(v_held.lease);
  end if;
end $$;

-- Finish many, in order of id, by one statement: deletes running rows and inserts finished rows. Returns the
-- ids that were finished. Pinned to one walk over the index, merged with the arrays: stale statistics once
-- made it a scan, and a search of the index for each job takes a quarter longer.
create or replace function fencepost._job_finish(
  p_ids bigint[], p_attempts bigint[], p_owner text, p_statuses text[], p_results jsonb[]
) returns bigint[]
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_nestloop = off set enable_mergejoin = on
as $$
declare
  v_now  timestamptz := fencepost.clock();
  v_done bigint[];
  v_keys text[];
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('owner', p_owner, 256);
  perform fencepost._check_tokens('ids', p_ids);
  perform fencepost._check_tokens('attempts', p_attempts);
  perform fencepost._check_lengths('attempts', cardinality(p_ids), cardinality(p_attempts));
  perform fencepost._check_lengths('statuses', cardinality(p_ids), coalesce(cardinality(p_statuses), cardinality(p_ids)));
  perform fencepost._check_lengths('results', cardinality(p_ids), coalesce(cardinality(p_results), cardinality(p_ids)));
  perform fencepost._check_documents('result', p_results, 65536);
  perform fencepost._check_texts('final_status', p_statuses, 64, true);
  with asked as materialized (
    select a.job_id, a.attempt, coalesce(a.status, 'ok') as status, a.result
    from unnest(p_ids, p_attempts, p_statuses, p_results) a (job_id, attempt, status, result) order by a.job_id, a.attempt
  ), gone as (
    delete from fencepost.job_running r using asked a
    where r.job_id = any (p_ids) and r.job_id = a.job_id and r.attempt = a.attempt and r.owner = p_owner
      and ((r.expires_at > v_now and r.cancel_requested_at is null) or fencepost._job_is_fenced(r.job_id, r.attempt))
    returning r.job_id, r.queue, r.attempt, r.tries, r.owner, r.claimed_at, r.concurrency_key, a.status, a.result
  ), done as (
    insert into fencepost.job_finished (job_id, state, final_status, queue, attempt, tries, owner, claimed_at, finished_at, result)
    select g.job_id, 'finished', g.status, g.queue, g.attempt, g.tries, g.owner, g.claimed_at, v_now, g.result from gone g
  )
  -- A key as often as slots of it became free: each slot wakes one waiter. In order, because waking locks
  -- rows.
  select coalesce(array_agg(g.job_id), '{}'),
         array_agg(g.concurrency_key order by g.concurrency_key) filter (where g.concurrency_key is not null)
  into v_done, v_keys from gone g;
  perform fencepost._job_left(v_done, v_keys, v_now);
  return v_done;
end $$;

-- After jobs have ended for good: frees their unique keys, wakes the next waiter of each freed slot, and
-- counts their batches. Sets its own plan settings: those of the calling function would apply here too.
create or replace function fencepost._job_left(p_ids bigint[], p_keys text[], p_now timestamptz) returns void
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set enable_nestloop = on
as $$
begin
  if exists (select 1 from fencepost.job_unique u where u.job_id = any (p_ids)) then
    perform fencepost._unique_free(p_ids, p_now);
  end if;
  if exists (select 1 from fencepost.job_suspect s where s.job_id > 0) then
    perform fencepost._suspect_clear(p_ids, p_now);
  end if;
  if cardinality(p_keys) > 0 then
    perform fencepost._job_call_waiting(k, p_now) from unnest(p_keys) k;
  end if;
  perform fencepost._job_ended(p_ids, p_now);
end $$;

-- A slot of p_key became free: the job that has waited longest for it is due now.
create or replace function fencepost._job_call_waiting(p_key text, p_now timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_queue text;
begin
  update fencepost.job_waiting w set run_at = least(w.run_at, p_now), deferred_at = null
  where w.job_id = (select d.job_id from fencepost.job_waiting d
                    where d.concurrency_key = p_key and d.deferred_at is not null
                    order by d.run_at limit 1 for update skip locked)
  returning w.queue into v_queue;
  if found then
    perform fencepost._wake('job:' || v_queue);
  end if;
end $$;

-- Finish one job. The finishing write succeeds exactly when job, attempt, owner and running state match, and
-- the lease has not expired or this transaction has passed the fence. Otherwise raises the reason, with the
-- row that was seen.
create or replace function fencepost.job_finish(
  p_id bigint, p_attempt bigint, p_owner text, p_final_status text default 'ok', p_result jsonb default null
) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, fencepost, pg_temp set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
  v_now     timestamptz := fencepost.clock();
  v_key     text;
  v_is_rare boolean;
begin
  if fencepost._is_holder(p_attempt, p_owner) is not true then
    perform fencepost._check_holder(p_attempt, p_owner);
  end if;
  -- Most end well and leave nothing, which needs no check.
  if p_id is null or p_final_status <> 'ok' or p_result is not null then
    perform fencepost._check_token('id', p_id);
    perform fencepost._check_texts('final_status', array[p_final_status], 64, true);
    perform fencepost._check_json('result', p_result, 65536);
  end if;
  with gone as (
    delete from fencepost.job_running r
    where r.job_id = p_id and r.attempt = p_attempt and r.owner = p_owner
      and ((r.expires_at > v_now and r.cancel_requested_at is null) or fencepost._job_is_fenced(r.job_id, r.attempt))
    returning r.queue, r.tries, r.claimed_at, r.concurrency_key
  ), done as (
    insert into fencepost.job_finished (job_id, state, final_status, queue, attempt, tries, owner, claimed_at, finished_at, result)
    select p_id, 'finished', coalesce(p_final_status, 'ok'), g.queue, p_attempt, g.tries, p_owner, g.claimed_at, v_now, p_result
    from gone g
  )
  select g.concurrency_key,
         -- What _job_left and _job_ended look for: all of it is rare for one job.
         g.concurrency_key is not null
         or exists (select 1 from fencepost.job_unique u where u.job_id = p_id)
         or exists (select 1 from fencepost.job_suspect s where s.job_id > 0)
         or exists (select 1 from fencepost.job_batch b where b.completed_at is null)
         or exists (select 1 from fencepost.sleeper s where s.topic >= 'result:' and s.topic < 'result;')
         or exists (select 1 from fencepost.workflow_undo u where u.next_job_id > 0 and not u.called_next)
         or exists (select 1 from fencepost.workflow_step s where s.step_id > 0 and s.undo is not null and s.undone_by is null)
  into v_key, v_is_rare from gone g;
  if not found then
    perform fencepost._refuse(
      (select e.refusal from fencepost._job_explain(p_id, p_attempt, p_owner, v_now) e), 'job', p_id::text,
      jsonb_build_object('attempt', p_attempt, 'owner', p_owner, 'op', 'finish'), fencepost._job_seen(p_id));
  end if;
  if v_is_rare then
    perform fencepost._job_left(array[p_id], array_remove(array[v_key], null), v_now);
  end if;
end $$;

-- Finish many by one statement and one commit; answers for each, refusal null or the reason, with the row that was seen.
-- p_leaving names jobs that the same transaction ends afterwards by job_leave_many: the batches of both are locked here in one
-- order, because two such transactions may have the same batches, one in its finishes and the other in what it leaves.
create or replace function fencepost.job_finish_many(
  p_ids bigint[], p_attempts bigint[], p_owner text, p_statuses text[] default null, p_results jsonb[] default null,
  p_leaving bigint[] default null
) returns table (job_id bigint, refusal text, seen jsonb)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_done bigint[];
begin
  if p_leaving <> '{}' then
    perform fencepost._check_tokens('ids', p_ids);
    perform fencepost._check_tokens('leaving', p_leaving);
    perform 1 from fencepost.job_running r where r.job_id = any (p_ids || p_leaving) and r.owner = p_owner
    order by r.job_id for update;
    perform fencepost._batch_lock(p_ids || p_leaving, p_ids || p_leaving);
  end if;
  v_done := fencepost._job_finish(p_ids, p_attempts, p_owner, p_statuses, p_results);
  if cardinality(v_done) = cardinality(p_ids) then
    return query select d, null::text, null::jsonb from unnest(v_done) d;
    return;
  end if;
  return query select d, null::text, null::jsonb from unnest(v_done) d;
  return query select n.job_id, n.refusal, n.seen from fencepost._job_note_refused(p_ids, p_attempts, p_owner, v_done, 'finish') n;
end $$;

-- Whether the owner of an attempt ended it: it finished the job, or left it by job_leave_many, or parked its workflow. An attempt that
-- was taken from its owner has an event `lost`. Parking is recorded nowhere: of a workflow, what was not lost was parked.
-- Served by event_by_subject.
create or replace function fencepost._job_ended_by_owner(p_id bigint, p_attempt bigint, p_owner text) returns boolean
language sql stable
as $$
  select exists (select 1 from fencepost.job_finished f
                 where f.job_id = p_id and f.attempt = p_attempt and f.owner = p_owner and f.state = 'finished')
    or coalesce(bool_and(e.event <> 'lost'), true)
       and (coalesce(bool_or(e.event in ('failed', 'released', 'buried', 'cancelled') and e.actor = p_owner), false)
            or exists (select 1 from fencepost.job j where j.job_id = p_id and j.headers ? 'workflow'))
  from fencepost.event e where e.noun = 'job' and e.subject = p_id::text and e.token = p_attempt
$$;

-- Explain, count and record the refusals of a plural form.
create or replace function fencepost._job_note_refused(
  p_ids bigint[], p_attempts bigint[], p_owner text, p_done bigint[], p_op text
) returns table (job_id bigint, refusal text, seen jsonb)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v     record;
  v_now timestamptz := fencepost.clock();
begin
  for v in select a.job_id, a.attempt, e.refusal
           from unnest(p_ids, p_attempts) a (job_id, attempt)
           cross join lateral fencepost._job_explain(a.job_id, a.attempt, p_owner, v_now) e
           where a.job_id <> all (p_done) order by a.job_id loop
    job_id := v.job_id; refusal := v.refusal; seen := fencepost._job_seen(v.job_id);
    -- A renewal that meets the end of its own attempt has lost nothing, and every worker sends some: it is
    -- answered, not recorded.
    if p_op <> 'renew' or not (v.refusal = 'in_flight'
        or v.refusal in ('already_finished', 'not_running', 'stale_attempt')
           and fencepost._job_ended_by_owner(v.job_id, v.attempt, p_owner)) then
      perform fencepost._refusal_note(v.refusal, 'job', v.job_id::text, p_owner,
        jsonb_build_object('attempt', v.attempt, 'owner', p_owner, 'op', p_op), seen);
    end if;
    return next;
  end loop;
end $$;

-- Renew the leases of all jobs of one owner by one statement; answers for each. A row that is locked at this
-- moment (an open finish has deleted it, or a takeover holds it) is answered as in_flight and not waited for:
-- one open finish must not block the heartbeat of the others. cancel_requested tells the worker to stop.
create or replace function fencepost.job_renew_many(p_ids bigint[], p_attempts bigint[], p_owner text)
returns table (job_id bigint, expires_at timestamptz, cancel_requested boolean, refusal text)
language plpgsql volatile security definer
set search_path = pg_catalog, fencepost, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  v_now     timestamptz;
  v_free    bigint[];
  v_done    bigint[];
  v_expires timestamptz[];
  v_cancel  boolean[];
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('owner', p_owner, 256);
  perform fencepost._check_tokens('ids', p_ids);
  perform fencepost._check_tokens('attempts', p_attempts);
  perform fencepost._check_lengths('attempts', cardinality(p_ids), cardinality(p_attempts));
  v_free := array(select r.job_id from unnest(p_ids, p_attempts) a (job_id, attempt)
                  join fencepost.job_running r on r.job_id = a.job_id and r.attempt = a.attempt and r.owner = p_owner
                  order by r.job_id for no key update of r skip locked);
  v_now := fencepost.clock();
  -- Locked by us, so owner and attempt hold; only the clock has advanced.
  with renewed as (
    update fencepost.job_running r set renewed_at = v_now, expires_at = v_now + r.lease
    where r.job_id = any (v_free) and r.expires_at > v_now
    returning r.job_id, r.expires_at, r.cancel_requested_at is not null as cancel
  )
  select coalesce(array_agg(n.job_id), '{}'), array_agg(n.expires_at), array_agg(n.cancel) into v_done, v_expires, v_cancel
  from renewed n;
  return query select d.*, null::text from unnest(v_done, v_expires, v_cancel) d;
  if cardinality(v_done) < cardinality(p_ids) then
    return query select n.job_id, null::timestamptz, n.refusal = 'cancelled', n.refusal
                 from fencepost._job_note_refused(p_ids, p_attempts, p_owner, v_done, 'renew') n;
  end if;
end $$;

-- Renew one. Raises the reason when it cannot be renewed; in_flight when the row is locked at this moment.
create or replace function fencepost.job_renew(p_id bigint, p_attempt bigint, p_owner text)
returns table (expires_at timestamptz, cancel_requested boolean)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now     timestamptz;
  v_running fencepost.job_running;
begin
  perform fencepost._check_holder(p_attempt, p_owner);
  select * into v_running from fencepost.job_running r where r.job_id = p_id and r.attempt = p_attempt
    for no key update skip locked;
  v_now := fencepost.clock();
  if not found or v_running.owner <> p_owner or v_running.expires_at <= v_now then
    perform fencepost._refuse((select e.refusal from fencepost._job_explain(p_id, p_attempt, p_owner, v_now) e), 'job',
      p_id::text, jsonb_build_object('attempt', p_attempt, 'owner', p_owner, 'op', 'renew'), fencepost._job_seen(p_id));
  end if;
  return query
  update fencepost.job_running r set renewed_at = v_now, expires_at = v_now + r.lease where r.job_id = p_id
  returning r.expires_at, r.cancel_requested_at is not null;
end $$;

-- Report progress: a small document for operators. Fenced like every other write of the owner.
create or replace function fencepost.job_progress(p_id bigint, p_attempt bigint, p_owner text, p_progress jsonb) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz := fencepost.clock();
begin
  perform fencepost._check_holder(p_attempt, p_owner);
  perform fencepost._check_json('progress', p_progress, 8192);
  update fencepost.job_running r set progress = p_progress
  where r.job_id = p_id and r.attempt = p_attempt and r.owner = p_owner and r.expires_at > v_now
    and r.cancel_requested_at is null;
  if not found then
    perform fencepost._refuse((select e.refusal from fencepost._job_explain(p_id, p_attempt, p_owner, v_now) e), 'job',
      p_id::text, jsonb_build_object('attempt', p_attempt, 'owner', p_owner, 'op', 'progress'), fencepost._job_seen(p_id));
  end if;
end $$;
