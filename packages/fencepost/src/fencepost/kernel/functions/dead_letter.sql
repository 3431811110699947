-- Dead letters: jobs for which no try succeeded, by cause, for an operator to decide on.

-- The cause is the name of the error, or the status when there was none, such as worker_lost. A view's
-- functions run with the rights of its reader, which may call none of ours, so the expression is here once
-- and the other views read this one.
create or replace view fencepost.dead_letters as
  select f.job_id, f.queue, j.kind,
         case when f.error ~ '^[A-Za-z_][A-Za-z0-9_.]*: ' then split_part(f.error, ':', 1) else f.final_status end as cause,
         f.error, f.final_status, f.tries, f.attempt, f.owner, f.claimed_at, f.finished_at, j.submitted_at, j.payload, j.headers
  from fencepost.job_finished f join fencepost.job j on j.job_id = f.job_id
  where f.state = 'dead';

create or replace view fencepost.dead_causes as
  select d.queue, d.kind, d.cause, count(*) as jobs, min(d.finished_at) as first_at, max(d.finished_at) as last_at,
         max(d.job_id) as newest_job_id, (array_agg(d.error order by d.job_id desc))[1] as newest_error
  from fencepost.dead_letters d group by d.queue, d.kind, d.cause;

-- The dead letters that match a filter, after the given one, in order of id. Those that died after p_before
-- do not match: so a replay by filter that is repeated, or continues after an interruption, does not take
-- again a job that it has replayed once and that has died again since.
create or replace function fencepost.dead_ids(
  p_queue text, p_kind text, p_cause text, p_before timestamptz, p_after_id bigint, p_limit integer
) returns setof bigint
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._check_limit(p_limit);
  return query
  select d.job_id from fencepost.dead_letters d
  where (p_queue is null or d.queue = p_queue) and (p_kind is null or d.kind = p_kind) and (p_cause is null or d.cause = p_cause)
    and (p_before is null or d.finished_at <= p_before) and d.job_id > coalesce(p_after_id, 0)
  order by d.job_id limit p_limit;
end $$;

-- How many match a filter.
create or replace function fencepost.dead_count(p_queue text, p_kind text, p_cause text, p_before timestamptz) returns bigint
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select count(*) from fencepost.dead_letters d
  where (p_queue is null or d.queue = p_queue) and (p_kind is null or d.kind = p_kind) and (p_cause is null or d.cause = p_cause)
    and (p_before is null or d.finished_at <= p_before)
$$;

-- Replay or discard many, in order of id; answers for each what was done, or the reason why not. Never raises
-- for one.
create or replace function fencepost.dead_settle(p_ids bigint[], p_how text, p_actor text)
returns table (job_id bigint, outcome text)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_state  text;
  v_detail text;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_tokens('ids', p_ids);
  perform fencepost._check_word('how', p_how, array['replay', 'discard']);
  perform fencepost._check_text('actor', p_actor, 256);
  for job_id in select distinct i from unnest(p_ids) i order by i loop
    begin
      if p_how = 'replay' then
        perform fencepost.job_replay(job_id, p_actor, 'dead');
        outcome := 'replayed';
      else
        perform fencepost.job_discard(job_id, p_actor);
        outcome := 'discarded';
      end if;
    exception when others then
      get stacked diagnostics v_state = returned_sqlstate, v_detail = pg_exception_detail;
      if v_state not like 'ZF0%' then
        raise;
      end if;
      outcome := v_detail::jsonb ->> 'reason';
      perform fencepost.refusal_record(outcome, 'job', job_id::text, p_actor, v_detail::jsonb -> 'attempted',
                                       v_detail::jsonb -> 'seen');
    end;
    return next;
  end loop;
end $$;

-- The ids of one page of jobs, newest first, below p_before_id. Reads the table that holds the state first,
-- so that ten running jobs are found quickly beside ten million finished ones.
create or replace function fencepost.job_page(p_state text, p_queue text, p_kind text, p_before_id bigint, p_limit integer)
returns setof bigint
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_below bigint := coalesce(p_before_id, 9223372036854775807);
begin
  perform fencepost._check_limit(p_limit);
  if p_state is not null then
    perform fencepost._check_word('state', p_state, array['pending', 'dispatched', 'running', 'finished', 'dead', 'cancelled']);
  end if;
  case
    when p_state is null then
      return query select j.job_id from fencepost.job j
      where j.job_id < v_below and (p_queue is null or j.queue = p_queue) and (p_kind is null or j.kind = p_kind)
      order by j.job_id desc limit p_limit;
    when p_state in ('pending', 'dispatched') then
      return query select w.job_id from fencepost.job_waiting w
      where w.job_id < v_below and (p_queue is null or w.queue = p_queue) and (w.dispatched_at is null) = (p_state = 'pending')
        and (p_kind is null or exists (select 1 from fencepost.job j where j.job_id = w.job_id and j.kind = p_kind))
      order by w.job_id desc limit p_limit;
    when p_state = 'running' then
      return query select r.job_id from fencepost.job_running r
      where r.job_id < v_below and (p_queue is null or r.queue = p_queue)
        and (p_kind is null or exists (select 1 from fencepost.job j where j.job_id = r.job_id and j.kind = p_kind))
      order by r.job_id desc limit p_limit;
    when p_state = 'dead' then
      return query select f.job_id from fencepost.job_finished f
      where f.state = 'dead' and f.job_id < v_below and (p_queue is null or f.queue = p_queue)
        and (p_kind is null or exists (select 1 from fencepost.job j where j.job_id = f.job_id and j.kind = p_kind))
      order by f.job_id desc limit p_limit;
    else
      return query select f.job_id from fencepost.job_finished f
      where f.state = p_state and f.job_id < v_below and (p_queue is null or f.queue = p_queue)
        and (p_kind is null or exists (select 1 from fencepost.job j where j.job_id = f.job_id and j.kind = p_kind))
      order by f.job_id desc limit p_limit;
  end case;
end $$;

-- Make a waiting job due now. Not the callback of a batch that is still open.
create or replace function fencepost.job_hurry(p_id bigint, p_actor text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now   timestamptz := fencepost.clock();
  v_queue text;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('actor', p_actor, 256);
  update fencepost.job_waiting w set run_at = least(w.run_at, v_now)
  where w.job_id = p_id and w.run_at < fencepost._batch_never() returning w.queue into v_queue;
  if not found then
    perform fencepost._job_refuse_operator(p_id, 'pending', p_actor, 'hurry');
  end if;
  perform fencepost._event(v_now, 'job', p_id::text, 'hurried', p_actor, null, null);
  perform fencepost._wake('job:' || v_queue);
end $$;
