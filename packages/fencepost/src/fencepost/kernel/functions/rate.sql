-- Rates: how fast jobs may start, by token buckets that all workers share.
--
-- A token is taken at the claim, in its transaction: no claim, no token. A job that finds none waits, and its
-- tries do not change. Two names are checked, queue:NAME and kind:NAME, and a job takes a token of each or of
-- neither.
--
--   queue:NAME  All jobs of a queue. Dispatch reads the bucket and dispatches no more than it could serve, so
--               the backlog keeps its order and a changed rate applies at once.
--   kind:NAME   Each key of a kind; jobs of other keys must not wait for it. A job without a token is
--               promised a time and comes back then; later jobs queue behind it.
--
-- Locks: buckets in order of (name, key), after the waiting rows and before the concurrency keys.

-- Set how fast jobs of each kind may start; null for no limit. A worker does so when it starts.
create or replace function fencepost.rate_declare(p_kinds text[], p_per_second double precision[], p_bursts double precision[])
returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._check_lengths('per_second', cardinality(p_kinds), cardinality(p_per_second));
  perform fencepost._check_lengths('bursts', cardinality(p_kinds), cardinality(p_bursts));
  perform fencepost._check_texts('kind', p_kinds, 256);
  perform fencepost._check_rate(d.per_second, d.burst) from unnest(p_per_second, p_bursts) d (per_second, burst)
    where d.per_second is not null;
  delete from fencepost.job_rate r using unnest(p_kinds, p_per_second) d (kind, per_second)
  where r.name = 'kind:' || d.kind and d.per_second is null;
  insert into fencepost.job_rate as r (name, per_second, burst)
  select 'kind:' || d.kind, d.per_second, d.burst from unnest(p_kinds, p_per_second, p_bursts) d (kind, per_second, burst)
  where d.per_second is not null order by d.kind
  on conflict (name) do update set per_second = excluded.per_second, burst = excluded.burst
  where (r.per_second, r.burst) <> (excluded.per_second, excluded.burst);
end $$;

create or replace function fencepost._check_rate(p_per_second double precision, p_burst double precision) returns void
language plpgsql immutable
as $$
begin
  if not (p_per_second > 0 and p_per_second < 'infinity') then
    raise exception 'per_second is %; it must be more than 0.', p_per_second
      using errcode = 'ZF100', detail = '{"field": "per_second"}';
  end if;
  if p_burst is null or not (p_burst >= 1 and p_burst < 'infinity') then
    raise exception 'burst is %; it must be at least 1.', coalesce(p_burst::text, 'null')
      using errcode = 'ZF100', detail = '{"field": "burst"}';
  end if;
end $$;

-- Limit how fast the jobs of a queue start; null lifts the limit.
create or replace function fencepost.queue_rate(p_queue text, p_per_second double precision, p_burst double precision, p_actor text)
returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._check_text('queue', p_queue, 128);
  perform fencepost._check_text('actor', p_actor, 256);
  if p_per_second is null then
    delete from fencepost.job_rate r where r.name = 'queue:' || p_queue;
  else
    perform fencepost._check_rate(p_per_second, p_burst);
    insert into fencepost.job_rate (name, per_second, burst) values ('queue:' || p_queue, p_per_second, p_burst)
    on conflict (name) do update set per_second = excluded.per_second, burst = excluded.burst;
  end if;
  perform fencepost._event(fencepost.clock(), 'queue', p_queue, 'rate_limited', p_actor, null,
                           jsonb_build_object('per_second', p_per_second, 'burst', p_burst));
  perform fencepost._wake('job:' || p_queue);
end $$;

-- The waiting jobs among p_ids to which a rate applies. Served by the primary keys.
create or replace function fencepost._rate_limited(p_ids bigint[]) returns bigint[]
language sql stable
as $$
  select coalesce(array_agg(j.job_id), '{}') from fencepost.job j
  where j.job_id = any (p_ids) and exists (select 1 from fencepost.job_rate r where r.name in ('queue:' || j.queue, 'kind:' || j.kind))
$$;

-- Lock the buckets that the jobs need, in order; create missing ones, full.
create or replace function fencepost._rate_lock(p_ids bigint[]) returns void
language plpgsql volatile
as $$
declare
  v_now   timestamptz := fencepost.clock();
  v_names text[];
  v_keys  text[];
begin
  select array_agg(b.name), array_agg(b.key) into v_names, v_keys from (
    select distinct r.name, case when r.name like 'kind:%' then coalesce(j.headers ->> 'rate_key', '') else '' end as key
    from fencepost.job j join fencepost.job_rate r on r.name in ('queue:' || j.queue, 'kind:' || j.kind)
    where j.job_id = any (p_ids) order by 1, 2) b;
  -- The update that never happens locks existing rows: no bucket may be pruned between its creation and its
  -- use.
  insert into fencepost.job_bucket as k (name, key, tokens, refilled_at)
  select b.name, b.key, r.burst, v_now from unnest(v_names, v_keys) b (name, key) join fencepost.job_rate r on r.name = b.name
  order by b.name, b.key
  on conflict (name, key) do update set tokens = k.tokens where false;
