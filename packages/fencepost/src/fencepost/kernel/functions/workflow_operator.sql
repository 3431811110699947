-- What operators do with workflows: lists of them, and decisions about many at once.
--
-- A list is paged by its key, newest first. A filter that finds little reads at most p_scan rows and says where it stopped.

-- Whether a queue is that of a version of a workflow, and the name in it.
create or replace function fencepost._workflow_name(p_queue text) returns text
language sql immutable
as $$ select case when p_queue ~ '^[^/]+/[^/@]+@[0-9]{1,9}$' then split_part(split_part(p_queue, '/', 2), '@', 1) end $$;

-- The queues of dead letters, by skipping from one to the next. Served by job_finished_dead.
create or replace function fencepost._job_dead_queues() returns setof text
language sql stable
as $$
  with recursive q as (
    (select f.queue from fencepost.job_finished f where f.state = 'dead' order by f.queue limit 1)
    union all
    select (select f.queue from fencepost.job_finished f where f.state = 'dead' and f.queue > q.queue order by f.queue limit 1)
    from q where q.queue is not null
  ) select q.queue from q where q.queue is not null
$$;

-- The newest p_scan rows below p_below that one page may look at, from the table or index that holds the fewest others. `fits` says
-- whether the row is in p_state and parked for p_waits; `name` is null for what is no workflow.
create or replace function fencepost._workflow_looked(p_state text, p_waits text, p_labels text[], p_below bigint, p_scan integer)
returns table (job_id bigint, name text, fits boolean)
language plpgsql stable
as $$
#variable_conflict use_column
begin
  case
    -- Few run: they are walked, whatever else is asked for.
    when p_state = 'running' and p_waits is null then
      return query select r.job_id, fencepost._workflow_name(r.queue), not exists (
        select 1 from unnest(p_labels) asked
        where not exists (select 1 from fencepost.job_label b where b.label = asked and b.job_id = r.job_id))
      from fencepost.job_running r where r.job_id < p_below order by r.job_id desc limit p_scan;
    when p_labels <> '{}' then
      return query
      select l.job_id, fencepost._workflow_name(j.queue), not exists (
               select 1 from unnest(p_labels[2:]) other
               where not exists (select 1 from fencepost.job_label b where b.label = other and b.job_id = l.job_id))
             and (p_state is null or case
               when p_state in ('finished', 'dead', 'cancelled') then
                 exists (select 1 from fencepost.job_finished f where f.job_id = l.job_id and f.state = p_state)
               when p_state = 'live' then not exists (select 1 from fencepost.job_finished f where f.job_id = l.job_id)
               else exists (select 1 from fencepost.job_waiting w
                            where w.job_id = l.job_id and (w.dispatched_at is null) = (p_state = 'pending')) end)
             and (p_waits is null or exists (
               select 1 from fencepost.workflow_wait w join fencepost.job_waiting p on p.job_id = w.job_id
               where w.job_id = l.job_id having bool_or(w.event is not null) = (p_waits = 'event')))
      from (select b.job_id from fencepost.job_label b where b.label = p_labels[1] and b.job_id < p_below order by b.job_id desc limit p_scan) l
      join fencepost.job j on j.job_id = l.job_id;
    when p_waits = 'event' then
      -- One that waits for several events has a row for each: the first one counts.
      return query select n.job_id, fencepost._workflow_name(w.queue), n.job_id is distinct from lag(n.job_id) over (order by n.job_id desc)
                            and coalesce(p_state, 'live') in ('live', case when w.dispatched_at is null then 'pending' else 'dispatched' end)
      from (select o.job_id from fencepost.workflow_wait o where o.event is not null and o.job_id < p_below order by o.job_id desc limit p_scan) n
      left join fencepost.job_waiting w on w.job_id = n.job_id;
    when p_waits = 'time' then
      return query select n.job_id, fencepost._workflow_name(w.queue), n.event is null
                            and n.job_id is distinct from lag(n.job_id) over (order by n.job_id desc)
                            and coalesce(p_state, 'live') in ('live', case when w.dispatched_at is null then 'pending' else 'dispatched' end)
                            and not exists (select 1 from fencepost.workflow_wait o where o.job_id = n.job_id and o.event is not null)
      from (select o.job_id, o.event from fencepost.workflow_wait o where o.job_id < p_below order by o.job_id desc limit p_scan) n
      left join fencepost.job_waiting w on w.job_id = n.job_id;
    when p_state in ('pending', 'dispatched') then
      return query select w.job_id, fencepost._workflow_name(w.queue), (w.dispatched_at is null) = (p_state = 'pending') from (
        select * from fencepost.job_waiting n where n.job_id < p_below order by n.job_id desc limit p_scan) w;
    when p_state = 'live' then
      return query select l.job_id, fencepost._workflow_name(l.queue), true from (
        (select w.job_id, w.queue from fencepost.job_waiting w where w.job_id < p_below order by w.job_id desc limit p_scan)
        union all
        (select r.job_id, r.queue from fencepost.job_running r where r.job_id < p_below order by r.job_id desc limit p_scan)
      ) l order by l.job_id desc limit p_scan;
    when p_state = 'dead' then
      return query select d.job_id, fencepost._workflow_name(d.queue), true from fencepost._job_dead_queues() q
        cross join lateral (select f.job_id, f.queue from fencepost.job_finished f
                            where f.state = 'dead' and f.queue = q and f.job_id < p_below order by f.job_id desc limit p_scan) d
      where fencepost._workflow_name(q) is not null order by d.job_id desc limit p_scan;
    else
      return query select j.job_id, fencepost._workflow_name(j.queue), p_state is null or coalesce(f.state = p_state, false)
      from (select n.job_id, n.queue from fencepost.job n where n.headers ? 'workflow' and n.job_id < p_below
            order by n.job_id desc limit p_scan) j
      left join fencepost.job_finished f on p_state is not null and f.job_id = j.job_id;
  end case;
