-- Claiming. A job runs only after a claim.
--
-- A claim answers for each job: claimed, deferred (its concurrency key has no free slot, its rate no token,
-- or its queue is paused: the job waits and its entry is no longer needed), set_aside (the caller does not serve
-- it, or is pinned to other work: it waits for a worker that takes it, job_need.sql), withheld (the caller is out of
-- service, job_worker.sql: nothing has changed), or refused with a reason.

-- The only place where a job becomes running: one statement deletes waiting rows and inserts running rows.
-- The index scan over the ids locks them in order of id; the function-level plan settings pin this, and also
-- the merge with the jobs, one walk over their index instead of a search for each. What the caller does not
-- serve goes back to the waiting rows, set aside.
create or replace function fencepost._job_start(
  p_ids bigint[], p_special bigint[], p_owner text, p_lease interval, p_now timestamptz, p_serves jsonb)
returns table (job_id bigint, outcome text, refusal text, attempt bigint, tries integer, queue text, priority smallint, kind text,
               payload jsonb, headers jsonb, lease interval, expires_at timestamptz, submitted_at timestamptz)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_nestloop = off set enable_mergejoin = on
as $$
#variable_conflict use_column
declare
  v_queues jsonb := p_serves -> 'queues';
  v_kinds  jsonb := nullif(p_serves -> 'kinds', 'null');
  v_offers text[] := fencepost._job_offers(p_serves);
begin
  return query
  with gone as (
    delete from fencepost.job_waiting w
    where w.job_id = any (p_ids) and w.job_id <> all (p_special) and w.run_at <= p_now
    returning w.job_id, w.attempt, w.tries, w.queue, w.priority, w.run_at, w.dispatches, w.last_error
  ), picked as materialized (
    select g.job_id, g.attempt + 1 as attempt, g.tries + 1 as tries, g.queue, g.priority, j.kind, j.payload, j.headers,
           coalesce(p_lease, j.lease) as lease, p_now + coalesce(p_lease, j.lease) as expires_at, j.submitted_at,
           g.run_at, g.dispatches, g.last_error,
           p_serves is null or ((v_queues is null or v_queues ? g.queue)
                                and fencepost._job_serves(v_kinds, v_offers, j.kind, j.payload, j.headers)) as served
    from gone g join fencepost.job j on j.job_id = g.job_id and j.job_id = any (p_ids)
  ), started as (
    insert into fencepost.job_running (job_id, attempt, tries, queue, priority, owner, lease, claimed_at, renewed_at, expires_at)
    select p.job_id, p.attempt, p.tries, p.queue, p.priority, p_owner, p.lease, p_now, p_now, p.expires_at from picked p
    where p.served
  ), aside as (
    insert into fencepost.job_waiting (job_id, queue, priority, run_at, attempt, tries, dispatches, last_error, need_id)
    select p.job_id, p.queue, p.priority, p.run_at, p.attempt - 1, p.tries - 1, p.dispatches, p.last_error,
           fencepost._job_need(p.queue, p.kind, p.payload, p.headers, p_now) from picked p
    where not p.served
  )
  select p.job_id, case when p.served then 'claimed' else 'set_aside' end, null::text, p.attempt, p.tries, p.queue, p.priority,
         p.kind, p.payload, p.headers, p.lease, p.expires_at, p.submitted_at
  from picked p;
end $$;

-- Claim the jobs of p_ids. Jobs that _job_start does not take (concurrency keys, paused queues, expired
-- holders, all refused ones) are handled one by one. Refusals are recorded here where p_note is set: a second
-- walk over all answers, to find the few, would cost as much as the claim.
create or replace function fencepost._job_claim(p_ids bigint[], p_owner text, p_lease interval, p_note boolean, p_serves jsonb default null)
returns table (job_id bigint, outcome text, refusal text, attempt bigint, tries integer, queue text, priority smallint, kind text,
               payload jsonb, headers jsonb, lease interval, expires_at timestamptz, submitted_at timestamptz)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  v_now     timestamptz := fencepost.clock();
  v_special bigint[];
  v_limited bigint[] := '{}';
  v_claimed bigint[] := '{}';
  v_serves  jsonb := fencepost.worker_serves(p_owner, p_serves);
