-- Schedules: one job for each tick, on any number of nodes.
--
-- The scheduler reads the expressions, because calendars and time zones do not belong in the database. It
-- proposes the ticks that are due and the next one; here they are taken once: the row of the schedule is
-- locked, the proposal must start at the tick that is stored, and (schedule, tick) is a key. The tick, its
-- job and the next tick are one transaction.

-- A schedule belongs to the releases that declare it. A release is live while one of its workers renews it. Of
-- several live releases that declare a schedule, the one that was declared last has precedence, so two releases
-- side by side do not overwrite each other; when its workers are gone, the other one's declaration is stored again. A
-- schedule that no live release declares retires. A retired schedule keeps its next tick: when it is declared
-- again, the ticks that passed are missed ticks, as if no worker had run.
--
-- Locks: the schedule's row; schedule_release takes an advisory lock before the rows, in order of name, when it
-- has something to change.

-- The live declarations: of each schedule, the one with precedence.
create or replace function fencepost._schedule_declared(p_now timestamptz)
returns table (name text, release text, definition jsonb)
language sql stable
as $$
  select distinct on (d.key collate "C") d.key collate "C", r.release, d.value
  from fencepost.job_schedule_release r cross join lateral jsonb_each(r.schedules) d
  where r.live_until > p_now
  order by d.key collate "C", r.first_at desc, r.release
$$;

-- Store a definition under the release that declares it. Its changes at run time have precedence. The next
-- tick is kept unless the expression or its zone has changed; a pause is kept.
create or replace function fencepost._schedule_store(
  p_name text, p_release text, p_definition jsonb, p_next_tick timestamptz, p_now timestamptz
) returns void
language plpgsql volatile
as $$
declare
  v_definition jsonb;
  v_new        fencepost.job_schedule;
begin
  perform fencepost._check_text('name', p_name, 256);
  select s.changes into v_definition from fencepost.job_schedule s where s.name = p_name for update;
  v_definition := p_definition || coalesce(v_definition, '{}');
  v_new := jsonb_populate_record(null::fencepost.job_schedule, v_definition);
  v_new.payload := v_definition -> 'payload';
  perform fencepost._check_text('expression', v_new.expression, 256);
  perform fencepost._check_text('zone', v_new.zone, 64);
  perform fencepost._check_word('missed', v_new.missed, array['once', 'all', 'skip']);
  perform fencepost._check_wait('grace', v_new.grace, interval '1 year');
  perform fencepost._check_moment('next_tick', p_next_tick);
  perform fencepost._job_check_terms(v_new.queue, v_new.kind, v_new.priority, v_new.tries_max, v_new.lease);
  perform fencepost._check_json('payload', v_new.payload, 1048576);
  perform fencepost._check_json('headers', v_new.headers, 8192);
  insert into fencepost.job_schedule as s (name, expression, zone, missed, grace, queue, kind, payload, headers, priority, tries_max,
    lease, unique_key, concurrency_key, concurrency_limit, next_tick, is_unplanned, declared_at, release, terms)
  values (p_name, v_new.expression, v_new.zone, v_new.missed, v_new.grace, v_new.queue, v_new.kind, v_new.payload,
    v_new.headers, v_new.priority, v_new.tries_max, v_new.lease, v_new.unique_key, v_new.concurrency_key, v_new.concurrency_limit,
    coalesce(p_next_tick, p_now), p_next_tick is null, p_now, p_release,
    coalesce(v_new.terms, '{}'))
  on conflict (name) do update
  set next_tick = case when s.expression = excluded.expression and s.zone = excluded.zone then s.next_tick else excluded.next_tick end,
      is_unplanned = case when s.expression = excluded.expression and s.zone = excluded.zone then s.is_unplanned
                          else excluded.is_unplanned end,
      expression = excluded.expression, zone = excluded.zone, missed = excluded.missed, grace = excluded.grace,
      queue = excluded.queue, kind = excluded.kind, payload = excluded.payload, headers = excluded.headers,
      priority = excluded.priority, tries_max = excluded.tries_max, lease = excluded.lease, unique_key = excluded.unique_key,
      concurrency_key = excluded.concurrency_key, concurrency_limit = excluded.concurrency_limit, declared_at = p_now,
      terms = excluded.terms, release = p_release, retired_at = null,
      -- A revival at run time ends when a release declares the schedule again.
      changes = nullif(s.changes, '{}'), changed_at = case when s.changes <> '{}' then s.changed_at end,
      changed_by = case when s.changes <> '{}' then s.changed_by end;
end $$;