end $$;

-- The ids of one page of workflows, newest first, below p_before, and where the next page begins: null after the last. p_state may
-- be live: pending, dispatched or running. p_waits is event or time: those that are parked, for an event or for the time alone.
-- Served by job_of_workflow, workflow_wait_for_event, job_label_pkey, and the tables of waiting, running and dead jobs; looks at
-- more rows at a time while it finds none.
create or replace function fencepost.workflow_page(
  p_state text default null, p_name text default null, p_waits text default null, p_tags text[] default '{}', p_arguments jsonb default '{}',
  p_before bigint default null, p_limit integer default 50, p_scan integer default 20000
) returns table (ids bigint[], next_before bigint)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_labels text[] := fencepost._job_search_labels(coalesce(p_tags, '{}'), coalesce(p_arguments, '{}'));
  v_left   integer := greatest(p_limit, p_scan);
  v_chunk  integer := greatest(p_limit, 100);
  v_looked bigint[];
  v_found  bigint[];
begin
  perform fencepost._check_limit(p_limit);
  if p_state is not null then
    perform fencepost._check_word('state', p_state, array['pending', 'dispatched', 'running', 'finished', 'dead', 'cancelled', 'live']);
  end if;
  if p_waits is not null then
    perform fencepost._check_word('waits', p_waits, array['event', 'time']);
  end if;
  ids := '{}';
  next_before := coalesce(p_before, 9223372036854775807);
  loop
    v_chunk := least(v_chunk, v_left);
    select array_agg(l.job_id order by l.job_id desc),
           array_agg(l.job_id order by l.job_id desc) filter (
             where l.fits and l.name is not null and (p_name is null or l.name = p_name))
    into v_looked, v_found
    from fencepost._workflow_looked(p_state, p_waits, v_labels, next_before, v_chunk) l;
    ids := ids || coalesce(v_found, '{}');
    if cardinality(ids) >= p_limit then
      ids := ids[:p_limit];
      next_before := ids[p_limit];
      exit;
    end if;
    if v_looked is null or cardinality(v_looked) < v_chunk then
      next_before := null;
      exit;
    end if;
    next_before := v_looked[cardinality(v_looked)];
    v_left := v_left - v_chunk;
    exit when v_left <= 0;
    v_chunk := v_chunk * 4;
  end loop;
  return next;
end $$;