begin
  perform fencepost._job_check_claim(p_owner, p_lease, p_serves);
  perform fencepost._check_tokens('ids', p_ids);
  if fencepost._worker_is_held(p_owner) then
    return query select distinct i, 'withheld', null::text, null::bigint, null::integer, null::text, null::smallint, null::text,
      null::jsonb, null::jsonb, null::interval, null::timestamptz, null::timestamptz from unnest(p_ids) i;
    return;
  end if;
  -- A job never changes its key or its queue, so this read needs no lock.
  v_special := array(select w.job_id from fencepost.job_waiting w
    where w.job_id = any (p_ids) and (w.concurrency_key is not null or w.queue in (
      select q.queue from fencepost.job_queue q where q.paused_at is not null)));
  if exists (select 1 from fencepost.job_rate) then
    v_limited := fencepost._rate_limited(p_ids);
    v_special := v_special || v_limited;
  end if;
  if v_special <> '{}' then
    perform 1 from fencepost.job_waiting w where w.job_id = any (p_ids) order by w.job_id for update;
    perform fencepost._rate_lock(v_limited) where v_limited <> '{}';
    v_now := fencepost.clock();
  end if;

  for job_id, outcome, refusal, attempt, tries, queue, priority, kind, payload, headers, lease, expires_at, submitted_at in
  select * from fencepost._job_start(p_ids, v_special, p_owner, p_lease, v_now, v_serves) loop
    v_claimed := v_claimed || job_id;
    return next;
  end loop;

  -- Their rows are locked by now. Each takes the lock of its concurrency key and keeps it, so two claims must
  -- lock the keys in one order, whatever the order of their ids.
  if cardinality(v_claimed) < cardinality(p_ids) then
    -- A lost job that has no tries left ends here.
    perform fencepost._batch_lock(array(select r.job_id from fencepost.job_running r where r.job_id = any (p_ids)
                                        and r.job_id <> all (v_claimed) and r.expires_at <= v_now));
    for job_id, outcome, refusal, attempt, tries, queue, priority, kind, payload, headers, lease, expires_at, submitted_at in
    select c.* from (
      select a.job_id from (select distinct i as job_id from unnest(p_ids) i where i <> all (v_claimed)) a
      left join fencepost.job j on j.job_id = a.job_id
      order by hashtextextended(j.concurrency_key, 9203), a.job_id
    ) rest cross join lateral fencepost._job_claim_one(rest.job_id, p_owner, p_lease, v_serves) c loop
      if p_note and refusal is not null then
        perform fencepost._refusal_note(refusal, 'job', job_id::text, p_owner, jsonb_build_object('owner', p_owner, 'op', 'claim'),
                                        fencepost._job_seen(job_id));
      end if;
      return next;
    end loop;
  end if;
end $$;

-- Claim one job that the common path did not take.
create or replace function fencepost._job_claim_one(p_id bigint, p_owner text, p_lease interval, p_serves jsonb)
returns table (job_id bigint, outcome text, refusal text, attempt bigint, tries integer, queue text, priority smallint, kind text,
               payload jsonb, headers jsonb, lease interval, expires_at timestamptz, submitted_at timestamptz)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_now     timestamptz;
  v_job     fencepost.job;
  v_waiting fencepost.job_waiting;
  v_running fencepost.job_running;
  v_slot    integer;
  v_rate    record;
  v_served  boolean;
