-- The figures of the charts.

-- Count one minute again from the jobs that ended in it, and from the messages that were settled as sent (an order is one).
-- Served by job_finished_by_time and outbox_settled_by_time. Workers that were seen without finishing a job still count.
create or replace function fencepost._console_count_minute(p_minute timestamptz) returns void
language sql volatile
as $$
  insert into fencepost.console_minute as m (minute, finished, dead, cancelled, workers, run_p50_seconds, run_p95_seconds,
                                             wait_p50_seconds, wait_p95_seconds, delivered, delivery_p50_seconds, delivery_p95_seconds)
  select p_minute, e.finished, e.dead, e.cancelled, e.workers, e.run_p50, e.run_p95, e.wait_p50, e.wait_p95, d.delivered, d.p50, d.p95
  from (
    select count(*) filter (where f.state = 'finished') as finished, count(*) filter (where f.state = 'dead') as dead,
           count(*) filter (where f.state = 'cancelled') as cancelled, count(distinct f.owner) as workers,
           percentile_cont(0.5) within group (order by extract(epoch from f.finished_at - f.claimed_at)) as run_p50,
           percentile_cont(0.95) within group (order by extract(epoch from f.finished_at - f.claimed_at)) as run_p95,
           percentile_cont(0.5) within group (order by extract(epoch from f.claimed_at - j.submitted_at)) as wait_p50,
           percentile_cont(0.95) within group (order by extract(epoch from f.claimed_at - j.submitted_at)) as wait_p95
    from fencepost.job_finished f join fencepost.job j on j.job_id = f.job_id
    where f.finished_at >= p_minute and f.finished_at < p_minute + interval '1 minute') e
  cross join (
    select count(*) as delivered, percentile_cont(0.5) within group (order by extract(epoch from s.settled_at - s.created_at)) as p50,
           percentile_cont(0.95) within group (order by extract(epoch from s.settled_at - s.created_at)) as p95
    from fencepost.outbox_settled s
    where s.state = 'sent' and s.settled_at >= p_minute and s.settled_at < p_minute + interval '1 minute') d
  on conflict (minute) do update
    set finished = excluded.finished, dead = excluded.dead, cancelled = excluded.cancelled,
        workers = greatest(m.workers, excluded.workers),
        run_p50_seconds = excluded.run_p50_seconds, run_p95_seconds = excluded.run_p95_seconds,
        wait_p50_seconds = excluded.wait_p50_seconds, wait_p95_seconds = excluded.wait_p95_seconds,
        delivered = excluded.delivered, delivery_p50_seconds = excluded.delivery_p50_seconds,
        delivery_p95_seconds = excluded.delivery_p95_seconds
$$;

-- The same by queue and kind, at most 200 pairs of a minute: the busiest. Served by job_finished_by_time.
create or replace function fencepost._console_count_parts(p_minute timestamptz) returns void
language sql volatile
as $$
  insert into fencepost.console_minute_part as m (minute, queue, kind, finished, dead, cancelled, run_p50_seconds, run_p95_seconds,
                                                  wait_p50_seconds, wait_p95_seconds)
  select p_minute, f.queue, j.kind,
         count(*) filter (where f.state = 'finished'), count(*) filter (where f.state = 'dead'),
         count(*) filter (where f.state = 'cancelled'),
         percentile_cont(0.5) within group (order by extract(epoch from f.finished_at - f.claimed_at)),
         percentile_cont(0.95) within group (order by extract(epoch from f.finished_at - f.claimed_at)),
         percentile_cont(0.5) within group (order by extract(epoch from f.claimed_at - j.submitted_at)),
         percentile_cont(0.95) within group (order by extract(epoch from f.claimed_at - j.submitted_at))
  from fencepost.job_finished f join fencepost.job j on j.job_id = f.job_id
  where f.finished_at >= p_minute and f.finished_at < p_minute + interval '1 minute'
  group by f.queue, j.kind order by count(*) desc, f.queue, j.kind limit 200
  on conflict (queue, minute, kind) do update
    set finished = excluded.finished, dead = excluded.dead, cancelled = excluded.cancelled,
        run_p50_seconds = excluded.run_p50_seconds, run_p95_seconds = excluded.run_p95_seconds,
        wait_p50_seconds = excluded.wait_p50_seconds, wait_p95_seconds = excluded.wait_p95_seconds
$$;

-- Count this minute and the last one, and up to p_missing of the last day that were not counted; delete what is older than eight
-- days. Returns how many of the day are still missing. Several consoles take turns: a concurrent second call counts nothing.
--
-- The last minute is counted again because a transaction that began in it may have committed since.
create or replace function fencepost.console_roll(p_missing integer) returns integer
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now    timestamptz := fencepost.clock();
  v_minute timestamptz := date_trunc('minute', v_now);
  v_gap    timestamptz;
