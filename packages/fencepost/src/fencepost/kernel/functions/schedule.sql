-- Schedules: one job for each tick, on any number of nodes.
--
-- The scheduler reads the expressions, because calendars and time zones do not belong in the database. It
-- proposes the ticks that are due and the next one; here they are taken once: the row of the schedule is
-- locked, the proposal must start at the tick that is stored, and (schedule, tick) is a key. The tick, its
-- job and the next tick are one transaction.

-- Declare a schedule, or declare it again: a worker does so when it starts. The next tick is kept unless the expression
-- or its zone has changed; a pause is kept.
create or replace function fencepost.schedule_declare(
  p_name text, p_expression text, p_zone text, p_missed text, p_grace interval, p_next_tick timestamptz, p_queue text,
  p_kind text, p_payload jsonb, p_priority integer, p_tries_max integer, p_lease interval, p_unique_key text,
  p_concurrency_key text, p_concurrency_limit integer, p_headers jsonb, p_terms jsonb default '{}'
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz := fencepost.clock();
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('name', p_name, 256);
  perform fencepost._check_text('expression', p_expression, 256);
  perform fencepost._check_text('zone', p_zone, 64);
  perform fencepost._check_word('missed', p_missed, array['once', 'all', 'skip']);
  perform fencepost._check_wait('grace', p_grace, interval '1 year');
  perform fencepost._check_moment('next_tick', p_next_tick);
  perform fencepost._job_check_terms(p_queue, p_kind, p_priority, p_tries_max, p_lease);
  perform fencepost._check_json('payload', p_payload, 1048576);
  perform fencepost._check_json('headers', p_headers, 8192);
  insert into fencepost.job_schedule as s (name, expression, zone, missed, grace, queue, kind, payload, headers, priority, tries_max,
    lease, unique_key, concurrency_key, concurrency_limit, next_tick, declared_at, terms)
  values (p_name, p_expression, p_zone, p_missed, p_grace, p_queue, p_kind, p_payload, p_headers, p_priority, p_tries_max, p_lease,
    p_unique_key, p_concurrency_key, p_concurrency_limit, p_next_tick, v_now, p_terms)
  on conflict (name) do update
  set next_tick = case when s.expression = p_expression and s.zone = p_zone then s.next_tick else p_next_tick end,
      expression = p_expression, zone = p_zone, missed = p_missed, grace = p_grace, queue = p_queue, kind = p_kind,
      payload = p_payload, headers = p_headers, priority = p_priority, tries_max = p_tries_max, lease = p_lease,
      unique_key = p_unique_key, concurrency_key = p_concurrency_key, concurrency_limit = p_concurrency_limit,
      declared_at = v_now, terms = p_terms;
end $$;

-- Delete the schedules of these kinds that are not among p_names: the code that serves the kinds no longer
-- declares them.
create or replace function fencepost.schedule_retire(p_kinds text[], p_names text[], p_actor text) returns setof text
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_name text;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('actor', p_actor, 256);
  for v_name in delete from fencepost.job_schedule s where s.kind = any (p_kinds) and s.name <> all (p_names) returning s.name loop
    perform fencepost._event(fencepost.clock(), 'schedule', v_name, 'retired', p_actor, null, null);
    return next v_name;
  end loop;
end $$;

-- The schedules with the next ticks, soonest first, and the current time. Served by job_schedule_due.
create or replace function fencepost.schedule_next(p_limit integer)
returns table (name text, expression text, zone text, missed text, grace interval, next_tick timestamptz, paused boolean,
               now timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := fencepost.clock();
begin
  perform fencepost._check_limit(p_limit);
  return query select s.name, s.expression, s.zone, s.missed, s.grace, s.next_tick, s.paused_at is not null, v_now
               from fencepost.job_schedule s order by s.next_tick limit p_limit;
end $$;

-- A JSON list of texts as an array; null for none.
create or replace function fencepost._texts(p_list jsonb) returns text[]
language sql immutable
as $$ select case when jsonb_typeof(p_list) = 'array' then array(select jsonb_array_elements_text(p_list)) end $$;

-- Take the ticks that are due. Does nothing, and returns nothing, when another node takes them or has taken
-- them: the stored next tick is then another one. A paused schedule advances without submitting.
create or replace function fencepost.schedule_fire(
  p_name text, p_expected timestamptz, p_ticks timestamptz[], p_next_tick timestamptz
) returns table (tick timestamptz, job_id bigint, created boolean)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_schedule fencepost.job_schedule;
  v_now      timestamptz;
begin
  perform fencepost._require_read_committed();
  select * into v_schedule from fencepost.job_schedule s where s.name = p_name for update skip locked;
  if not found or v_schedule.next_tick <> p_expected then
    return;
  end if;
  v_now := fencepost.clock();
  if p_next_tick is null or p_next_tick <= p_expected
     or exists (select 1 from unnest(p_ticks) t where t is null or t < p_expected or t > v_now or t >= p_next_tick) then
    raise exception 'ticks must lie between the stored tick, the present and the next tick.'
      using errcode = 'ZF100', detail = '{"field": "ticks"}';
  end if;
  if v_schedule.paused_at is null then
    foreach tick in array p_ticks loop
      select s.job_id, s.created into job_id, created from fencepost.job_submit(
        v_schedule.queue, v_schedule.kind, v_schedule.payload, v_schedule.priority, null, v_schedule.tries_max, v_schedule.lease,
        v_schedule.unique_key, v_schedule.concurrency_key, v_schedule.concurrency_limit,
        jsonb_build_object('trace_id', replace(gen_random_uuid()::text, '-', '')) || v_schedule.headers
          || jsonb_build_object('schedule', p_name, 'tick', tick),
        (v_schedule.terms ->> 'period')::interval, fencepost._texts(v_schedule.terms -> 'states'),
        fencepost._texts(v_schedule.terms -> 'replace'), fencepost._texts(v_schedule.terms -> 'tags'),
        fencepost._texts(v_schedule.terms -> 'search_by')) s;
      insert into fencepost.job_tick (schedule, tick, job_id, fired_at) values (p_name, tick, job_id, v_now);
      return next;
    end loop;
  end if;
  update fencepost.job_schedule s set next_tick = p_next_tick where s.name = p_name;
end $$;

-- Pause a schedule: its ticks pass without a job, and are not caught up. Idempotent.
create or replace function fencepost.schedule_pause(p_name text, p_actor text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz := fencepost.clock();
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('actor', p_actor, 256);
  update fencepost.job_schedule s set paused_at = coalesce(s.paused_at, v_now), paused_by = coalesce(s.paused_by, p_actor)
  where s.name = p_name;
  if not found then
    perform fencepost._refuse('not_found', 'schedule', p_name, jsonb_build_object('op', 'pause', 'actor', p_actor), null);
  end if;
  perform fencepost._event(v_now, 'schedule', p_name, 'paused', p_actor, null, null);
end $$;

-- Resume a schedule: its jobs are submitted again from its next tick on. Idempotent.
create or replace function fencepost.schedule_resume(p_name text, p_actor text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('actor', p_actor, 256);
  update fencepost.job_schedule s set paused_at = null, paused_by = null where s.name = p_name;
  if not found then
    perform fencepost._refuse('not_found', 'schedule', p_name, jsonb_build_object('op', 'resume', 'actor', p_actor), null);
  end if;
  perform fencepost._event(fencepost.clock(), 'schedule', p_name, 'resumed', p_actor, null, null);
end $$;

-- Delete ticks that were fired before p_keep ago, at most p_limit. None of them can recur: a schedule only
-- advances.
create or replace function fencepost.schedule_prune(p_keep interval, p_limit integer) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_before timestamptz := fencepost._prune_before(p_keep, p_limit);
  v_count  bigint;
begin
  delete from fencepost.job_tick t where t.ctid = any (array(
    select o.ctid from fencepost.job_tick o where o.fired_at < v_before order by o.fired_at limit p_limit for update skip locked));
  get diagnostics v_count = row_count;
  return v_count;
end $$;

create or replace view fencepost.schedules as
  select s.name, s.expression, s.zone, s.missed, s.queue, s.kind, s.payload, s.priority, s.next_tick, t.tick as last_tick,
         t.job_id as last_job_id, s.paused_at, s.paused_by, s.declared_at
  from fencepost.job_schedule s
  left join lateral (select k.tick, k.job_id from fencepost.job_tick k where k.schedule = s.name
                     order by k.tick desc limit 1) t on true;