begin
  select * into v_job from fencepost.job j where j.job_id = p_id;
  v_served := p_serves is null
    or (coalesce(p_serves -> 'queues' ? v_job.queue, true)
        and fencepost._job_serves(nullif(p_serves -> 'kinds', 'null'), fencepost._job_offers(p_serves),
                                  v_job.kind, v_job.payload, v_job.headers));
  select * into v_waiting from fencepost.job_waiting w where w.job_id = p_id for update;
  v_now := fencepost.clock();

  -- A job that waits for its time cannot be claimed yet: an old entry of it must not cut its delay short. One
  -- that waits for a slot was due already.
  if found and (v_waiting.run_at <= v_now or v_waiting.deferred_at is not null) then
    if not v_served then
      update fencepost.job_waiting w
      set dispatched_at = null, entry_id = null, incarnation = null,
          need_id = fencepost._job_need(w.queue, v_job.kind, v_job.payload, v_job.headers, v_now)
      where w.job_id = p_id;
      return query select p_id, 'set_aside', null::text, v_waiting.attempt, v_waiting.tries, v_waiting.queue, v_waiting.priority,
        v_job.kind, null::jsonb, null::jsonb, null::interval, null::timestamptz, v_job.submitted_at;
      return;
    end if;
    if not exists (select 1 from fencepost.job_queue q where q.queue = v_waiting.queue and q.paused_at is not null) then
      v_slot := fencepost._job_free_slot(v_waiting.concurrency_key, v_job.concurrency_limit);
    end if;
    select * into v_rate from fencepost._rate_take(v_job, v_waiting, v_now) where v_slot is not null;
    if v_slot is null or not v_rate.granted then
      update fencepost.job_waiting w
      set dispatched_at = null, entry_id = null, incarnation = null,
          -- The slot that becomes free wakes it; the delay is a fallback in case none does. A rate wakes no
          -- job: it has promised a time, or leaves the job to the dispatch.
          deferred_at = case when v_rate.back_at is not null or (v_slot is null and w.concurrency_key is not null) then v_now end,
          run_at = greatest(w.run_at, coalesce(v_rate.back_at, case when v_slot is null and w.concurrency_key is not null
                                                                    then v_now + interval '5 seconds' end))
      where w.job_id = p_id;
      return query select p_id, 'deferred', null::text, v_waiting.attempt, v_waiting.tries, v_waiting.queue, v_waiting.priority,
        v_job.kind, null::jsonb, null::jsonb, null::interval, null::timestamptz, v_job.submitted_at;
      return;
    end if;
    with gone as (delete from fencepost.job_waiting w where w.job_id = p_id returning w.*)
    insert into fencepost.job_running (job_id, attempt, tries, queue, priority, owner, lease, claimed_at, renewed_at, expires_at,
                                       concurrency_key, slot)
    select g.job_id, g.attempt + 1, g.tries + 1, g.queue, g.priority, p_owner, coalesce(p_lease, v_job.lease), v_now, v_now,
           v_now + coalesce(p_lease, v_job.lease), g.concurrency_key,
           case when g.concurrency_key is not null then v_slot end
    from gone g
    returning * into v_running;
  elsif v_waiting.job_id is null and v_served then
    v_running := fencepost._job_take_over(p_id, p_owner, p_lease);
  end if;

  if v_running.job_id is null then
    return query select p_id, 'refused', e.refusal, e.attempt, null::integer, v_job.queue, v_job.priority, v_job.kind, null::jsonb,
      null::jsonb, null::interval, null::timestamptz, v_job.submitted_at
      from fencepost._job_explain(p_id, null, p_owner, v_now) e;
    return;
  end if;
  return query select p_id, 'claimed', null::text, v_running.attempt, v_running.tries, v_running.queue, v_running.priority,
    v_job.kind, v_job.payload, v_job.headers, v_running.lease, v_running.expires_at, v_job.submitted_at;
end $$;

-- A free slot of a concurrency key; 0 without a key, null when all are taken. The advisory lock serializes
-- the claims of one key; the unique key on (concurrency_key, slot) guarantees it.
create or replace function fencepost._job_free_slot(p_key text, p_limit integer) returns integer
language plpgsql volatile
as $$
begin
  if p_key is null then
    return 0;
  end if;
  perform pg_advisory_xact_lock(hashtextextended(p_key, 9203));
  return (select s from generate_series(0, p_limit - 1) s
          where not exists (select 1 from fencepost.job_running r where r.concurrency_key = p_key and r.slot = s)
          order by s limit 1);
