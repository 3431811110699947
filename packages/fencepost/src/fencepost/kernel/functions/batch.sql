-- Batches: many jobs, and a callback job that runs when the last of them has ended.
--
-- The callback becomes due in the transaction of the last finishing write. It cannot fail there and cannot
-- happen twice, because nothing is submitted at that moment: the callback is a job that was submitted with
-- the batch and waits for a time that never comes, until its batch makes it due.

-- The run_at of a callback while its batch is open.
create or replace function fencepost._batch_never() returns timestamptz
language sql immutable parallel safe
as $$ select timestamptz '9999-12-31 00:00:00+00' $$;

-- Make a batch of waiting jobs, and of the callback that waits for them. Their rows are locked until this
-- transaction ends, so that none of them is claimed before the batch is visible. A batch without jobs is
-- complete at once.
create or replace function fencepost.batch_make(p_ids bigint[], p_callback_id bigint default null, p_name text default null)
returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now   timestamptz;
  v_ids   bigint[];
  v_batch bigint;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_tokens('ids', p_ids);
  if p_name is not null then
    perform fencepost._check_text('name', p_name, 256);
  end if;
  if p_callback_id = any (p_ids) then
    raise exception 'callback is a job of the batch, which would wait for itself.'
      using errcode = 'ZF100', detail = '{"field": "callback"}';
  end if;
  -- In order of id, as a claim locks them; the callback among them.
  v_ids := array(select w.job_id from fencepost.job_waiting w where w.job_id = any (p_ids || p_callback_id)
                 order by w.job_id for update);
  perform fencepost._batch_refuse_gone(p_ids || p_callback_id, v_ids);
  v_now := fencepost.clock();
  v_ids := array_remove(v_ids, p_callback_id);
  insert into fencepost.job_batch (name, size, callback_job_id, made_at)
  values (p_name, cardinality(v_ids), p_callback_id, v_now) returning batch_id into v_batch;
  -- Parts of 64: neighbours are claimed, and so finished, together.
  insert into fencepost.job_batch_member (job_id, batch_id, part)
  select m.job_id, v_batch, (m.place - 1) / 64 from unnest(v_ids) with ordinality m (job_id, place);
  insert into fencepost.job_batch_part (batch_id, part, remaining)
  select v_batch, p, least(64, cardinality(v_ids) - 64 * p) from generate_series(0, (cardinality(v_ids) - 1) / 64) p
  where v_ids <> '{}';
  update fencepost.job_waiting w set run_at = fencepost._batch_never(), dispatched_at = null, entry_id = null, incarnation = null
  where w.job_id = p_callback_id;
  if v_ids = '{}' then
    perform fencepost._batch_complete(v_batch, v_now);
  end if;
  return v_batch;
end $$;

-- A job that is no longer waiting may have ended before the batch counts it; one that is in a batch already
-- is counted there.
create or replace function fencepost._batch_refuse_gone(p_ids bigint[], p_waiting bigint[]) returns void
language plpgsql volatile
as $$
declare
  v_gone bigint;
begin
  select a into v_gone from unnest(p_ids) a where a is not null and a <> all (p_waiting) order by a limit 1;
  if found then
    perform fencepost._refuse(case when fencepost._job_seen(v_gone) = '{}' then 'not_found' else 'mismatch' end, 'job',
      v_gone::text, jsonb_build_object('op', 'batch', 'expected', 'pending'), fencepost._job_seen(v_gone));
  end if;
  select m.job_id into v_gone from fencepost.job_batch_member m where m.job_id = any (p_ids) limit 1;
  if found then
    perform fencepost._refuse('duplicate', 'job', v_gone::text, jsonb_build_object('op', 'batch'),
      (select jsonb_build_object('batch_id', m.batch_id) from fencepost.job_batch_member m where m.job_id = v_gone));
  end if;
end $$;

