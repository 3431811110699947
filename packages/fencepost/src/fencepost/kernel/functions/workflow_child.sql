-- Children of a workflow: jobs that one of its steps submitted. They are a batch, so that thousands of them
-- end without waiting for each other.

-- Record the children that this transaction has submitted, as one step of the workflow and one batch of
-- jobs. Answers the batch.
create or replace function fencepost.workflow_spawn(
  p_id bigint, p_attempt bigint, p_owner text, p_name text, p_digest text, p_children bigint[]
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_batch bigint;
begin
  perform fencepost._check_text('name', p_name, 256);
  perform fencepost._check_text('digest', p_digest, 256);
  perform fencepost._check_tokens('children', p_children);
  perform fencepost._step_fence(p_id, p_attempt, p_owner, 'spawn', p_name);
  v_batch := fencepost.batch_make(p_children, null, left('workflow ' || p_id || ': ' || p_name, 256));
  update fencepost.job_batch b set workflow_id = p_id where b.batch_id = v_batch;
  if not fencepost._step_write(p_id, p_attempt, 'spawn', p_name, p_digest,
      jsonb_build_object('batch', v_batch, 'jobs', to_jsonb(p_children)), null, fencepost.clock()) then
    perform fencepost._step_refuse_known(p_id, p_attempt, p_owner, p_name, p_digest);
  end if;
  return v_batch;
end $$;

-- Whether a batch is of a workflow that lives, or is dead and may be replayed: it may still ask how its
-- children ended.
create or replace function fencepost._workflow_needs_batch(p_batch bigint) returns boolean
language sql stable
as $$
  select exists (
    select 1 from fencepost.job_batch b
    where b.batch_id = p_batch and b.workflow_id is not null
      and (exists (select 1 from fencepost.job_waiting w where w.job_id = b.workflow_id)
           or exists (select 1 from fencepost.job_running r where r.job_id = b.workflow_id)
           or exists (select 1 from fencepost.job_finished f where f.job_id = b.workflow_id and f.state = 'dead')))
$$;

-- Whether a finished job is a child of a workflow that lives. Pruning asks only where there are children at all.
create or replace function fencepost._workflow_needs(p_job_id bigint) returns boolean
language sql stable
as $$
  select exists (select 1 from fencepost.job_batch_member m
                 where m.job_id = p_job_id and fencepost._workflow_needs_batch(m.batch_id))
$$;

create or replace function fencepost._workflow_has_children() returns boolean
language sql stable
as $$ select exists (select 1 from fencepost.job_batch b where b.workflow_id is not null and b.batch_id > 0) $$;

-- Wait for the children of any of these batches of the workflow: answers those that have ended, and how their
-- jobs ended. If none has, the workflow is parked until the first of them is complete; with p_park => false
-- it is only registered. The rows of the batches are locked in order, as by the end of their last job: either
-- that finds the parked workflow, or we find the batch complete.
create or replace function fencepost.workflow_join_any(
  p_id bigint, p_attempt bigint, p_owner text, p_batches bigint[], p_park boolean default true
) returns table (batch_id bigint, finished bigint, dead bigint, cancelled bigint)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_running fencepost.job_running;
begin
  perform fencepost._check_tokens('batches', p_batches);
  if cardinality(p_batches) = 0 then
    raise exception 'batches is empty: nothing would wake the workflow.' using errcode = 'ZF100', detail = '{"field": "batches"}';
  end if;
  v_running := fencepost._workflow_hold(p_id, p_attempt, p_owner, 'join', left(array_to_string(p_batches, ' '), 256));
  perform 1 from fencepost.job_batch b where b.batch_id = any (p_batches) order by b.batch_id for no key update;
  if exists (select 1 from fencepost.job_batch b where b.batch_id = any (p_batches) and b.workflow_id is distinct from p_id) then
    perform fencepost._workflow_refuse('mismatch', p_id, p_attempt, p_owner, 'join', left(array_to_string(p_batches, ' '), 256));
  end if;
  -- A batch that was pruned was complete.
  return query
  select a.batch_id, coalesce(sum(p.finished), 0)::bigint, coalesce(sum(p.dead), 0)::bigint, coalesce(sum(p.cancelled), 0)::bigint
  from unnest(p_batches) a (batch_id) left join fencepost.job_batch b on b.batch_id = a.batch_id
  left join fencepost.job_batch_part p on p.batch_id = b.batch_id
  where b.batch_id is null or b.completed_at is not null group by a.batch_id order by a.batch_id;
  if found then
    return;
  end if;
  update fencepost.job_batch b set awaited = true where b.batch_id = any (p_batches) and not b.awaited;
  if p_park then
    perform fencepost._workflow_park(v_running, fencepost.clock());
  end if;
end $$;

-- Wait for the children of one batch: ended, or the workflow is parked until the last of them has ended. With
-- p_park => false an open batch is answered as registered.
create or replace function fencepost.workflow_join(
  p_id bigint, p_attempt bigint, p_owner text, p_batch bigint, p_park boolean default true
) returns text
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._check_token('batch', p_batch);
  if exists (select 1 from fencepost.workflow_join_any(p_id, p_attempt, p_owner, array[p_batch], p_park)) then
    return 'ended';
  end if;
  return case when p_park then 'parked' else 'registered' end;
end $$;

-- Batches are complete: the workflows that await them are due. Called after the last of the batches was
-- locked; two of them may call one workflow, so the workflows are locked in order too.
create or replace function fencepost._workflow_called(p_batches bigint[], p_now timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_ids   bigint[];
  v_queue text;
begin
  v_ids := array(select distinct b.workflow_id from fencepost.job_batch b where b.batch_id = any (p_batches) and b.awaited);
  if v_ids = '{}' then
    return;
  end if;
  v_ids := array(select w.job_id from fencepost.job_waiting w where w.job_id = any (v_ids) and w.run_at > p_now
                 order by w.job_id for no key update);
  for v_queue in
    with due as (update fencepost.job_waiting w set run_at = p_now where w.job_id = any (v_ids) returning w.queue)
    select distinct d.queue from due d
  loop
    perform fencepost._wake('job:' || v_queue);
  end loop;
end $$;

-- How children ended, in the order of the ids. One that was pruned, or has not ended, has no state.
create or replace function fencepost.workflow_children(p_children bigint[])
returns table (job_id bigint, state text, final_status text, tries integer, result jsonb, error text)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select a.job_id, f.state, f.final_status, f.tries, f.result, f.error
  from unnest(p_children) with ordinality a (job_id, place) left join fencepost.job_finished f on f.job_id = a.job_id order by a.place
$$;

-- A declared graph as it stands: its document, the state of its workflow, and for each of its steps how far the
-- jobs of that step are. No row when there is no such workflow, or when it runs no graph. Served by the primary
-- keys, and by job_batch_member_by_batch for the jobs of a node. Each batch is looked up: where there are few, the
-- planner would read them all. The result of a step that is no spawn is not taken for the number of a batch.
create or replace function fencepost.workflow_graph(p_id bigint) returns table (document jsonb, state text, steps jsonb)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off
as $$
  select j.payload -> 'graph', o.state, coalesce(
    (select jsonb_agg(jsonb_build_object(
              'name', s.name, 'at', s.at, 'ended', case when s.what = 'step' then s.result end, 'batch', b.batch_id, 'size', b.size,
              'first_job', (select min(m.job_id) from fencepost.job_batch_member m where m.batch_id = b.batch_id),
              'remaining', c.remaining, 'finished', c.finished, 'dead', c.dead, 'cancelled', c.cancelled,
              'running', case when c.remaining > 0 then (
                select count(*) from fencepost.job_batch_member m join fencepost.job_running r on r.job_id = m.job_id
                where m.batch_id = b.batch_id and not m.counted) end) order by s.step_id)
     from fencepost.workflow_step s
     left join fencepost.workflow_result l on s.is_large and l.job_id = s.job_id and l.name = s.name
     left join fencepost.job_batch b
       on b.batch_id = case when s.what = 'spawn' then (coalesce(s.result, l.result) ->> 'batch')::bigint end
     left join lateral (select sum(p.remaining) as remaining, sum(p.finished) as finished, sum(p.dead) as dead,
                               sum(p.cancelled) as cancelled
                        from fencepost.job_batch_part p where p.batch_id = b.batch_id) c on true
     where s.job_id = p_id), '[]')
  from fencepost.job j cross join lateral fencepost.job_outcome(p_id) o
  where j.job_id = p_id and j.headers ? 'graph' and j.payload ? 'graph'
$$;