end $$;

-- Give an expired running job to a new owner under a new attempt. Null when it is not expired, is fenced by
-- an open transaction, ends here because it was cancelled or has no tries left, or is put back as a suspect.
create or replace function fencepost._job_take_over(p_id bigint, p_owner text, p_lease interval) returns fencepost.job_running
language plpgsql volatile
as $$
declare
  v_now     timestamptz := fencepost.clock();
  v_running fencepost.job_running;
  v         record;
begin
  select * into v_running from fencepost.job_running r where r.job_id = p_id and r.expires_at <= v_now for update skip locked;
  if not found then
    return null;
  end if;
  perform fencepost._suspicion_open(array[v_running], v_now);
  select * into v from fencepost._suspicion_of(v_running);
  if v.suspicion_id is not null or v.suspected or v_running.cancel_requested_at is not null
     or v_running.tries >= (select j.tries_max from fencepost.job j where j.job_id = p_id) then
    perform fencepost._job_reclaim(v_running, 'its lease expired', v_now);
    return null;
  end if;
  perform fencepost._event(v_now, 'job', p_id::text, 'lost', v_running.owner, v_running.attempt,
    jsonb_build_object('claimed_at', v_running.claimed_at, 'expired_at', v_running.expires_at, 'to', p_owner, 'charged', true));
  -- Another attempt is another row: a fence prevents the delete.
  with gone as (delete from fencepost.job_running r where r.job_id = p_id returning r.*)
  insert into fencepost.job_running (job_id, attempt, tries, queue, priority, owner, lease, claimed_at, renewed_at, expires_at,
                                     concurrency_key, slot)
  select g.job_id, g.attempt + 1, g.tries + 1, g.queue, g.priority, p_owner, coalesce(p_lease, g.lease), v_now, v_now,
         v_now + coalesce(p_lease, g.lease), g.concurrency_key, g.slot
  from gone g
  returning * into v_running;
  return v_running;
end $$;

