-- How a running job leaves its owner without being finished: given back, failed, buried, or lost.

-- Running to waiting: clears the owner and creates no attempt.
create or replace function fencepost._job_put_back(
  p_running fencepost.job_running, p_run_at timestamptz, p_tries integer, p_error text, p_now timestamptz
) returns void
language plpgsql volatile
as $$
begin
  perform fencepost._suspect_clear(array[p_running.job_id], p_now);
  with gone as (delete from fencepost.job_running r where r.job_id = p_running.job_id returning r.*)
  insert into fencepost.job_waiting (job_id, queue, priority, run_at, attempt, tries, concurrency_key, last_error)
  select g.job_id, g.queue, g.priority, p_run_at, g.attempt, p_tries, g.concurrency_key, left(p_error, 2000) from gone g;
  if p_running.concurrency_key is not null then
    perform fencepost._job_call_waiting(p_running.concurrency_key, p_now);
  end if;
  if p_run_at <= p_now then
    perform fencepost._wake('job:' || p_running.queue);
  end if;
end $$;

-- Running to dead or cancelled.
create or replace function fencepost._job_end(
  p_running fencepost.job_running, p_state text, p_final_status text, p_error text, p_now timestamptz
) returns void
language plpgsql volatile
as $$
begin
  with gone as (delete from fencepost.job_running r where r.job_id = p_running.job_id returning r.*)
  insert into fencepost.job_finished (job_id, state, final_status, queue, attempt, tries, owner, claimed_at, finished_at, error)
  select g.job_id, p_state, p_final_status, g.queue, g.attempt, g.tries, g.owner, g.claimed_at, p_now, left(p_error, 8192)
  from gone g;
  perform fencepost._job_left(array[p_running.job_id],
    case when p_running.concurrency_key is not null then array[p_running.concurrency_key] end, p_now);
end $$;

-- The running row, locked, when p_owner with p_attempt may still act on it; otherwise the reason.
create or replace function fencepost._job_hold(
  p_id bigint, p_attempt bigint, p_owner text, out refusal text, out running fencepost.job_running
) language plpgsql volatile
as $$
declare
  v_now timestamptz;
begin
  select * into running from fencepost.job_running r
  where r.job_id = p_id and r.attempt = p_attempt and r.owner = p_owner for update;
  v_now := fencepost.clock();
  if not found or (running.expires_at <= v_now and not fencepost._job_is_fenced(p_id, p_attempt)) then
    refusal := (select e.refusal from fencepost._job_explain(p_id, p_attempt, p_owner, v_now) e);
  end if;
end $$;

-- Leave one running job; never raises. p_how is release, retry, bury or cancel. The history keeps the end of the traceback, one for
-- each try.
create or replace function fencepost._job_leave(
  p_id bigint, p_attempt bigint, p_owner text, p_how text, p_error text, p_delay interval, p_traceback text,
  out refusal text, out state text
) language plpgsql volatile
as $$
declare
  v     record;
  v_job fencepost.job;
  v_now timestamptz;
begin
  select * into v from fencepost._job_hold(p_id, p_attempt, p_owner);
  refusal := v.refusal;
  if refusal is not null then
    return;
  end if;
  v_now := fencepost.clock();
  select * into strict v_job from fencepost.job j where j.job_id = p_id;
  state := case
    when p_how = 'cancel' or (v.running).cancel_requested_at is not null then 'cancelled'
    when p_how = 'bury' or (p_how = 'retry' and (v.running).tries >= v_job.tries_max) then 'dead'
    else 'pending'
  end;
  perform fencepost._event(v_now, 'job', p_id::text,
    case p_how when 'release' then 'released' when 'retry' then 'failed' when 'cancel' then 'cancelled' else 'buried' end, p_owner, p_attempt,
    jsonb_build_object('to', state, 'error', left(p_error, 2000), 'claimed_at', (v.running).claimed_at)
      || case when p_traceback is null then '{}'
              else jsonb_build_object('try', (v.running).tries, 'traceback', right(p_traceback, 8192)) end);
  if state = 'pending' and p_how = 'release' and coalesce(p_delay, interval '0') = interval '0'
     and exists (select 1 from fencepost.job_suspect s where s.job_id = p_id) then
    -- Its worker stops, which proves nothing.
    perform fencepost._suspect_put_back(v.running, s.suspicion_id, s.losses, (v.running).tries - 1, p_error, v_now)
    from fencepost.job_suspect s where s.job_id = p_id;
  elsif state = 'pending' then
    perform fencepost._job_put_back(v.running, v_now + coalesce(p_delay, interval '0'),
      (v.running).tries - case when p_how = 'release' then 1 else 0 end, p_error, v_now);
  else
    perform fencepost._job_end(v.running, state, case when state = 'dead' then 'failed' else 'cancelled' end, p_error, v_now);
  end if;