-- Declare a schedule for no release, or declare it again: it stays until it is removed.
create or replace function fencepost.schedule_declare(
  p_name text, p_expression text, p_zone text, p_missed text, p_grace interval, p_next_tick timestamptz, p_queue text,
  p_kind text, p_payload jsonb, p_priority integer, p_tries_max integer, p_lease interval, p_unique_key text,
  p_concurrency_key text, p_concurrency_limit integer, p_headers jsonb, p_terms jsonb default '{}'
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._require_read_committed();
  perform fencepost._schedule_store(p_name, null, fencepost._schedule_definition(p_expression, p_zone, p_missed, p_grace, p_queue, p_kind,
    p_payload, p_priority, p_tries_max, p_lease, p_unique_key, p_concurrency_key, p_concurrency_limit, p_headers, p_terms), p_next_tick,
    fencepost.clock());
end $$;

create or replace function fencepost._schedule_definition(
  p_expression text, p_zone text, p_missed text, p_grace interval, p_queue text, p_kind text, p_payload jsonb, p_priority integer,
  p_tries_max integer, p_lease interval, p_unique_key text, p_concurrency_key text, p_concurrency_limit integer, p_headers jsonb, p_terms jsonb
) returns jsonb
language sql immutable
as $$
  select jsonb_build_object(
    'expression', p_expression, 'zone', p_zone, 'missed', p_missed, 'grace', p_grace, 'queue', p_queue, 'kind', p_kind,
    'payload', p_payload, 'priority', p_priority, 'tries_max', p_tries_max, 'lease', p_lease, 'unique_key', p_unique_key,
    'concurrency_key', p_concurrency_key, 'concurrency_limit', p_concurrency_limit, 'headers', p_headers, 'terms', p_terms)
$$;

-- Declare what a release declares, or renew it: it is live for p_ttl. Stores what the live releases declare, and
-- retires what none of them does; returns what has changed. p_next_ticks has the next ticks by name, as far as
-- the caller knows them. Renewing costs one small write in a third of p_ttl, and no lock while nothing changes.
create or replace function fencepost.schedule_release(
  p_release text, p_schedules jsonb, p_next_ticks jsonb, p_ttl interval, p_actor text
) returns table (name text, event text)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := fencepost.clock();
  v     record;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('release', p_release, 64);
  perform fencepost._check_duration('ttl', p_ttl, interval '1 day');
  perform fencepost._check_text('actor', p_actor, 256);
  if jsonb_typeof(p_schedules) is distinct from 'object' then
    raise exception 'schedules must be an object: by name, what a release declares.'
      using errcode = 'ZF100', detail = '{"field": "schedules"}';
  end if;
  insert into fencepost.job_schedule_release as r (release, schedules, first_at, live_until)
  values (p_release, p_schedules, v_now, v_now + p_ttl)
  on conflict (release) do update set live_until = v_now + p_ttl where r.live_until < v_now + p_ttl * 2 / 3;
  if not exists (select 1 from fencepost._schedule_changes(v_now)) then
    return;
  end if;
  perform pg_advisory_xact_lock(hashtextextended('schedule_release', 5527));
  v_now := fencepost.clock();
  for v in select c.name, c.event, c.release, c.definition from fencepost._schedule_changes(v_now) c order by c.name loop
    if v.event = 'retired' then
      update fencepost.job_schedule s set retired_at = v_now where s.name = v.name and s.retired_at is null;
    else
      -- A tick that is not in the future would be a missed one of a time in which the schedule was another.
      perform fencepost._schedule_store(v.name, v.release, v.definition,
        case when v.release = p_release and (p_next_ticks ->> v.name)::timestamptz > v_now
             then (p_next_ticks ->> v.name)::timestamptz end, v_now);
    end if;
    continue when v.event is null;
    perform fencepost._event(v_now, 'schedule', v.name, v.event, p_actor, null, jsonb_build_object('release', v.release));
    name := v.name;
    event := v.event;
    return next;
  end loop;
  delete from fencepost.job_schedule_release r where r.release in (
    select o.release from fencepost.job_schedule_release o where o.live_until < v_now - interval '1 day' for update skip locked);
end $$;

-- What is stored and not declared, or declared and not stored. Without an event: another release declares the same.
create or replace function fencepost._schedule_changes(p_now timestamptz)
returns table (name text, event text, release text, definition jsonb)
language sql stable
as $$
  select d.name,
         case when s.retired_at is not null then 'revived'
              when d.definition is distinct from (select o.schedules -> d.name from fencepost.job_schedule_release o
                                                  where o.release = s.release) then 'declared' end,
         d.release, d.definition
  from fencepost._schedule_declared(p_now) d left join fencepost.job_schedule s on s.name = d.name
  where s.name is null or s.release is distinct from d.release or s.retired_at is not null
  union all
  select s.name, 'retired', s.release, null
  from fencepost.job_schedule s
  where s.release is not null and s.retired_at is null
    and not exists (select 1 from fencepost.job_schedule_release r where r.live_until > p_now and r.schedules ? s.name)
$$;

-- Retire the schedules of these kinds that are not among p_names, that no live release declares, and that were
-- not changed at run time.
create or replace function fencepost.schedule_retire(p_kinds text[], p_names text[], p_actor text) returns setof text
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now  timestamptz := fencepost.clock();
  v_name text;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('actor', p_actor, 256);
  for v_name in
    update fencepost.job_schedule s set retired_at = v_now
    where s.kind = any (p_kinds) and s.name <> all (p_names) and s.retired_at is null and s.changes is null
      and not exists (select 1 from fencepost.job_schedule_release r where r.live_until > v_now and r.schedules ? s.name)
    returning s.name
  loop
    perform fencepost._event(v_now, 'schedule', v_name, 'retired', p_actor, null, null);
    return next v_name;
  end loop;
end $$;

-- The schedules with the next ticks, soonest first, without retired ones, and the current time. Served by job_schedule_due.
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
               from fencepost.job_schedule s where s.retired_at is null order by s.next_tick limit p_limit;
end $$;

-- A JSON list of texts as an array; null for none.
create or replace function fencepost._texts(p_list jsonb) returns text[]
language sql immutable
as $$ select case when jsonb_typeof(p_list) = 'array' then array(select jsonb_array_elements_text(p_list)) end $$;

-- Take the ticks that are due. Does nothing, and returns nothing, when another node takes them or has taken
-- them: the stored next tick is then another one. A paused schedule advances without submitting, and so does
-- one whose stored tick is none.
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
  if not found or v_schedule.next_tick <> p_expected or v_schedule.retired_at is not null then
    return;
  end if;
  v_now := fencepost.clock();
  if p_next_tick is null or p_next_tick <= p_expected
     or exists (select 1 from unnest(p_ticks) t where t is null or t < p_expected or t > v_now or t >= p_next_tick) then
    raise exception 'ticks must lie between the stored tick, the present and the next tick.'
      using errcode = 'ZF100', detail = '{"field": "ticks"}';
  end if;
  if v_schedule.paused_at is null and not v_schedule.is_unplanned then
    foreach tick in array p_ticks loop
      select s.job_id, s.created into job_id, created from fencepost._schedule_submit(v_schedule, tick) s;
      insert into fencepost.job_tick (schedule, tick, job_id, fired_at) values (p_name, tick, job_id, v_now);
      return next;
    end loop;
  end if;
  update fencepost.job_schedule s set next_tick = p_next_tick, is_unplanned = false where s.name = p_name;
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

-- Add a schedule at run time. It stays until it is removed. If there is one of this name, it refuses with duplicate.
create or replace function fencepost.schedule_add(
  p_name text, p_expression text, p_zone text, p_missed text, p_grace interval, p_next_tick timestamptz, p_queue text,
  p_kind text, p_payload jsonb, p_priority integer, p_tries_max integer, p_lease interval, p_unique_key text,
  p_concurrency_key text, p_concurrency_limit integer, p_headers jsonb, p_actor text, p_terms jsonb default '{}'
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now        timestamptz := fencepost.clock();
  v_definition jsonb;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('name', p_name, 256);
  perform fencepost._check_text('actor', p_actor, 256);
  perform pg_advisory_xact_lock(hashtextextended('schedule_release', 5527));
  if exists (select 1 from fencepost.job_schedule s where s.name = p_name) then
    perform fencepost._schedule_refuse('duplicate', p_name, 'add', p_actor);
  end if;
  v_definition := fencepost._schedule_definition(p_expression, p_zone, p_missed, p_grace, p_queue, p_kind, p_payload, p_priority,
    p_tries_max, p_lease, p_unique_key, p_concurrency_key, p_concurrency_limit, p_headers, p_terms);
  perform fencepost._schedule_store(p_name, null, v_definition, p_next_tick, v_now);
  perform fencepost._schedule_decided(p_name, 'added', v_definition, p_actor, v_now);
end $$;

-- Change a schedule at run time: p_changes has the columns that are set, of expression, zone, missed, grace, payload,
-- unique_key and concurrency_key. They have precedence over what the code declares until schedule_reset.
create or replace function fencepost.schedule_change(p_name text, p_changes jsonb, p_next_tick timestamptz, p_actor text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now      timestamptz := fencepost.clock();
  v_schedule fencepost.job_schedule;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('actor', p_actor, 256);
  if jsonb_typeof(p_changes) is distinct from 'object' or p_changes = '{}'
     or p_changes - array['expression', 'zone', 'missed', 'grace', 'payload', 'unique_key', 'concurrency_key'] <> '{}' then
    raise exception 'changes must name what is changed: expression, zone, missed, grace, payload, unique_key, concurrency_key.'
      using errcode = 'ZF100', detail = '{"field": "changes"}';
  end if;
  v_schedule := fencepost._schedule_locked(p_name, 'change', p_actor);
  perform fencepost._schedule_decided(p_name, 'changed', coalesce(v_schedule.changes, '{}') || p_changes, p_actor, v_now);
  perform fencepost._schedule_store(p_name, v_schedule.release, to_jsonb(v_schedule), p_next_tick, v_now);
  -- Storing it revived it; a change alone does not.
  update fencepost.job_schedule s set retired_at = v_schedule.retired_at where s.name = p_name;
end $$;

-- Undo what was changed at run time: what the code declares counts again. Refuses with mismatch when no live
-- release declares the schedule.
create or replace function fencepost.schedule_reset(p_name text, p_actor text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now      timestamptz := fencepost.clock();
  v_declared record;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('actor', p_actor, 256);
  perform fencepost._schedule_locked(p_name, 'reset', p_actor);
  select * into v_declared from fencepost._schedule_declared(v_now) d where d.name = p_name;
  if not found then
    perform fencepost._schedule_refuse('mismatch', p_name, 'reset', p_actor);
  end if;
  perform fencepost._schedule_decided(p_name, 'reset', null, p_actor, v_now);
  perform fencepost._schedule_store(p_name, v_declared.release, v_declared.definition, null, v_now);
end $$;

-- Remove a schedule that no live release declares. Refuses with mismatch while one does: it would come back.
create or replace function fencepost.schedule_remove(p_name text, p_actor text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz := fencepost.clock();
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('actor', p_actor, 256);
  perform fencepost._schedule_locked(p_name, 'remove', p_actor);
  if exists (select 1 from fencepost.job_schedule_release r where r.live_until > v_now and r.schedules ? p_name) then
    perform fencepost._schedule_refuse('mismatch', p_name, 'remove', p_actor);
  end if;
  delete from fencepost.job_schedule s where s.name = p_name;
  perform fencepost._event(v_now, 'schedule', p_name, 'removed', p_actor, null, null);
end $$;

-- Bring a retired schedule back, although no live release declares it: it is now one of run time, and stays until
-- it is removed. Ticks that passed are missed ticks. Idempotent.
create or replace function fencepost.schedule_revive(p_name text, p_actor text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now      timestamptz := fencepost.clock();
  v_schedule fencepost.job_schedule;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('actor', p_actor, 256);
  v_schedule := fencepost._schedule_locked(p_name, 'revive', p_actor);
  if v_schedule.retired_at is null then
    return;
  end if;
  update fencepost.job_schedule s set retired_at = null, release = null where s.name = p_name;
  perform fencepost._schedule_decided(p_name, 'revived', coalesce(v_schedule.changes, '{}'), p_actor, v_now);
end $$;

-- Submit the job of a schedule now, also when the schedule is paused or retired. Its ticks go on as they were.
create or replace function fencepost.schedule_run(p_name text, p_actor text) returns table (job_id bigint, created boolean)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_schedule fencepost.job_schedule;
  v_now      timestamptz;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('actor', p_actor, 256);
  v_schedule := fencepost._schedule_locked(p_name, 'run', p_actor);
  v_now := fencepost.clock();
  select s.job_id, s.created into job_id, created from fencepost._schedule_submit(v_schedule, v_now) s;
  insert into fencepost.job_schedule_run (schedule, job_id, run_at, actor) values (p_name, job_id, v_now, p_actor);
  return next;
end $$;

-- The jobs of a schedule, newest first, before p_before: those of its ticks, and those that a person submitted.
-- Served by job_tick_pkey and job_schedule_run_by_schedule.
create or replace function fencepost.schedule_history(p_name text, p_before timestamptz, p_limit integer)
returns table (tick timestamptz, fired_at timestamptz, job_id bigint, actor text, state text, final_status text)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  perform fencepost._check_limit(p_limit);
  return query
    select h.tick, h.fired_at, h.job_id, h.actor, j.state, j.final_status
    from (
      (select t.tick, t.fired_at, t.job_id, null::text as actor from fencepost.job_tick t
       where t.schedule = p_name and t.tick < coalesce(p_before, 'infinity') order by t.tick desc limit p_limit)
      union all
      (select r.run_at, r.run_at, r.job_id, r.actor from fencepost.job_schedule_run r
       where r.schedule = p_name and r.run_at < coalesce(p_before, 'infinity') order by r.run_at desc limit p_limit)
    ) h left join fencepost.jobs j on j.job_id = h.job_id
    order by h.tick desc limit p_limit;
end $$;

-- The row of a schedule, locked; not_found when there is none.
create or replace function fencepost._schedule_locked(p_name text, p_op text, p_actor text) returns fencepost.job_schedule
language plpgsql volatile
as $$
declare
  v_schedule fencepost.job_schedule;
begin
  select * into v_schedule from fencepost.job_schedule s where s.name = p_name for update;
  if not found then
    perform fencepost._schedule_refuse('not_found', p_name, p_op, p_actor);
  end if;
  return v_schedule;
end $$;

create or replace function fencepost._schedule_refuse(p_reason text, p_name text, p_op text, p_actor text) returns void
language plpgsql volatile
as $$
begin
  perform fencepost._refuse(p_reason, 'schedule', p_name, jsonb_build_object('op', p_op, 'actor', p_actor),
    (select to_jsonb(s) - 'payload' - 'headers' - 'changes' from fencepost.job_schedule s where s.name = p_name));
end $$;

-- Store and record what was decided at run time; the schedulers that wait for a tick look again.
create or replace function fencepost._schedule_decided(p_name text, p_event text, p_changes jsonb, p_actor text, p_now timestamptz)
returns void
language plpgsql volatile
as $$
begin
  update fencepost.job_schedule s
  set changes = p_changes, changed_at = case when p_changes is not null then p_now end,
      changed_by = case when p_changes is not null then p_actor end
  where s.name = p_name;
  perform fencepost._event(p_now, 'schedule', p_name, p_event, p_actor, null,
    jsonb_build_object('changes', p_changes - 'payload' - 'headers'));
  perform pg_notify('fencepost', 'schedule');
end $$;

create or replace function fencepost._schedule_submit(p_schedule fencepost.job_schedule, p_tick timestamptz)
returns table (job_id bigint, created boolean)
language sql volatile
as $$
  select s.job_id, s.created from fencepost.job_submit(
    p_schedule.queue, p_schedule.kind, p_schedule.payload, p_schedule.priority, null, p_schedule.tries_max, p_schedule.lease,
    p_schedule.unique_key, p_schedule.concurrency_key, p_schedule.concurrency_limit,
    jsonb_build_object('trace_id', replace(gen_random_uuid()::text, '-', '')) || p_schedule.headers
      || jsonb_build_object('schedule', p_schedule.name, 'tick', p_tick),
    (p_schedule.terms ->> 'period')::interval, fencepost._texts(p_schedule.terms -> 'states'),
    fencepost._texts(p_schedule.terms -> 'replace'), fencepost._texts(p_schedule.terms -> 'tags'),
    fencepost._texts(p_schedule.terms -> 'search_by')) s
$$;

-- Delete ticks and runs from before p_keep ago, at most p_limit of each. No tick can recur: a schedule only advances.
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
  delete from fencepost.job_schedule_run r where r.ctid = any (array(
    select o.ctid from fencepost.job_schedule_run o where o.run_at < v_before order by o.run_at limit p_limit for update skip locked));
  return v_count;
end $$;

create or replace view fencepost.schedules as
  select s.name, s.expression, s.zone, s.missed, s.queue, s.kind, s.payload, s.priority, s.next_tick, t.tick as last_tick,
         t.job_id as last_job_id, s.paused_at, s.paused_by, s.declared_at,
         case when s.release is null then 'run time' else 'code' end as origin, s.changes, s.changed_at, s.changed_by, s.retired_at,
         s.grace, s.unique_key, s.concurrency_key
  from fencepost.job_schedule s
  left join lateral (select k.tick, k.job_id from fencepost.job_tick k where k.schedule = s.name
                     order by k.tick desc limit 1) t on true;

-- The schedules by name, retired ones too; or the one of this name.
create or replace function fencepost.schedule_list(p_name text) returns setof fencepost.schedules
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$ select * from fencepost.schedules s where p_name is null or s.name = p_name order by s.name $$;
