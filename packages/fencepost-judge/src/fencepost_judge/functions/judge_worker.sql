-- Workers of the judge. A registration grants no rights: the fence of each job decides what a worker may write.
--
-- Locks: the row that serializes registration, the lease of a number, its row.

create or replace function fencepost._judge_worker_resource(p_number integer) returns text
language sql immutable parallel safe
as $$ select 'judge-worker:' || p_number $$;

-- Take the first free number, or keep the worker's own. A row lock, which the read-only role cannot take, serializes
-- registrations: two of them would otherwise try the same number. Served by primary keys; visits as many numbers as there are
-- live workers.
create or replace function fencepost.judge_worker_enter(
  p_owner text, p_host text, p_version text, p_languages jsonb, p_slots integer, p_processors integer, p_sandbox text,
  p_degraded jsonb, p_ttl interval
) returns table (number integer, token bigint, expires_at timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_number integer;
  v_try   record;
begin
  perform fencepost._lease_check('judge-worker', p_owner, p_ttl);
  perform fencepost._check_text('host', p_host, 256);
  perform fencepost._check_text('version', p_version, 64);
  perform fencepost._check_text('sandbox', p_sandbox, 64);
  perform fencepost._check_json('languages', p_languages, 16384);
  perform fencepost._check_json('degraded', p_degraded, 16384);
  perform from fencepost.judge_worker_lock t where t.only_row for no key update;
  select w.number into v_number from fencepost.judge_worker w where w.owner = p_owner order by w.number limit 1;
  v_number := coalesce(v_number, 1);
  loop
    select * into v_try from fencepost._lease_try(fencepost._judge_worker_resource(v_number), p_owner, p_ttl);
    exit when v_try.outcome in ('acquired', 'renewed');
    v_number := v_number + 1;
  end loop;
  delete from fencepost.judge_worker w where w.number = v_number;
  insert into fencepost.judge_worker (number, owner, token, host, version, languages, slots, processors, sandbox, degraded, entered_at)
  values (v_number, p_owner, (v_try.held).token, p_host, p_version, p_languages, p_slots, p_processors, p_sandbox, p_degraded,
          (v_try.held).acquired_at);
  return query select v_number, (v_try.held).token, (v_try.held).expires_at;
end $$;

-- Renew the lease and report the load. Raises not_owner or lease_expired for a worker that was late: it registers again.
create or replace function fencepost.judge_worker_beat(
  p_number integer, p_token bigint, p_owner text, p_busy integer, p_load_average double precision, p_ttl interval
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost.lease_renew(fencepost._judge_worker_resource(p_number), p_owner, p_token, p_ttl);
  update fencepost.judge_worker w set busy = p_busy, load_average = p_load_average
  where w.number = p_number and w.token = p_token;
end $$;

-- Unregister: the number is free immediately. Raises not_owner when another worker has it already.
create or replace function fencepost.judge_worker_leave(p_number integer, p_token bigint, p_owner text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost.lease_release(fencepost._judge_worker_resource(p_number), p_owner, p_token);
end $$;

-- The numbers, each with the last worker that held it. alive: its lease is valid; lost: the lease ended without a release;
-- left: the worker released it. running is counted from the running jobs, by the owner's name; busy and load_average are
-- reported by the worker.
create or replace view fencepost.judge_workers as
  select w.number, w.owner, w.token,
         case when l.token <> w.token then 'lost' when l.owner is null then 'left'
              when l.expires_at > fencepost.clock() then 'alive' else 'lost' end as state,
         w.host, w.version, w.languages, w.slots, w.processors, w.sandbox, w.degraded, w.busy, w.load_average,
         (select count(*) from fencepost.job_running r where r.owner = w.owner) as running,
         w.entered_at, l.renewed_at as seen_at, l.expires_at
  from fencepost.judge_worker w
  join fencepost.lease l on l.resource = 'judge-worker:' || w.number;

-- All workers in order of registration.
create or replace function fencepost.judge_worker_list() returns setof fencepost.judge_workers
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$ select * from fencepost.judge_workers w order by w.entered_at, w.number $$;
