-- What follows when jobs have ended, in the transaction that ended them.

-- Count the batches that wait for the jobs, wake the sessions that wait for their results, and undo the steps
-- of workflows that ended badly. All are rare, so they are checked for first: by one statement, because
-- starting a statement costs more than each of these lookups.
create or replace function fencepost._job_ended(p_ids bigint[], p_now timestamptz) returns void
language plpgsql volatile
as $$
declare
  v record;
begin
  select exists (select 1 from fencepost.job_batch b where b.completed_at is null) as has_batches,
         exists (select 1 from fencepost.sleeper s where s.topic >= 'result:' and s.topic < 'result;') as has_waiters,
         exists (select 1 from fencepost.workflow_undo u where u.next_job_id > 0 and not u.called_next) as has_undos,
         exists (select 1 from fencepost.workflow_step s
                 where s.step_id > 0 and s.undo is not null and s.undone_by is null) as has_undoable_steps
  into v;
  if v.has_batches then
    perform fencepost._batch_count(p_ids, p_now);
  end if;
  if v.has_waiters then
    perform fencepost._result_tell(p_ids);
  end if;
  if v.has_undos then
    perform fencepost._workflow_undo_next(p_ids, p_now);
  end if;
  if v.has_undoable_steps then
    perform fencepost._workflow_undo(p_ids, p_now);
  end if;
end $$;

-- A job ends once, so a notified waiter need not be notified again.
create or replace function fencepost._result_tell(p_ids bigint[]) returns void
language plpgsql volatile
as $$
declare
  v_topic text;
begin
  for v_topic in delete from fencepost.sleeper s where s.topic = any (array(select 'result:' || i from unnest(p_ids) i))
                 returning s.topic loop
    perform pg_notify('fencepost', v_topic);
  end loop;
end $$;

-- The outcome of a job: no row when there is no such job.
create or replace function fencepost.job_outcome(p_id bigint)
returns table (state text, final_status text, attempt bigint, tries integer, result jsonb, error text)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select f.state, f.final_status, f.attempt, f.tries, f.result, f.error from fencepost.job_finished f where f.job_id = p_id
  union all
  select 'running', null, r.attempt, r.tries, null, null from fencepost.job_running r where r.job_id = p_id
  union all
  select case when w.dispatched_at is null then 'pending' else 'dispatched' end, null, w.attempt, w.tries, null, w.last_error
  from fencepost.job_waiting w where w.job_id = p_id
$$;

-- Delete result waiters registered before p_keep ago: they ended without unregistering.
create or replace function fencepost.result_prune(p_keep interval) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_before timestamptz := fencepost.clock() - p_keep;
  v_count  bigint;
begin
  perform fencepost._check_duration('keep', p_keep, interval '100 years');
  delete from fencepost.sleeper s where s.topic >= 'result:' and s.topic < 'result;' and s.since < v_before;
  get diagnostics v_count = row_count;
  return v_count;
end $$;

-- Delete finished and cancelled jobs past the p_keep newest, at most p_limit; dead ones stay for an operator.
-- Walks the newest p_keep entries of job_finished_by_time, so a loop calls it once a minute, not once a
-- second. The jobs of one batch end at the same time, so ties are ordered by id: sorted within each time, as
-- the index is.
create or replace function fencepost.job_prune_excess(p_keep bigint, p_limit integer) returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, fencepost, pg_temp set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
  v_newest   fencepost.job_finished;
  v_children boolean := fencepost._workflow_has_children();
  v_batches  boolean := fencepost._batch_has_callbacks();
  v_ids      bigint[];
begin
  if p_keep is null or p_keep < 0 then
    raise exception 'keep is %; it must be 0 or more.', coalesce(p_keep::text, 'null')
      using errcode = 'ZF100', detail = '{"field": "keep"}';
  end if;
  perform fencepost._check_limit(p_limit);
  -- The newest job that is deleted.
  select f.finished_at, f.job_id into v_newest.finished_at, v_newest.job_id from fencepost.job_finished f where f.state <> 'dead'
  order by f.finished_at desc, f.job_id desc offset p_keep limit 1;
  with gone as (
    delete from fencepost.job_finished f where f.ctid = any (array(
      select o.ctid from fencepost.job_finished o
      where o.finished_at <= v_newest.finished_at and (o.finished_at, o.job_id) <= (v_newest.finished_at, v_newest.job_id)
        and o.state <> 'dead' and not (v_children and fencepost._workflow_needs(o.job_id))
        and not (v_batches and fencepost._batch_needs(o.job_id))
      order by o.finished_at, o.job_id limit p_limit for update skip locked))
    returning f.job_id
  )
  select coalesce(array_agg(g.job_id), '{}') into v_ids from gone g;
  delete from fencepost.job j where j.job_id = any (v_ids);
  delete from fencepost.job_label l where l.job_id = any (v_ids);
  perform fencepost._history_release(v_ids);
  return cardinality(v_ids);
end $$;