end $$;

create or replace function fencepost._job_leave_or_refuse(
  p_id bigint, p_attempt bigint, p_owner text, p_how text, p_error text, p_delay interval
) returns text
language plpgsql volatile
as $$
declare
  v record;
begin
  perform fencepost._check_holder(p_attempt, p_owner);
  perform fencepost._check_wait('delay', coalesce(p_delay, interval '0'), interval '10 years');
  select * into v from fencepost._job_leave(p_id, p_attempt, p_owner, p_how, p_error, p_delay, null);
  if v.refusal is not null then
    perform fencepost._refuse(v.refusal, 'job', p_id::text,
      jsonb_build_object('attempt', p_attempt, 'owner', p_owner, 'op', p_how), fencepost._job_seen(p_id));
  end if;
  return v.state;
end $$;

-- Give a job back unfinished, for a shutdown: the try is not counted. Returns the new state: pending, or
-- cancelled when a cancel was requested.
create or replace function fencepost.job_release(p_id bigint, p_attempt bigint, p_owner text, p_delay interval default null)
returns text
language sql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$ select fencepost._job_leave_or_refuse(p_id, p_attempt, p_owner, 'release', null, p_delay) $$;

-- The handler failed: wait p_delay and try again, or dead when no tries are left. Returns the new state.
create or replace function fencepost.job_retry(p_id bigint, p_attempt bigint, p_owner text, p_error text, p_delay interval)
returns text
language sql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$ select fencepost._job_leave_or_refuse(p_id, p_attempt, p_owner, 'retry', p_error, p_delay) $$;

-- The job cannot succeed: dead at once, with its cause.
create or replace function fencepost.job_bury(p_id bigint, p_attempt bigint, p_owner text, p_error text) returns text
language sql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$ select fencepost._job_leave_or_refuse(p_id, p_attempt, p_owner, 'bury', p_error, null) $$;

-- Leave many, each in its own way (release, retry, bury, cancel), in order of id; answers for each.
create or replace function fencepost.job_leave_many(
  p_ids bigint[], p_attempts bigint[], p_owner text, p_hows text[], p_errors text[] default null, p_delays interval[] default null,
  p_tracebacks text[] default null
) returns table (job_id bigint, state text, refusal text, seen jsonb)
language plpgsql volatile security definer
set search_path = pg_catalog, fencepost, pg_temp set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  v_asked record;
  v_seen  jsonb;
  v       record;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('owner', p_owner, 256);
  perform fencepost._check_tokens('ids', p_ids);
  perform fencepost._check_tokens('attempts', p_attempts);
  perform fencepost._check_lengths('attempts', cardinality(p_ids), cardinality(p_attempts));
  perform fencepost._check_lengths('hows', cardinality(p_ids), cardinality(p_hows));
  perform fencepost._check_lengths('errors', cardinality(p_ids), coalesce(cardinality(p_errors), cardinality(p_ids)));
  perform fencepost._check_lengths('delays', cardinality(p_ids), coalesce(cardinality(p_delays), cardinality(p_ids)));
  perform fencepost._check_lengths('tracebacks', cardinality(p_ids), coalesce(cardinality(p_tracebacks), cardinality(p_ids)));
  perform fencepost._check_word('hows', h, array['release', 'retry', 'bury', 'cancel']) from unnest(p_hows) h;
  perform fencepost._check_wait('delays', coalesce(d, interval '0'), interval '10 years') from unnest(p_delays) d;
  -- Locks all rows before the first of them is counted in its batch: a finish of many uses this order.
  perform 1 from fencepost.job_running r where r.job_id = any (p_ids) and r.owner = p_owner order by r.job_id for update;
  perform fencepost._batch_lock(p_ids, array(select a.id from unnest(p_ids, p_hows) a (id, how) where a.how in ('bury', 'cancel')));
  for v_asked in select a.* from unnest(p_ids, p_attempts, p_hows, p_errors, p_delays, p_tracebacks)
                   a (job_id, attempt, how, error, delay, traceback)
                 order by a.job_id loop
    select * into v from fencepost._job_leave(v_asked.job_id, v_asked.attempt, p_owner, v_asked.how, v_asked.error, v_asked.delay,
      v_asked.traceback);
    v_seen := case when v.refusal is not null then fencepost._job_seen(v_asked.job_id) end;
    if v.refusal is not null then
      perform fencepost._refusal_note(v.refusal, 'job', v_asked.job_id::text, p_owner,
        jsonb_build_object('attempt', v_asked.attempt, 'owner', p_owner, 'op', v_asked.how), v_seen);
    end if;
    return query select v_asked.job_id, v.state, v.refusal, v_seen;
  end loop;