-- Claim one job. Raises the reason when it cannot be claimed; in_flight also stands for a busy concurrency
-- key, a paused queue and a worker that is out of service.
create or replace function fencepost.job_claim(p_id bigint, p_owner text, p_lease interval default null)
returns table (job_id bigint, attempt bigint, tries integer, queue text, priority smallint, kind text, payload jsonb, headers jsonb,
               lease interval, expires_at timestamptz, submitted_at timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v record;
begin
  perform fencepost._check_token('id', p_id);
  select * into v from fencepost._job_claim(array[p_id], p_owner, p_lease, false, null);
  if v.outcome <> 'claimed' then
    perform fencepost._refuse(coalesce(v.refusal, 'in_flight'), 'job', p_id::text, jsonb_build_object('owner', p_owner, 'op', 'claim'),
                              fencepost._job_seen(p_id) || case when v.outcome = 'withheld' then jsonb_build_object(
                                'out_of_service', (select to_jsonb(s) from fencepost.worker_standing(p_owner) s)) else '{}' end);
  end if;
  return query select v.job_id, v.attempt, v.tries, v.queue, v.priority, v.kind, v.payload, v.headers, v.lease, v.expires_at,
                      v.submitted_at;
end $$;

-- Claim many; answers for each and never raises for one. p_serves is what the caller serves (job_need.sql); null
-- stands for everything, here and below.
create or replace function fencepost.job_claim_many(
  p_ids bigint[], p_owner text, p_lease interval default null, p_serves jsonb default null)
returns table (job_id bigint, outcome text, refusal text, attempt bigint, tries integer, queue text, priority smallint, kind text,
               payload jsonb, headers jsonb, lease interval, expires_at timestamptz, submitted_at timestamptz)
language sql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$ select * from fencepost._job_claim(p_ids, p_owner, p_lease, true, p_serves) $$;

-- Check the arguments of every claim: the owner, the lease duration, and what the caller serves.
create or replace function fencepost._job_check_claim(p_owner text, p_lease interval, p_serves jsonb default null) returns void
language plpgsql volatile
as $$
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('owner', p_owner, 256);
  perform fencepost._check_duration('lease', coalesce(p_lease, interval '1 second'), interval '1 day');
  perform fencepost._check_serves(p_serves) where p_serves is not null;
end $$;

-- How many of p_limit may be claimed: none of a paused queue, none by a worker that is out of service or pinned to
-- other queues (p_serves is what its pins leave), and no more than its rate has room for.
create or replace function fencepost._job_claim_room(
  p_queue text, p_limit integer, p_now timestamptz, p_owner text, p_serves jsonb
) returns integer
language plpgsql volatile
as $$
begin
  perform fencepost._check_limit(p_limit);
  if fencepost._worker_is_held(p_owner) or not coalesce(p_serves -> 'queues' ? p_queue, true) then
    return 0;
  end if;
  if exists (select 1 from fencepost.job_queue q where q.queue = p_queue and q.paused_at is not null) then
    return 0;
  end if;
  return least(p_limit, fencepost._rate_room(p_queue, p_now, false));
end $$;

-- The due jobs of one priority, oldest first, locked; with p_dispatched also those whose entries are in a
-- Redis that cannot be reached; none that was due before p_since, if given. keyed tells whether one of them
-- has a concurrency key. Served by job_waiting_pending and job_waiting_dispatched.
create or replace function fencepost._job_due(
  p_queue text, p_priority integer, p_limit integer, p_dispatched boolean, p_now timestamptz, p_since timestamptz,
  out ids bigint[], out keyed boolean
)
language plpgsql volatile
set enable_seqscan = off
as $$
declare
  v_ids   bigint[];
  v_keyed boolean;
begin
  select coalesce(array_agg(d.job_id), '{}'), coalesce(bool_or(d.concurrency_key is not null), false) into ids, keyed from (
    select w.job_id, w.concurrency_key from fencepost.job_waiting w
    where hashtext(w.queue) = hashtext(p_queue) and w.queue = p_queue and w.priority = p_priority
      and w.dispatched_at is null and w.need_id is null and w.run_at <= p_now and w.run_at >= coalesce(p_since, '-infinity')
    order by w.run_at, w.job_id limit p_limit for update skip locked) d;
  if p_dispatched and cardinality(ids) < p_limit then
    select coalesce(array_agg(d.job_id), '{}'), coalesce(bool_or(d.concurrency_key is not null), false) into v_ids, v_keyed from (
      select w.job_id, w.concurrency_key from fencepost.job_waiting w
      where hashtext(w.queue) = hashtext(p_queue) and w.queue = p_queue and w.priority = p_priority
        and w.dispatched_at is not null
      order by w.dispatched_at, w.job_id limit p_limit - cardinality(ids) for update skip locked) d;
    ids := ids || v_ids;
    keyed := keyed or v_keyed;
  end if;
end $$;

-- Claim directly, without Redis: the due jobs of one priority.
create or replace function fencepost.job_claim_next(
  p_queue text, p_priority integer, p_owner text, p_limit integer, p_lease interval default null, p_dispatched boolean default false,
  p_serves jsonb default null
) returns table (job_id bigint, outcome text, refusal text, attempt bigint, tries integer, queue text, priority smallint, kind text,
                 payload jsonb, headers jsonb, lease interval, expires_at timestamptz, submitted_at timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now    timestamptz := fencepost.clock();
  v_serves jsonb := fencepost.worker_serves(p_owner, p_serves);
  v_limit  integer := fencepost._job_claim_room(p_queue, p_limit, v_now, p_owner, v_serves);
  v_aside  bigint[];
begin
  perform fencepost._job_check_claim(p_owner, p_lease, p_serves);
  if v_limit > 0 then
    v_aside := fencepost._job_due_aside(p_queue, p_priority, v_limit, v_now, fencepost._job_needs_served(p_queue, v_serves));
    return query select c.* from
      fencepost._job_due(p_queue, p_priority, v_limit - cardinality(v_aside), p_dispatched, v_now, null) d
      cross join lateral fencepost._job_claim(v_aside || d.ids, p_owner, p_lease, true, p_serves) c;
  end if;
end $$;

-- The same for every priority of a queue, p_limit in all: they share the places as in _priority_parts, and places
-- that one has no jobs for go to the others; p_turn counts the calls of one caller. One statement, so the
-- locks of all their keys are taken in one order.
--
-- Until the next vacuum every claimed job leaves an entry in job_waiting_pending, before those that wait: at
-- thirty thousand jobs a second, passing a minute's worth of them takes longer than the claim itself. A
-- caller that knows that nothing is left before a time passes it for each priority, p_since; as a hint,
-- because a submission may commit late. So the caller periodically omits it to scan everything.
create or replace function fencepost.job_claim_by_priority(
  p_queue text, p_owner text, p_limit integer, p_lease interval default null, p_dispatched boolean default false,
  p_turn bigint default null, p_since timestamptz[] default null, p_serves jsonb default null
) returns table (job_id bigint, outcome text, refusal text, attempt bigint, tries integer, queue text, priority smallint, kind text,
                 payload jsonb, headers jsonb, lease interval, expires_at timestamptz, submitted_at timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, fencepost, pg_temp set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
  v_now    timestamptz := fencepost.clock();
  v_serves jsonb := fencepost.worker_serves(p_owner, p_serves);
  v_limit  integer := fencepost._job_claim_room(p_queue, p_limit, v_now, p_owner, v_serves);
  v_due    integer[];
  v_parts  integer[];
  v_ids    bigint[] := '{}';
  v_keyed  boolean := false;
  v_needs  integer[];
  v_aside  bigint[] := '{}';
  v        record;
begin
  perform fencepost._job_check_claim(p_owner, p_lease, p_serves);
  if v_limit = 0 then
    return;
  end if;
  v_needs := fencepost._job_needs_served(p_queue, v_serves);
  -- Most queues use one priority. Whether one has jobs is a cheap check; how many matters only where several
  -- share places.
  v_due := fencepost._priorities_due(p_queue, 1, p_dispatched, v_now, p_since, v_needs);
  if (select count(*) from unnest(v_due) d where d > 0) > 1 then
    v_parts := fencepost._priority_parts(v_limit, fencepost._priorities_due(p_queue, v_limit, p_dispatched, v_now, p_since, v_needs),
                                      p_turn);
  else
    v_parts := array(select case when d > 0 then v_limit else 0 end from unnest(v_due) with ordinality u (d, place) order by place);
  end if;
  for v_priority in 0 .. 3 loop
    if v_parts[v_priority + 1] > 0 then
      if v_needs <> '{}' then
        v_aside := fencepost._job_due_aside(p_queue, v_priority, v_parts[v_priority + 1], v_now, v_needs);
      end if;
      select * into v from fencepost._job_due(p_queue, v_priority, v_parts[v_priority + 1] - cardinality(v_aside), p_dispatched,
                                              v_now, p_since[v_priority + 1]);
      v_ids := v_ids || v_aside || v.ids;
      v_keyed := v_keyed or v.keyed or v_aside <> '{}';
    end if;
  end loop;
  if v_ids = '{}' then
    return;
  end if;
  -- They are locked and due, and their queue is not paused: without keys and rates none can be left over. Those
  -- that were set aside may have keys.
  if v_keyed or exists (select 1 from fencepost.job_rate) then
    return query select * from fencepost._job_claim(v_ids, p_owner, p_lease, true, p_serves);
  else
    return query select * from fencepost._job_start(v_ids, '{}', p_owner, p_lease, fencepost.clock(), v_serves);
  end if;
end $$;