-- Lock the rows that the ends of these running jobs will count in: parts, then batches, then the workflows that
-- wait for these, each in order. For
-- callers that end jobs one by one, after they have locked the job rows; a statement that ends many takes
-- them in this order by itself. Only for jobs that have been cancelled or have no tries left, and those in
-- p_buried: the others continue.
create or replace function fencepost._batch_lock(p_ids bigint[], p_buried bigint[] default '{}') returns void
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
  v_ending  bigint[];
  v_batches bigint[];
begin
  if not exists (select 1 from fencepost.job_batch b where b.completed_at is null) then
    return;
  end if;
  v_ending := array(select r.job_id from fencepost.job_running r join fencepost.job j on j.job_id = r.job_id
    where r.job_id = any (p_ids) and (r.cancel_requested_at is not null or r.tries >= j.tries_max or r.job_id = any (p_buried)));
  perform 1 from (select distinct m.batch_id, m.part from fencepost.job_batch_member m
                  where m.job_id = any (v_ending) and not m.counted) c
  join fencepost.job_batch_part p on p.batch_id = c.batch_id and p.part = c.part
  order by p.batch_id, p.part for no key update of p;
  v_batches := array(select distinct m.batch_id from fencepost.job_batch_member m where m.job_id = any (v_ending) and not m.counted);
  perform 1 from fencepost.job_batch b where b.batch_id = any (v_batches) order by b.batch_id for no key update;
  -- Several batches may call one workflow, so these come last, and in order as well.
  perform 1 from fencepost.job_waiting w where w.job_id = any (array(
    select b.workflow_id from fencepost.job_batch b where b.batch_id = any (v_batches) and b.awaited))
  order by w.job_id for no key update;
end $$;