begin
  perform fencepost._check_limit(p_missing);
  perform from fencepost.console_roll_lock t where t.only_row for no key update skip locked;
  if not found then
    return 0;
  end if;
  perform fencepost._console_count_minute(v_minute - interval '1 minute');
  perform fencepost._console_count_minute(v_minute);
  perform fencepost._console_count_parts(v_minute - interval '1 minute');
  perform fencepost._console_count_parts(v_minute);
  update fencepost.console_minute m
  set waiting = (select count(*) from fencepost.job_waiting), running = (select count(*) from fencepost.job_running),
      oldest_due_seconds = (select greatest(0, extract(epoch from v_now - min(w.run_at))) from fencepost.job_waiting w),
      workers = greatest(m.workers, (select count(*) from fencepost.console_workers())),
      outbox_lag_seconds = (select greatest(0, extract(epoch from v_now - min(o.created_at))) from fencepost.outbox o),
      refused = (select jsonb_object_agg(c.reason, c.refused) from fencepost.refusal_counts() c)
  where m.minute = v_minute;
  for v_gap in select g from generate_series(v_minute - interval '2 minutes', v_minute - interval '1 day', interval '-1 minute') g
               where not exists (select 1 from fencepost.console_minute m where m.minute = g) order by g desc limit p_missing loop
    perform fencepost._console_count_minute(v_gap);
    perform fencepost._console_count_parts(v_gap);
  end loop;
  delete from fencepost.console_minute m where m.minute < v_now - interval '8 days';
  delete from fencepost.console_minute_part m where m.minute < v_now - interval '8 days';
  return (select count(*) from generate_series(v_minute - interval '1 day', v_minute, interval '1 minute') g
          where not exists (select 1 from fencepost.console_minute m where m.minute = g));
end $$;

-- The minutes since p_since in steps of p_step, oldest first. Sums for what is counted, the worst for what is measured.
create or replace function fencepost.console_series(p_since timestamptz, p_step interval)
returns table (at timestamptz, finished bigint, dead bigint, cancelled bigint, workers bigint, run_p50_seconds double precision,
               run_p95_seconds double precision, wait_p50_seconds double precision, wait_p95_seconds double precision,
               waiting bigint, running bigint, oldest_due_seconds double precision, delivered bigint, delivery_p50_seconds double precision,
               delivery_p95_seconds double precision, outbox_lag_seconds double precision, refused jsonb)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  perform fencepost._check_duration('step', p_step, interval '1 day');
  return query
  select date_bin(p_step, m.minute, p_since), sum(m.finished)::bigint, sum(m.dead)::bigint, sum(m.cancelled)::bigint, max(m.workers),
         max(m.run_p50_seconds), max(m.run_p95_seconds), max(m.wait_p50_seconds), max(m.wait_p95_seconds), max(m.waiting),
         max(m.running), max(m.oldest_due_seconds), sum(m.delivered)::bigint, max(m.delivery_p50_seconds), max(m.delivery_p95_seconds),
         max(m.outbox_lag_seconds),
         (array_agg(m.refused order by m.minute desc) filter (where m.refused is not null))[1]
  from fencepost.console_minute m where m.minute >= p_since group by 1 order by 1;
end $$;

-- The series of one queue, one kind or both, in steps as above, until p_until. Without a queue: by the index of minutes.
create or replace function fencepost.console_part_series(
  p_queue text, p_kind text, p_since timestamptz, p_until timestamptz, p_step interval
) returns table (at timestamptz, finished bigint, dead bigint, cancelled bigint, run_p50_seconds double precision,
                 run_p95_seconds double precision, wait_p50_seconds double precision, wait_p95_seconds double precision)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  perform fencepost._check_duration('step', p_step, interval '1 day');
  return query
  select date_bin(p_step, m.minute, p_since), sum(m.finished)::bigint, sum(m.dead)::bigint, sum(m.cancelled)::bigint,
         max(m.run_p50_seconds), max(m.run_p95_seconds), max(m.wait_p50_seconds), max(m.wait_p95_seconds)
  from fencepost.console_minute_part m
  where m.minute >= p_since and m.minute < p_until and (p_queue is null or m.queue = p_queue) and (p_kind is null or m.kind = p_kind)
  group by 1 order by 1;
end $$;

-- The last hour of every queue that something ended in within the kept days: what ended in each minute, oldest first, how many a
-- second, and the worst p95 of a run. Idle queues stay listed by it.
create or replace function fencepost.console_queues(p_limit integer)
returns table (queue text, ended bigint[], per_second double precision, run_p95_seconds double precision)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_minute timestamptz := date_trunc('minute', fencepost.clock());
  v_queue  text := '';
  v_found  integer := 0;
begin
  perform fencepost._check_limit(p_limit);
  -- By skipping through the primary key: a queue costs one look and its hour, however many minutes are kept.
  loop
    select m.queue into v_queue from fencepost.console_minute_part m where m.queue > v_queue order by m.queue limit 1;
    exit when not found or v_found = p_limit;
    v_found := v_found + 1;
    return query
    select v_queue, array_agg(coalesce(h.ended, 0) order by g.minute), coalesce(sum(h.ended), 0)::double precision / 3600, max(h.p95)
    from generate_series(v_minute - interval '59 minutes', v_minute, interval '1 minute') g (minute)
    left join (select m.minute, sum(m.finished + m.dead + m.cancelled)::bigint as ended, max(m.run_p95_seconds) as p95
               from fencepost.console_minute_part m
               where m.queue = v_queue and m.minute >= v_minute - interval '59 minutes' group by m.minute) h on h.minute = g.minute;
  end loop;
end $$;