end $$;

-- Put back jobs that have been expired for p_grace, at most p_limit. A job whose old owner still has a fenced
-- transaction open is skipped. Answers whether the try was charged: job_suspect.sql decides it. Served by
-- job_running_by_expiry.
create or replace function fencepost.job_reclaim(p_limit integer, p_grace interval default '0')
returns table (job_id bigint, attempt bigint, owner text, state text, charged boolean, queue text, kind text, trace_id text)
language plpgsql volatile security definer
set search_path = pg_catalog, fencepost, pg_temp set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  v_now  timestamptz := fencepost.clock();
  v_lost fencepost.job_running[];
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_limit(p_limit);
  perform fencepost._check_wait('grace', p_grace, interval '1 day');
  v_lost := array(select r from fencepost.job_running r where r.expires_at <= v_now - p_grace
                  order by r.expires_at limit p_limit for update skip locked);
  return query select * from fencepost._job_reclaim_all(v_lost, 'its lease expired', v_now);
end $$;

-- Expired jobs that reclaim skips because a fenced transaction is still open: the blocking backend must be
-- evicted.
create or replace function fencepost.job_blocked(p_limit integer, p_grace interval default '0') returns setof bigint
language plpgsql volatile security definer
set search_path = pg_catalog, fencepost, pg_temp set enable_seqscan = off
as $$
declare
  v_before  timestamptz := fencepost.clock() - p_grace;
  v_expired bigint[];
begin
  perform fencepost._check_limit(p_limit);
  perform fencepost._check_wait('grace', p_grace, interval '1 day');
  v_expired := array(select r.job_id from fencepost.job_running r where r.expires_at <= v_before
                     order by r.expires_at limit p_limit);
  return query
  select e from unnest(v_expired) e
  except
  select f.job_id from (select r.job_id from fencepost.job_running r where r.job_id = any (v_expired)
                        for update skip locked) f;
end $$;

-- Put one expired job back, waiting for the backend that blocks it: job_evict terminates that from another
-- connection. Raises not_owner while the lease is valid, and the reason when the job is not running.
create or replace function fencepost.job_reclaim_one(p_id bigint, p_grace interval default '0') returns text
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_running fencepost.job_running;
  v_now     timestamptz;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_wait('grace', p_grace, interval '1 day');
  select * into v_running from fencepost.job_running r where r.job_id = p_id for update;
  v_now := fencepost.clock();
  if not found or v_running.expires_at > v_now - p_grace then
    perform fencepost._refuse((select e.refusal from fencepost._job_explain(p_id, null, '', v_now) e), 'job', p_id::text,
      jsonb_build_object('op', 'reclaim'), fencepost._job_seen(p_id));
  end if;
  return (select r.state from fencepost._job_reclaim_all(array[v_running], 'its lease expired', v_now) r);
end $$;

-- Terminate the backends that keep the backend p_waiter from reclaiming the job. Does nothing unless the
-- job's lease has been expired for p_grace, by the database's clock, at this moment. p_seen spares a backend
-- that was no blocker yet at an earlier call; _evict says why.
create or replace function fencepost.job_evict(
  p_id bigint, p_waiter integer, p_grace interval, p_seen integer[] default null
) returns setof integer
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now     timestamptz := fencepost.clock();
  v_running fencepost.job_running;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_wait('grace', p_grace, interval '1 day');
  select * into v_running from fencepost.job_running r where r.job_id = p_id;
  if not found or v_running.expires_at > v_now - p_grace then
    perform fencepost._refuse((select e.refusal from fencepost._job_explain(p_id, null, '', v_now) e), 'job', p_id::text,
      jsonb_build_object('op', 'evict', 'waiter', p_waiter), fencepost._job_seen(p_id));
  end if;
  return query select fencepost._evict('job', p_id::text, p_waiter, 'fencepost.job_running', p_seen);
end $$;
