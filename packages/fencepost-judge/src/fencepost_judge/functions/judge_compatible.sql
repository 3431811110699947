-- The compatibility profile of the judge: its jobs as an earlier system showed them, and the end of a submission that its direct
-- path could not deliver.

create or replace view fencepost.submissions as
  select j.job_id, j.attempt as attempt_id,
         case when j.state in ('finished', 'dead', 'cancelled') then coalesce(j.final_status, j.state) else j.state end as status,
         case j.state when 'running' then 'processing' when 'pending' then 'queued' when 'dispatched' then 'queued' else 'done' end
           as state,
         j.owner as lease_owner, j.expires_at as lease_until, j.result, j.error, j.submitted_at as created_at,
         coalesce(j.finished_at, j.claimed_at, j.submitted_at) as updated_at
  from fencepost.jobs j;

-- The waiting rows as an outbox: one event for each job, pending until it is delivered to a stream.
create or replace view fencepost.outbox_events as
  select w.job_id, j.payload, case when w.dispatched_at is null then 'pending' else 'delivered' end as status,
         w.dispatches as attempts, w.run_at as next_attempt_at, w.last_error, w.dispatched_at, w.entry_id as stream_entry_id,
         j.submitted_at as created_at
  from fencepost.job_waiting w join fencepost.job j on j.job_id = w.job_id;

-- Remove a submission that was not delivered, its job and its idempotency key, so that the same request may be made again. Refused
-- when the job is not pending any more: then it was delivered, and is judged. Locks the waiting row, as job_cancel does.
create or replace function fencepost.judge_withdraw(p_job_id bigint, p_actor text, p_scope text, p_key text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  if not exists (select 1 from fencepost.judge_submission s where s.job_id = p_job_id) then
    perform fencepost._refuse('not_found', 'submission', coalesce(p_job_id::text, ''), '{}', '{}');
  end if;
  perform fencepost.job_cancel(p_job_id, p_actor, 'pending');
  delete from fencepost.judge_submission s where s.job_id = p_job_id;
  -- Only the key that answers with this job: the key of another request stays.
  delete from fencepost.idempotency_key m where m.scope = p_scope and m.key = p_key
    and m.response ->> 'job_id' = p_job_id::text;
  delete from fencepost.job_finished f where f.job_id = p_job_id;
  delete from fencepost.job j where j.job_id = p_job_id;
  perform fencepost._history_release(array[p_job_id]);
end $$;