-- What a list tells of these workflows, newest first: those that are parked with what they wait for.
create or replace function fencepost.workflow_rows(p_ids bigint[])
returns table (job_id bigint, name text, version integer, queue text, state text, attempt bigint, tries integer, tries_max integer,
               steps bigint, waits text[], submitted_at timestamptz, run_at timestamptz, finished_at timestamptz, owner text, error text)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select j.job_id, j.headers #>> '{workflow, name}', (j.headers #>> '{workflow, version}')::integer, j.queue, j.state, j.attempt, j.tries,
         j.tries_max, (select count(*) from fencepost.workflow_step s where s.job_id = j.job_id),
         case when j.state in ('pending', 'dispatched') then
           -- The row of a sleep stays after its end, until the next one.
           array(select coalesce(w.event, 'sleeps') from fencepost.workflow_wait w
                 where w.job_id = j.job_id and (w.event is not null or w.deadline > fencepost.clock()) order by w.since, w.name)
           || array(select b.size || ' children' from fencepost.workflow_steps s join fencepost.job_batch b on b.batch_id = (s.result ->> 'batch')::bigint
                    where s.job_id = j.job_id and s.what = 'spawn' and b.awaited and b.completed_at is null order by s.step_id)
         else '{}' end,
         j.submitted_at, j.run_at, j.finished_at, j.owner, left(j.error, 300)
  from fencepost.jobs j where j.job_id = any (p_ids) and j.headers ? 'workflow' order by j.job_id desc
$$;

-- How many workflows wait for an event, the first 10,000 that were started; and how many of each queue are stuck:
--   running   an attempt has run for p_running without recording a step
--   event     it waits for an event since p_event, without a deadline
-- Served by workflow_wait_for_event, the table of running jobs and workflow_step_pkey.
create or replace function fencepost.workflow_status(
  p_running interval default '1 hour', p_event interval default '7 days', out waiting bigint, out stuck jsonb
)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz := fencepost.clock();
begin
  perform fencepost._check_duration('running', p_running, interval '10 years');
  perform fencepost._check_duration('event', p_event, interval '10 years');
  with waits as materialized (
    select w.job_id, w.deadline, w.since from fencepost.workflow_wait w where w.event is not null order by w.job_id limit 10000
  ), found as (
    select r.queue, 'running' as reason, count(*) as workflows from fencepost.job_running r
    where r.claimed_at < v_now - p_running and fencepost._workflow_name(r.queue) is not null
      and not exists (select 1 from fencepost.workflow_step s where s.job_id = r.job_id and s.at >= v_now - p_running)
    group by r.queue
    union all
    select j.queue, 'event', count(distinct w.job_id) from waits w join fencepost.job_waiting j on j.job_id = w.job_id
    where w.deadline is null and w.since < v_now - p_event group by j.queue
  )
  select (select count(*) from waits),
         coalesce((select jsonb_agg(jsonb_build_object('queue', f.queue, 'reason', f.reason, 'workflows', f.workflows)) from found f), '[]')
  into waiting, stuck;
end $$;

-- The life of a workflow without its steps, which may be many: for a page that lists those by themselves. As explain tells it, the
-- newest p_limit moments.
create or replace function fencepost.workflow_life(p_id bigint, p_limit integer)
returns table (at timestamptz, event text, actor text, token bigint, detail jsonb)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  perform fencepost._check_limit(p_limit);
  return query
  select n.at, n.event, n.actor, n.token, n.detail from (
    select * from (
      select *, null::bigint as turn from fencepost._explain_job(p_id)
      union all select *, null from fencepost._workflow_refusals(p_id)
      union all select *, null from fencepost._explain_refusals('job', p_id::text)
      union all select e.at, e.event, e.actor, e.token, e.detail, e.event_id from fencepost.event e where e.noun = 'job' and e.subject = p_id::text
    ) life order by life.at desc, life.token desc nulls last, life.turn desc nulls first limit p_limit) n
  order by n.at, n.token nulls first, n.turn nulls last;
end $$;

-- Cancel or replay many workflows; answers each with what became of it, or the reason why not. In order of id.
create or replace function fencepost.workflow_settle(p_ids bigint[], p_how text, p_actor text) returns table (job_id bigint, outcome text)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_state  text;
  v_detail text;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_tokens('ids', p_ids);
  perform fencepost._check_word('how', p_how, array['cancel', 'replay']);
  perform fencepost._check_text('actor', p_actor, 256);
  for job_id in select distinct i from unnest(p_ids) i order by i loop
    begin
      if p_how = 'cancel' then
        outcome := fencepost.job_cancel(job_id, p_actor);
      else
        perform fencepost.job_replay(job_id, p_actor, 'dead');
        outcome := 'replayed';
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
