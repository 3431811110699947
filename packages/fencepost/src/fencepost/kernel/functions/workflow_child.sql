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

-- Whether a batch is of a workflow that lives: it may still ask how its children ended.
create or replace function fencepost._workflow_needs_batch(p_batch bigint) returns boolean
language sql stable
as $$
  select exists (
    select 1 from fencepost.job_batch b
    where b.batch_id = p_batch and b.workflow_id is not null
      and (exists (select 1 from fencepost.job_waiting w where w.job_id = b.workflow_id)
           or exists (select 1 from fencepost.job_running r where r.job_id = b.workflow_id)))
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

-- Wait for the children of a batch: ended, or the workflow is parked until the last of them has ended. With
-- p_park => false an open batch is answered as registered. The batch's row is locked, as by the end of its
-- last job: either that finds the parked workflow, or we find the batch complete.
create or replace function fencepost.workflow_join(
  p_id bigint, p_attempt bigint, p_owner text, p_batch bigint, p_park boolean default true
) returns text
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_running fencepost.job_running;
  v_batch   fencepost.job_batch;
begin
  perform fencepost._check_token('batch', p_batch);
  v_running := fencepost._workflow_hold(p_id, p_attempt, p_owner, 'join', p_batch::text);
  perform 1 from fencepost.job_batch b where b.batch_id = p_batch or b.callback_job_id = p_id order by b.batch_id for update;
  select * into v_batch from fencepost.job_batch b where b.batch_id = p_batch;
  -- A batch that was pruned was complete.
  if not found or v_batch.completed_at is not null then
    return 'ended';
  end if;
  -- One open batch calls one job: an earlier one that is complete has called.
  update fencepost.job_batch b set callback_job_id = null where b.callback_job_id = p_id and b.batch_id <> p_batch;
  update fencepost.job_batch b set callback_job_id = p_id where b.batch_id = p_batch;
  if not p_park then
    return 'registered';
  end if;
  perform fencepost._workflow_park(v_running, fencepost.clock());
  return 'parked';
end $$;

-- How children ended, in the order of the ids. One that was pruned, or has not ended, has no state.
create or replace function fencepost.workflow_children(p_children bigint[])
returns table (job_id bigint, state text, final_status text, tries integer, result jsonb, error text)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select a.job_id, f.state, f.final_status, f.tries, f.result, f.error
  from unnest(p_children) with ordinality a (job_id, place) left join fencepost.job_finished f on f.job_id = a.job_id order by a.place
$$;