end $$;

-- The tokens of a bucket at p_now.
create or replace function fencepost._rate_tokens(
  p_tokens double precision, p_refilled_at timestamptz, p_per_second double precision, p_burst double precision, p_now timestamptz
) returns double precision
language sql immutable
as $$
  select least(p_burst, p_tokens + p_per_second * greatest(0, extract(epoch from p_now - p_refilled_at)::double precision))
$$;

-- Take a token for a job, or answer that it may not start. back_at is the time that it is promised; null when
-- the queue's own rate refused it, because then dispatch brings it back. The buckets are locked.
create or replace function fencepost._rate_take(
  p_job fencepost.job, p_waiting fencepost.job_waiting, p_now timestamptz, out granted boolean, out back_at timestamptz
) language plpgsql volatile
as $$
declare
  v_bucket record;
begin
  granted := true;
  if not exists (select 1 from fencepost.job_rate) then
    return;
  end if;
  for v_bucket in
    select k.name, k.key, r.per_second, k.promised_until,
           fencepost._rate_tokens(k.tokens, k.refilled_at, r.per_second, r.burst, p_now) as tokens
    from fencepost.job_rate r join fencepost.job_bucket k on k.name = r.name
    where (r.name = 'kind:' || p_job.kind and k.key = coalesce(p_job.headers ->> 'rate_key', ''))
       or (r.name = 'queue:' || p_job.queue and k.key = '')
  loop
    -- A new job does not take a token that was promised to a waiting one.
    if v_bucket.tokens >= 1 and (p_waiting.deferred_at is not null or v_bucket.promised_until <= p_now
                                 or v_bucket.name like 'queue:%') then
      continue;
    end if;
    granted := false;
    if v_bucket.name like 'kind:%' then
      -- At most two minutes ahead: then the job asks again, because the rate may have changed by then.
      back_at := least(p_now + interval '2 minutes',
        greatest(p_now + make_interval(secs => greatest(0, 1 - v_bucket.tokens) / v_bucket.per_second),
                 v_bucket.promised_until + make_interval(secs => 1 / v_bucket.per_second)));
      update fencepost.job_bucket k set promised_until = back_at where k.name = v_bucket.name and k.key = v_bucket.key;
    end if;
  end loop;
  if granted then
    update fencepost.job_bucket k
    set tokens = fencepost._rate_tokens(k.tokens, k.refilled_at, r.per_second, r.burst, p_now) - 1,
        refilled_at = greatest(k.refilled_at, p_now)
    from fencepost.job_rate r
    where r.name = k.name and ((r.name = 'kind:' || p_job.kind and k.key = coalesce(p_job.headers ->> 'rate_key', ''))
                               or (r.name = 'queue:' || p_job.queue and k.key = ''));
  end if;
end $$;

-- How many jobs of a queue its rate lets start at this moment, without those already dispatched; null when it
-- has no rate. Takes no token: the claim does.
create or replace function fencepost._rate_room(p_queue text, p_now timestamptz, p_without_dispatched boolean) returns integer
language sql stable
as $$
  select greatest(0, floor(coalesce(fencepost._rate_tokens(k.tokens, k.refilled_at, r.per_second, r.burst, p_now), r.burst))::integer
    - case when p_without_dispatched then (
        select count(*) from (select 1 from fencepost.job_waiting w
                              where hashtext(w.queue) = hashtext(p_queue) and w.queue = p_queue and w.dispatched_at is not null
                              limit ceil(r.burst)::integer) d)::integer else 0 end)
  from fencepost.job_rate r left join fencepost.job_bucket k on k.name = r.name and k.key = ''
  where r.name = 'queue:' || p_queue
$$;

-- When dispatch should check again a queue whose rate leaves no room; null when there is room, or no rate.
create or replace function fencepost._rate_ready_at(p_queue text, p_now timestamptz) returns timestamptz
language sql stable
as $$
  select p_now + make_interval(secs => greatest(0.02, 1 / r.per_second)) from fencepost.job_rate r
  where r.name = 'queue:' || p_queue and fencepost._rate_room(p_queue, p_now, true) = 0
$$;

-- Delete buckets of keys that have been idle so long that they are full again, at most p_limit.
create or replace function fencepost.rate_prune(p_limit integer) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now   timestamptz := fencepost.clock();
  v_count bigint;
begin
  perform fencepost._check_limit(p_limit);
  delete from fencepost.job_bucket k where k.ctid = any (array(
    select o.ctid from fencepost.job_bucket o left join fencepost.job_rate r on r.name = o.name
    where o.refilled_at < v_now - interval '1 minute' and o.promised_until < v_now and (r.name is null
      or fencepost._rate_tokens(o.tokens, o.refilled_at, r.per_second, r.burst, v_now) >= r.burst)
    order by o.refilled_at limit p_limit for update of o skip locked));
  get diagnostics v_count = row_count;
  return v_count;
end $$;

create or replace view fencepost.rates as
  select r.name, r.per_second, r.burst, count(k.key) as keys
  from fencepost.job_rate r left join fencepost.job_bucket k on k.name = r.name group by r.name;
