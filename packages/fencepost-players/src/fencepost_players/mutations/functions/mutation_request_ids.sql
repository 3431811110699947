-- The request id policy: requests without an id are counted in phase 1, and refused in phase 2.
--
-- Locks: counting takes the service's row FOR KEY SHARE, changing the phase takes it FOR UPDATE. So no
-- request passes concurrently with a change that has already counted none.

create or replace function fencepost._mutation_phase_ensure(p_service text) returns void
language plpgsql volatile
as $$
begin
  perform fencepost._check_text('service', p_service, 64);
  insert into fencepost.mutation_phase (service, phase, changed_at) values (p_service, 1, fencepost.clock())
  on conflict (service) do nothing;
end $$;

-- A request came without an id: record it and return the phase of the service. In phase 2 it must be refused.
-- Served by the primary key.
create or replace function fencepost.mutation_unkeyed_note(p_service text, p_method text) returns smallint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_phase smallint;
begin
  perform fencepost._mutation_phase_ensure(p_service);
  perform fencepost._check_text('method', p_method, 128);
  select g.phase into v_phase from fencepost.mutation_phase g where g.service = p_service for key share;
  insert into fencepost.mutation_unkeyed (at, service, method, refused)
  values (fencepost.clock(), p_service, p_method, v_phase = 2);
  return v_phase;
end $$;

-- How many requests came without an id within the window, by method. Served by mutation_unkeyed_by_time.
create or replace function fencepost.mutation_unkeyed_rate(p_service text, p_window interval)
returns table (method text, passed bigint, refused bigint)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_since timestamptz := fencepost.clock() - p_window;
begin
  perform fencepost._check_duration('window', p_window, interval '1 year');
  return query
    select u.method, count(*) filter (where not u.refused), count(*) filter (where u.refused)
    from fencepost.mutation_unkeyed u where u.service = p_service and u.at >= v_since group by u.method order by u.method;
end $$;

-- The phase of a service.
create or replace function fencepost.mutation_phase(p_service text) returns smallint
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$ select coalesce((select g.phase from fencepost.mutation_phase g where g.service = p_service), 1::smallint) $$;

-- Move a service to another phase. To phase 2 only when no request without an id has passed within the
-- window: otherwise mismatch, with the counts. Back to phase 1 at any time.
create or replace function fencepost.mutation_phase_set(
  p_service text, p_phase integer, p_window interval, p_actor text default null
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_passed bigint;
  v_since  timestamptz;
begin
  perform fencepost._mutation_phase_ensure(p_service);
  perform fencepost._check_duration('window', p_window, interval '1 year');
  if p_phase is null or p_phase not in (1, 2) then
    raise exception 'phase is %; it must be 1 or 2.', coalesce(p_phase::text, 'null')
      using errcode = 'ZF100', detail = '{"field": "phase"}';
  end if;
  perform from fencepost.mutation_phase g where g.service = p_service for update;
  if p_phase = 2 then
    v_since := fencepost.clock() - p_window;
    select count(*) into v_passed from fencepost.mutation_unkeyed u
    where u.service = p_service and u.at >= v_since and not u.refused;
    if v_passed > 0 then
      perform fencepost._refusal_count('mismatch');
      raise exception '% requests without an id were let through since %: service % stays in its phase.', v_passed, v_since,
        p_service
        using errcode = (select r.sqlstate from fencepost.refusal_reason r where r.reason = 'mismatch'),
              hint = 'Find their senders (mutation_unkeyed_rate counts them by method), and ask again when none has come for '
                     'the whole window.',
              detail = jsonb_build_object('reason', 'mismatch', 'noun', 'request_ids', 'subject', p_service,
                'attempted', jsonb_build_object('phase', p_phase, 'passed', 0),
                'seen', jsonb_build_object('passed', v_passed, 'since', v_since));
    end if;
  end if;
  update fencepost.mutation_phase g set phase = p_phase, changed_at = fencepost.clock(), changed_by = p_actor
  where g.service = p_service;
end $$;

-- Delete counts that are older than p_keep, at most p_limit. Served by mutation_unkeyed_by_age.
create or replace function fencepost.mutation_unkeyed_clean(p_keep interval, p_limit integer) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_before timestamptz := fencepost._prune_before(p_keep, p_limit, interval '10 years');
  v_count  bigint;
begin
  delete from fencepost.mutation_unkeyed u where u.ctid = any (array(
    select o.ctid from fencepost.mutation_unkeyed o where o.at < v_before order by o.at limit p_limit for update skip locked));
  get diagnostics v_count = row_count;
  return v_count;
end $$;

create or replace view fencepost.mutation_phases as
  select g.service, g.phase, g.changed_at, g.changed_by from fencepost.mutation_phase g;
