-- Which worker may take which job. A worker says with each claim what it serves:
--
--   {"kinds": {"thumbnail": "image_id size", "letter": "*"}, "offers": "gpu"}
--
-- the kinds that it has handlers for, each with the names of the arguments that the handler knows, with blanks
-- between; * for a handler that ignores unknown ones; and the abilities that it offers to jobs whose header
-- "needs" lists some. A claim never takes a job that its caller does not serve. It sets the job aside: the job
-- waits as before, without an attempt, a try or a delay, in an index of what is needed (job_waiting_aside),
-- where claims of workers that serve it find it in the order of its time among the others. A job is set aside
-- at most once until it is claimed.
--
-- Workers announce the same document in job_worker, under the lease of their place. That decides nothing: it
-- tells which work has no worker (unserved_work). Pins narrow what a worker serves (job_worker.sql).
--
-- Locks: a need is locked FOR KEY SHARE by each transaction that sets a job aside, so that none is pruned
-- meanwhile; waiting rows before needs.

create or replace function fencepost._check_serves(p_serves jsonb) returns void
language plpgsql immutable
as $$
begin
  if jsonb_typeof(p_serves -> 'kinds') is distinct from 'object' then
    raise exception 'serves is %; it must be an object with the object "kinds".', left(p_serves::text, 100)
      using errcode = 'ZF100', detail = '{"field": "serves"}';
  end if;
end $$;

-- The abilities that are offered; null for all, which only a pinned worker that does not say what it serves has.
create or replace function fencepost._job_offers(p_serves jsonb) returns text[]
language sql immutable parallel safe
as $$
  select case when p_serves -> 'offers' = 'null' then null else string_to_array(coalesce(p_serves ->> 'offers', ''), ' ') end
$$;

-- Whether a worker with these kinds and abilities serves a job; null stands for all. One expression, because a claim
-- asks it of every job and a function that is not inlined would cost more than the answer. A payload that is no
-- object, and needs that are no array, are left to the handler, which refuses them.
create or replace function fencepost._job_serves(p_kinds jsonb, p_offers text[], p_kind text, p_payload jsonb, p_headers jsonb)
returns boolean
language sql immutable parallel safe
as $$
  select case when not p_kinds ? p_kind then false
              when jsonb_typeof(p_headers -> 'needs') = 'array' and (p_headers -> 'needs') - p_offers <> '[]' then false
              when p_kinds is null or p_payload = '{}' or jsonb_typeof(p_payload) <> 'object' or p_kinds ->> p_kind = '*' then true
              else p_payload - string_to_array(p_kinds ->> p_kind, ' ') = '{}' end
$$;

-- The need of a job that is set aside, noted if it is new; wakes the workers of the queue.
create or replace function fencepost._job_need(p_queue text, p_kind text, p_payload jsonb, p_headers jsonb, p_now timestamptz)
returns integer
language plpgsql volatile
as $$
declare
  v_arguments text[] := case when jsonb_typeof(p_payload) = 'object' then array(select jsonb_object_keys(p_payload)) else '{}' end;
  v_abilities text[] := case when jsonb_typeof(p_headers -> 'needs') = 'array'
                             then array(select jsonb_array_elements_text(p_headers -> 'needs') order by 1) else '{}' end;
  v_digest    bytea := sha256(convert_to(jsonb_build_array(p_queue, p_kind, v_arguments, v_abilities)::text, 'utf8'));
  v_id        integer;
begin
  perform fencepost._wake('job:' || p_queue);
  loop
    select n.need_id into v_id from fencepost.job_need n where n.digest = v_digest for key share;
    exit when found;
    insert into fencepost.job_need (queue, kind, arguments, abilities, digest, noted_at)
    values (p_queue, p_kind, v_arguments, v_abilities, v_digest, p_now)
    on conflict (digest) do nothing;
  end loop;
  return v_id;
end $$;

-- The needs of a queue that a worker serves; all of them without p_serves. Served by job_need_by_queue.
create or replace function fencepost._job_needs_served(p_queue text, p_serves jsonb) returns integer[]
language sql stable
as $$
  select coalesce(array_agg(n.need_id), '{}') from fencepost.job_need n
  where n.queue = p_queue and (p_serves is null or fencepost._need_is_served(n, p_serves))
$$;

