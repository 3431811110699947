-- Compensation. A step may store a job that undoes it. Whatever ends the workflow badly (a cancel, a bury,
-- tries that are used up, also by crashes) submits these jobs in the same transaction. They run one after
-- the other, newest step first: each one calls the next when it has ended. A dead one keeps those after it
-- waiting until it is replayed or discarded.

-- Submit the undo of those jobs that ended badly. Called by _job_ended, after their rows were written. The
-- bound of a queue does not apply: an end must not fail.
create or replace function fencepost._workflow_undo(p_ids bigint[], p_now timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_bad   bigint[] := array(select f.job_id from fencepost.job_finished f
                            where f.job_id = any (p_ids) and f.state in ('dead', 'cancelled'));
  v       record;
  v_of    bigint;
  v_older bigint;
  v_id    bigint;
begin
  -- Most jobs end well: the steps are looked at only for the others, job by job.
  for v in
    select b.job_id, t.name, t.undo, t.step_id = max(t.step_id) over (partition by b.job_id) as is_newest
    from unnest(v_bad) b (job_id) cross join lateral (
      select s.name, s.undo, s.step_id from fencepost.workflow_step s
      where s.job_id = b.job_id and s.undo is not null and s.undone_by is null order by s.step_id) t
    order by b.job_id, t.step_id
  loop
    v_older := case when v.job_id = v_of then v_id end;
    v_of := v.job_id;
    insert into fencepost.job (queue, kind, priority, payload, headers, tries_max, lease, submitted_at)
    values (v.undo ->> 'queue', v.undo ->> 'kind', coalesce((v.undo ->> 'priority')::integer, 1), v.undo -> 'payload',
            coalesce(v.undo -> 'headers', '{}') || jsonb_build_object('undo_of', v.job_id, 'undo_step', v.name),
            coalesce((v.undo ->> 'tries_max')::integer, 5), coalesce((v.undo ->> 'lease')::interval, interval '60 seconds'), p_now)
    returning job_id into v_id;
    insert into fencepost.job_waiting (job_id, queue, priority, run_at)
    values (v_id, v.undo ->> 'queue', coalesce((v.undo ->> 'priority')::integer, 1),
            case when v.is_newest then p_now else fencepost._batch_never() end);
    insert into fencepost.workflow_undo (job_id, workflow_id, name, next_job_id) values (v_id, v.job_id, v.name, v_older);
    update fencepost.workflow_step s set undone_by = v_id where s.job_id = v.job_id and s.name = v.name;
    if v.is_newest then
      perform fencepost._wake('job:' || (v.undo ->> 'queue'));
    end if;
  end loop;
end $$;

-- Jobs that undo a step have ended: the next ones are due. Not after a dead one.
create or replace function fencepost._workflow_undo_next(p_ids bigint[], p_now timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_next  bigint;
  v_queue text;
begin
  for v_next in
    update fencepost.workflow_undo u set called_next = true
    where u.job_id = any (p_ids) and u.next_job_id is not null and not u.called_next
      and exists (select 1 from fencepost.job_finished f where f.job_id = u.job_id and f.state in ('finished', 'cancelled'))
    returning u.next_job_id
  loop
    update fencepost.job_waiting w set run_at = p_now where w.job_id = v_next returning w.queue into v_queue;
    if found then
      perform fencepost._wake('job:' || v_queue);
    end if;
  end loop;
end $$;