-- Jobs have ended: count those that belong to a batch, each once. Called in the transaction that ended them,
-- after their rows were written. Parts are locked in order, and a batch only by the transaction that brings a
-- part of it to zero: it then sees all parts that reached zero before, because their transactions had to end
-- before it got the lock.
create or replace function fencepost._batch_count(p_ids bigint[], p_now timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_part  record;
  v_empty bigint[] := '{}';
  v_done  bigint[] := '{}';
  v_batch bigint;
begin
  for v_part in
    with counted as (
      update fencepost.job_batch_member m set counted = true where m.job_id = any (p_ids) and not m.counted
      returning m.job_id, m.batch_id, m.part
    )
    select c.batch_id, c.part, count(*) as ended, count(*) filter (where f.state = 'finished') as finished,
           count(*) filter (where f.state = 'dead') as dead, count(*) filter (where f.state = 'cancelled') as cancelled
    from counted c join fencepost.job_finished f on f.job_id = c.job_id
    group by c.batch_id, c.part order by c.batch_id, c.part
  loop
    update fencepost.job_batch_part p
    set remaining = p.remaining - v_part.ended, finished = p.finished + v_part.finished, dead = p.dead + v_part.dead,
        cancelled = p.cancelled + v_part.cancelled
    where p.batch_id = v_part.batch_id and p.part = v_part.part
    returning case when p.remaining = 0 then p.batch_id end into v_batch;
    if v_batch is not null and v_batch <> all (v_empty) then
      v_empty := v_empty || v_batch;
    end if;
  end loop;
  foreach v_batch in array v_empty loop
    perform 1 from fencepost.job_batch b where b.batch_id = v_batch and b.completed_at is null for no key update;
    if found and not exists (select 1 from fencepost.job_batch_part p where p.batch_id = v_batch and p.remaining > 0) then
      perform fencepost._batch_complete(v_batch, p_now);
      v_done := v_done || v_batch;
    end if;
  end loop;
  perform fencepost._workflow_called(v_done, p_now) where v_done <> '{}';
end $$;

-- The last job has ended: the callback is due, and its headers tell how the others ended. A callback that was
-- cancelled meanwhile does not run; its headers are still written, because an operator may replay it.
create or replace function fencepost._batch_complete(p_batch bigint, p_now timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_callback bigint;
  v_queue    text;
begin
  update fencepost.job_batch b set completed_at = p_now where b.batch_id = p_batch returning b.callback_job_id into v_callback;
  update fencepost.job j set headers = j.headers || jsonb_build_object('batch', (
    select jsonb_build_object('batch_id', p_batch, 'finished', coalesce(sum(p.finished), 0), 'dead', coalesce(sum(p.dead), 0),
                              'cancelled', coalesce(sum(p.cancelled), 0))
    from fencepost.job_batch_part p where p.batch_id = p_batch))
  where j.job_id = v_callback;
  update fencepost.job_waiting w set run_at = p_now where w.job_id = v_callback returning w.queue into v_queue;
  if found then
    perform fencepost._wake('job:' || v_queue);
  end if;
end $$;

-- The outcomes of the jobs of a batch, in order of id, after p_after: for its callback. A job that was pruned has no state. Served by
-- job_batch_member_by_batch.
create or replace function fencepost.batch_results(p_batch_id bigint, p_after bigint, p_limit integer)
returns table (job_id bigint, state text, final_status text, result jsonb, error text)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  perform fencepost._check_token('batch_id', p_batch_id);
  perform fencepost._check_limit(p_limit);
  return query
  select m.job_id, f.state, f.final_status, f.result, f.error
  from fencepost.job_batch_member m left join fencepost.job_finished f on f.job_id = m.job_id
  where m.batch_id = p_batch_id and m.job_id > coalesce(p_after, 0) order by m.job_id limit p_limit;
end $$;

-- Whether there is a batch with a callback: without one, pruning need not ask for each job. Served by job_batch_callback_key.
create or replace function fencepost._batch_has_callbacks() returns boolean
language sql stable
as $$ select exists (select 1 from fencepost.job_batch b where b.callback_job_id > 0) $$;

-- Whether a callback that has not ended may still read the result of this job. A dead one may be replayed.
create or replace function fencepost._batch_needs(p_id bigint) returns boolean
language sql stable
as $$
  select exists (select 1 from fencepost.job_batch_member m join fencepost.job_batch b on b.batch_id = m.batch_id
                 where m.job_id = p_id and fencepost._batch_has_reader(b.callback_job_id))
$$;

create or replace function fencepost._batch_has_reader(p_callback bigint) returns boolean
language sql stable
as $$
  select exists (select 1 from fencepost.job_waiting w where w.job_id = p_callback)
      or exists (select 1 from fencepost.job_running r where r.job_id = p_callback)
      or exists (select 1 from fencepost.job_finished f where f.job_id = p_callback and f.state = 'dead')
$$;

-- Delete batches that were complete before p_keep ago, at most p_limit, with their members.
create or replace function fencepost.batch_prune(p_keep interval, p_limit integer) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_before timestamptz := fencepost._prune_before(p_keep, p_limit);
  v_ids    bigint[];
begin
  v_ids := array(select b.batch_id from fencepost.job_batch b where b.completed_at < v_before
                   and not fencepost._workflow_needs_batch(b.batch_id) and not fencepost._batch_has_reader(b.callback_job_id)
                 order by b.completed_at limit p_limit for update skip locked);
  delete from fencepost.job_batch_member m where m.batch_id = any (v_ids);
  delete from fencepost.job_batch_part p where p.batch_id = any (v_ids);
  delete from fencepost.job_batch b where b.batch_id = any (v_ids);
  return cardinality(v_ids);
end $$;

create or replace view fencepost.batches as
  select b.batch_id, b.name, b.size, p.remaining, p.finished, p.dead, p.cancelled, b.callback_job_id, b.made_at, b.completed_at
  from fencepost.job_batch b
  cross join lateral (
    select coalesce(sum(k.remaining), 0) as remaining, coalesce(sum(k.finished), 0) as finished, coalesce(sum(k.dead), 0) as dead,
           coalesce(sum(k.cancelled), 0) as cancelled
    from fencepost.job_batch_part k where k.batch_id = b.batch_id) p;