-- The same question as _job_serves, of a need instead of a job.
create or replace function fencepost._need_is_served(p_need fencepost.job_need, p_serves jsonb) returns boolean
language sql immutable parallel safe
as $$
  select coalesce(p_need.abilities <@ fencepost._job_offers(p_serves), true)
    and (p_serves -> 'kinds' = 'null'
         or (p_serves -> 'kinds' ? p_need.kind
             and (p_serves -> 'kinds' ->> p_need.kind = '*'
                  or p_need.arguments <@ string_to_array(p_serves -> 'kinds' ->> p_need.kind, ' '))))
$$;

-- The due jobs of one priority that were set aside with one of p_needs, locked: those that are among the first
-- p_limit of all due jobs of the priority. First each need's share is counted, without locks, then each is
-- taken. Served by job_waiting_aside and job_waiting_pending.
create or replace function fencepost._job_due_aside(
  p_queue text, p_priority integer, p_limit integer, p_now timestamptz, p_needs integer[]
) returns bigint[]
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
  v_ids bigint[] := '{}';
  v     record;
begin
  for v in
    select d.need_id, count(*) as share from (
      select e.need_id from (
        select n.need_id, w.run_at, w.job_id from unnest(p_needs) n (need_id) cross join lateral (
          select w.run_at, w.job_id from fencepost.job_waiting w
          where w.need_id = n.need_id and w.priority = p_priority and w.run_at <= p_now
          order by w.run_at, w.job_id limit p_limit) w
        union all
        (select null, w.run_at, w.job_id from fencepost.job_waiting w
         where p_needs <> '{}' and hashtext(w.queue) = hashtext(p_queue) and w.queue = p_queue and w.priority = p_priority
           and w.dispatched_at is null and w.need_id is null and w.run_at <= p_now
         order by w.run_at, w.job_id limit p_limit)) e
      order by e.run_at, e.job_id limit p_limit) d
    where d.need_id is not null group by d.need_id
  loop
    v_ids := v_ids || array(
      select w.job_id from fencepost.job_waiting w
      where w.need_id = v.need_id and w.priority = p_priority and w.run_at <= p_now
      order by w.run_at, w.job_id limit v.share for update skip locked);
  end loop;
  return v_ids;
end $$;

-- When the first job of a queue is due that was set aside and that a worker serves; null when there is none: the
-- streams do not bring it, so a worker that reads them asks. Served by job_waiting_aside.
create or replace function fencepost.job_aside_due(p_queue text, p_serves jsonb) returns timestamptz
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select min(w.run_at) from unnest(fencepost._job_needs_served(p_queue, p_serves)) n (need_id)
  cross join generate_series(0, 3) l (priority) cross join lateral (
    select a.run_at from fencepost.job_waiting a
    where a.need_id = n.need_id and a.priority = l.priority order by a.run_at limit 1) w
  where not exists (select 1 from fencepost.job_queue q where q.queue = p_queue and q.paused_at is not null)
$$;

-- Delete needs that no job has had for a while; returns how many. A transaction that sets a job aside holds the
-- need's lock, and what it has committed before we lock is seen by the second statement.
create or replace function fencepost.job_need_prune(p_keep interval, p_limit integer) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now   timestamptz := fencepost.clock();
  v_ids   integer[];
  v_count integer;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_limit(p_limit);
  perform fencepost._check_wait('keep', p_keep, interval '10 years');
  v_ids := array(select n.need_id from fencepost.job_need n where n.noted_at <= v_now - p_keep
                   and not exists (select 1 from fencepost.job_waiting w where w.need_id = n.need_id)
                 order by n.need_id limit p_limit for update skip locked);
  delete from fencepost.job_need n where n.need_id = any (v_ids)
    and not exists (select 1 from fencepost.job_waiting w where w.need_id = n.need_id);
  get diagnostics v_count = row_count;
  return v_count;
end $$;

-- Announce what a worker serves, under the lease of its place. Raises the reason when the lease is not the
-- worker's any more.
create or replace function fencepost.job_worker_announce(p_resource text, p_token bigint, p_queues text[], p_serves jsonb)
returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._check_texts('queues', p_queues, 128);
  perform fencepost._check_serves(p_serves);
  perform fencepost.lease_fence(p_resource, p_token);
  insert into fencepost.job_worker (resource, token, queues, serves) values (p_resource, p_token, p_queues, p_serves)
  on conflict (resource) do update set token = excluded.token, queues = excluded.queues, serves = excluded.serves;
  perform fencepost._worker_forget_drains(fencepost.clock());
end $$;
