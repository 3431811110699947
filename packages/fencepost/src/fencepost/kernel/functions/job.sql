-- Jobs: submitted in the caller's transaction, dispatched through Redis or claimed directly from here,
-- finished once.
--
--   from        event                      to          guard
--   (none)      submit                     pending     unique key free; queue not full
--   pending     dispatch                   dispatched  an entry was written; its place is recorded
--   dispatched  recall                     pending     the entry is lost, or Redis is
--   pending     claim                      running     a new attempt for the owner
--   dispatched  claim                      running     a new attempt for the owner
--   pending     claim                      pending     no slot of its concurrency key is free, its queue is paused, or its worker does not serve it
--   dispatched  claim                      pending     the same: its entry is done with
--   running     claim                      running     expired, tries left, alone: a new attempt for the new owner
--   running     claim                      pending     expired with other jobs: a suspect
--   running     claim                      dead        expired; no tries left
--   running     claim                      cancelled   expired; a cancel was requested
--   running     finish                     finished    job, attempt, owner, unexpired lease or open fence
--   running     retry                      pending     attempt and owner; tries left
--   running     retry                      dead        attempt and owner; no tries left
--   running     retry                      cancelled   attempt and owner; a cancel was requested
--   running     bury                       dead        attempt and owner
--   running     bury                       cancelled   attempt and owner; a cancel was requested
--   running     release                    pending     attempt and owner; the try is given back
--   running     release                    cancelled   attempt and owner; a cancel was requested
--   running     reclaim                    pending     expired; tries left
--   running     reclaim                    dead        expired; no tries left
--   running     reclaim                    cancelled   expired; a cancel was requested
--   pending     cancel                     cancelled   the state that the operator saw
--   dispatched  cancel                     cancelled   the state that the operator saw
--   running     cancel                     running     sets the request; a finish that has passed its fence wins
--   dead        replay                     pending     the state that the operator saw
--   cancelled   replay                     pending     the state that the operator saw
--   dead        discard                    cancelled   the state that the operator saw
--   pending     reschedule                 pending     another time
--   dispatched  reschedule                 pending     another time: its entry is done with
--
-- The attempt is the fencing token: every acquisition creates a new one, putting a job back creates none.
-- tries counts the claims since the submission or the last replay, at the claim, so that a job which kills
-- its worker ends too. A loss that may be another job's fault is not counted: job_suspect.sql decides.
--
-- Locks: rows of several jobs are locked in order of id; waiting before running before finished. A running
-- row keeps its attempt: a takeover deletes the row, and that is what a fence prevents.
--
-- The two indexes over waiting rows begin with hashtext(queue). A search must filter on that number and on
-- the queue itself: two queues may have the same hash.

create or replace function fencepost._job_check_terms(
  p_queue text, p_kind text, p_priority integer, p_tries_max integer, p_lease interval
) returns void
language plpgsql volatile
as $$
begin
  perform fencepost._check_text('queue', p_queue, 128);
  perform fencepost._check_text('kind', p_kind, 256);
  perform fencepost._check_duration('lease', p_lease, interval '1 day');
  if p_priority is null or p_priority not between 0 and 3 then
    raise exception 'priority is %; it must be 0 (urgent), 1 (normal), 2 (low) or 3 (bulk).', coalesce(p_priority::text, 'null')
      using errcode = 'ZF100', detail = '{"field": "priority"}';
  end if;
  if p_tries_max is null or p_tries_max not between 1 and 1000 then
    raise exception 'tries_max is %; it must lie between 1 and 1000.', coalesce(p_tries_max::text, 'null')
      using errcode = 'ZF100', detail = '{"field": "tries_max"}';
  end if;
end $$;

-- Submit one job: the job and its waiting row, or neither. With a unique key that another job holds, returns
-- that job and created = false. Only inserts rows, so it works at any isolation level; with special unique terms
-- it judges rows, and needs READ COMMITTED.
create or replace function fencepost.job_submit(
  p_queue text, p_kind text, p_payload jsonb, p_priority integer default 1, p_run_at timestamptz default null,
  p_tries_max integer default 5, p_lease interval default '60 seconds', p_unique_key text default null,
  p_concurrency_key text default null, p_concurrency_limit integer default null, p_headers jsonb default '{}',
  p_unique_period interval default null, p_unique_states text[] default null, p_unique_replace text[] default null,
  p_tags text[] default null, p_search_by text[] default null
) returns table (job_id bigint, created boolean, replaced boolean)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  return query select s.job_id, s.created, s.replaced from fencepost.job_submit_many(
    p_queue, p_kind, array[p_payload], p_priority, p_run_at, p_tries_max, p_lease,
    case when p_unique_key is not null then array[p_unique_key] end,
    case when p_concurrency_key is not null then array[p_concurrency_key] end, p_concurrency_limit, array[p_headers],
    p_unique_period, p_unique_states, p_unique_replace, p_tags, p_search_by) s;
end $$;

-- Submit many jobs of one kind with one statement; answers in the order of the payloads. Unique keys are
-- locked in key order, so that two submitters cannot deadlock. Waits for another open submission of the same
-- unique key. job_unique.sql says how long a key is held, and what replacing does.
create or replace function fencepost.job_submit_many(
  p_queue text, p_kind text, p_payloads jsonb[], p_priority integer default 1, p_run_at timestamptz default null,
  p_tries_max integer default 5, p_lease interval default '60 seconds', p_unique_keys text[] default null,
  p_concurrency_keys text[] default null, p_concurrency_limit integer default null, p_headers jsonb[] default null,
  p_unique_period interval default null, p_unique_states text[] default null, p_unique_replace text[] default null,
  p_tags text[] default null, p_search_by text[] default null
) returns table (job_id bigint, created boolean, replaced boolean)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now      timestamptz;
  v_count    integer := cardinality(p_payloads);
  v_ids      bigint[];
  v_won      bigint[];
  v_kept     boolean[];  -- Null where every row is kept.
  v_replaced bigint[];   -- Null where nothing is replaced.
begin
  perform fencepost._job_check_terms(p_queue, p_kind, p_priority, p_tries_max, p_lease);
  perform fencepost._queue_check_room(p_queue, v_count);
  perform fencepost._check_moment('run_at', p_run_at);
  perform fencepost._check_lengths('unique_keys', v_count, coalesce(cardinality(p_unique_keys), v_count));
  perform fencepost._check_lengths('concurrency_keys', v_count, coalesce(cardinality(p_concurrency_keys), v_count));
  perform fencepost._check_lengths('headers', v_count, coalesce(cardinality(p_headers), v_count));
  perform fencepost._check_documents('payload', p_payloads, 1048576);
  perform fencepost._check_documents('headers', p_headers, 16384);
  perform fencepost._check_texts('unique_key', p_unique_keys, 512, true);
  perform fencepost._check_texts('concurrency_key', p_concurrency_keys, 512, true);
  if p_payloads is null or array_position(p_payloads, null) is not null then
    raise exception 'payload must not be null.' using errcode = 'ZF100', detail = '{"field": "payload"}';
  end if;
  if (p_concurrency_keys is null) <> (p_concurrency_limit is null) or p_concurrency_limit < 1 then
    raise exception 'concurrency_limit goes with a concurrency key and is at least 1.'
      using errcode = 'ZF100', detail = '{"field": "concurrency_limit"}';
  end if;
  if p_unique_period is not null or p_unique_states is not null or p_unique_replace is not null then
    perform fencepost._unique_check_terms(p_unique_keys, p_unique_period, p_unique_states, p_unique_replace);
  end if;
  v_now := fencepost.clock();
  v_ids := array(select nextval('fencepost.job_job_id_seq') from generate_series(1, v_count));

  -- Repeated while a key belongs neither to us nor to another job: its job has left between the two
  -- statements.
  while p_unique_keys is not null and (v_won is null or array_position(v_won, null) is not null) loop
    insert into fencepost.job_unique (unique_key, job_id, held_until, states)
    select k.key, min(v_ids[k.place]), v_now + p_unique_period, p_unique_states
    from unnest(p_unique_keys) with ordinality k (key, place)
    where k.key is not null group by k.key order by k.key
    on conflict (unique_key) do nothing;
    v_won := fencepost._unique_holders(p_unique_keys, v_ids);
    if exists (select 1 from unnest(v_won) w where w <> all (v_ids)) then
      perform fencepost._unique_take_over(p_unique_keys, v_ids, v_now + p_unique_period, p_unique_states);
      v_won := fencepost._unique_holders(p_unique_keys, v_ids);
    end if;
  end loop;
  if v_won is not null then
    v_kept := array(select w.job_id = v_ids[w.place] from unnest(v_won) with ordinality w (job_id, place) order by w.place);
    if p_unique_replace is not null then
      v_replaced := fencepost._unique_replace(v_won, v_kept, p_payloads, p_headers, p_priority, p_run_at, p_tries_max, p_lease, p_tags,
        p_search_by, p_unique_replace, v_now);
    end if;
    v_ids := v_won;
  end if;

  insert into fencepost.job (job_id, queue, kind, priority, payload, headers, tries_max, lease, unique_key, concurrency_key,
                             concurrency_limit, submitted_at)
  select n.job_id, p_queue, p_kind, p_priority, n.payload, coalesce(n.headers, '{}'), p_tries_max, p_lease, n.unique_key,
         n.concurrency_key, case when n.concurrency_key is not null then p_concurrency_limit end, v_now
  from unnest(v_ids, p_payloads, v_kept, p_headers, p_unique_keys, p_concurrency_keys)
    n (job_id, payload, kept, headers, unique_key, concurrency_key)
  where n.kept is not false;
  insert into fencepost.job_waiting (job_id, queue, priority, run_at, concurrency_key)
  select n.job_id, p_queue, p_priority, greatest(coalesce(p_run_at, v_now), v_now), n.concurrency_key
  from unnest(v_ids, v_kept, p_concurrency_keys) n (job_id, kept, concurrency_key)
  where n.kept is not false;
  if p_tags is not null or p_search_by is not null then
    perform fencepost._job_label(n.job_id, n.payload, p_tags, p_search_by)
    from unnest(v_ids, p_payloads, v_kept) n (job_id, payload, kept) where n.kept is not false;
  end if;
  if p_run_at is null or p_run_at <= v_now then
    perform fencepost._wake('job:' || p_queue);
  end if;
  return query select n.job_id, n.kept is not false, coalesce(n.job_id = any (v_replaced), false) from unnest(v_ids, v_kept) n (job_id, kept);
end $$;

-- The due pending jobs of one priority, locked for this transaction: write their entries, then record them
-- with job_dispatched in the same transaction. A crash in between leaves them pending, and the entry is a
-- duplicate that the claim refuses. Returns nothing of a paused queue. Served by job_waiting_pending.
create or replace function fencepost.job_dispatch(
  p_queue text, p_priority integer, p_limit integer, p_patience interval default '30 seconds')
returns table (job_id bigint, attempt bigint, dispatches integer)
language plpgsql volatile security definer
set search_path = pg_catalog, fencepost, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_limit(p_limit);
  perform fencepost._check_duration('patience', p_patience, interval '1 day');
  if exists (select 1 from fencepost.job_queue q where q.queue = p_queue and q.paused_at is not null) then
    return;
  end if;
  perform fencepost._bound_idle_time(p_patience);
  v_now := fencepost.clock();
  return query
  select w.job_id, w.attempt, w.dispatches from fencepost.job_waiting w
  where hashtext(w.queue) = hashtext(p_queue) and w.queue = p_queue and w.priority = p_priority
    and w.dispatched_at is null and w.need_id is null and w.run_at <= v_now
  order by w.run_at, w.job_id limit least(p_limit, fencepost._rate_room(p_queue, v_now, true)) for update skip locked;
end $$;

-- Share places among the priorities by 8, 4, 2 and 1; places that one has no jobs for go to the others, in
-- the same way. A place that cannot be divided is assigned by lot: given to the urgent one each time, the
-- others would starve wherever places come one by one. Each priority gets its share on average, and never
-- differs from it by a whole place. A repeated caller passes a call counter: lots that lie a golden section
-- apart leave no priority out for long.
create or replace function fencepost._priority_parts(p_places integer, p_wanted integer[], p_turn bigint) returns integer[]
language plpgsql volatile
as $$
declare
  c_shares constant integer[] := array[8, 4, 2, 1];
  v_parts  integer[] := array[0, 0, 0, 0];
  v_left   integer := p_places;
  v_total  integer;
  v_places integer;
  v_below  integer;
  v_lot    double precision;
  v_part   integer;
begin
  loop
    v_total := (select sum(c_shares[l]) from generate_series(1, 4) l where p_wanted[l] > v_parts[l]);
    exit when v_left <= 0 or v_total is null;
    v_places := v_left;
    v_below := 0;
    v_lot := coalesce(p_turn * 0.6180339887498949::double precision, random());
    for l in 1 .. 4 loop
      continue when p_wanted[l] <= v_parts[l];
      v_part := floor((v_below + c_shares[l])::double precision * v_places / v_total + v_lot)
                - floor(v_below::double precision * v_places / v_total + v_lot);
      v_part := least(v_part, v_left, p_wanted[l] - v_parts[l]);
      v_parts[l] := v_parts[l] + v_part;
      v_left := v_left - v_part;
      v_below := v_below + c_shares[l];
    end loop;
  end loop;
  return v_parts;
end $$;

-- How many jobs of each priority are due, none counted beyond p_limit; with p_dispatched also those whose
-- entries are in a Redis that cannot be reached. Excludes jobs that were due before p_since, where that is
-- given, and includes those that were set aside with one of p_needs. Served by job_waiting_pending,
-- job_waiting_dispatched and job_waiting_aside.
create or replace function fencepost._priorities_due(
  p_queue text, p_limit integer, p_dispatched boolean, p_now timestamptz, p_since timestamptz[], p_needs integer[]
) returns integer[]
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off
as $$
begin
  return array(
    select (select count(*) from (
              select 1 from fencepost.job_waiting w
              where hashtext(w.queue) = hashtext(p_queue) and w.queue = p_queue and w.priority = l
                and w.dispatched_at is null and w.need_id is null and w.run_at <= p_now
                and w.run_at >= coalesce(p_since[l + 1], '-infinity')
              limit p_limit) pending)
         + (select count(*) from (
              select 1 from fencepost.job_waiting w
              where w.need_id = any (p_needs) and w.priority = l and w.run_at <= p_now limit p_limit) aside)
         + (select count(*) from (
              select 1 from fencepost.job_waiting w
              where p_dispatched and hashtext(w.queue) = hashtext(p_queue) and w.queue = p_queue
                and w.priority = l and w.dispatched_at is not null limit p_limit) dispatched)
    from generate_series(0, 3) l order by l);
end $$;

-- job_dispatch for every priority of a queue, at most p_limit of each: one round trip instead of four, most
-- of them for nothing. All priorities together stay inside the queue's rate, and share the room that it
-- leaves.
create or replace function fencepost.job_dispatch_by_priority(p_queue text, p_limit integer, p_patience interval default '30 seconds')
returns table (priority integer, job_id bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, fencepost, pg_temp set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  v_now   timestamptz := fencepost.clock();
  v_room  integer := fencepost._rate_room(p_queue, v_now, true);
  v_parts integer[] := array[p_limit, p_limit, p_limit, p_limit];
begin
  if v_room is not null and p_limit >= 0 then
    v_parts := fencepost._priority_parts(v_room, fencepost._priorities_due(p_queue, least(p_limit, v_room), false, v_now, null, '{}'),
                                         null);
  end if;
  for v_priority in 0 .. 3 loop
    return query select v_priority, d.job_id from fencepost.job_dispatch(p_queue, v_priority, v_parts[v_priority + 1], p_patience) d;
  end loop;
end $$;

-- Record where the entries are, in order of id. Jobs that were claimed, cancelled or dispatched by another
-- meanwhile are left alone; returns how many were recorded.
create or replace function fencepost.job_dispatched(p_ids bigint[], p_entry_ids text[], p_incarnation text) returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, fencepost, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
  v_now   timestamptz := fencepost.clock();
  v_count bigint;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('incarnation', p_incarnation, 128);
  perform fencepost._check_lengths('entry_ids', cardinality(p_ids), cardinality(p_entry_ids));
  perform fencepost._check_texts('entry_ids', p_entry_ids, 64);
  with asked as materialized (
    select a.job_id, a.entry_id from unnest(p_ids, p_entry_ids) a (job_id, entry_id) order by a.job_id
  )
  update fencepost.job_waiting w
  set dispatched_at = v_now, entry_id = a.entry_id, incarnation = p_incarnation, dispatches = w.dispatches + 1,
      last_error = null
  -- Filters on the entry, which is set together with dispatched_at: a filter on dispatched_at would make the
  -- planner use the index of all pending jobs, for each id.
  from asked a where w.job_id = a.job_id and w.entry_id is null;
  get diagnostics v_count = row_count;
  return v_count;
end $$;

-- The entries could not be written: count the attempt, keep its error, and keep the jobs pending until
-- p_delay has passed. Without a delay they keep their order: while Redis is down, workers that claim directly
-- take them in that order.
create or replace function fencepost.job_dispatch_failed(p_ids bigint[], p_error text, p_delay interval) returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, fencepost, pg_temp set enable_seqscan = off
as $$
declare
  v_now   timestamptz := fencepost.clock();
  v_count bigint;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_wait('delay', p_delay, interval '10 years');
  perform 1 from fencepost.job_waiting w where w.job_id = any (p_ids) order by w.job_id for update;
  update fencepost.job_waiting w
  set run_at = case when p_delay > interval '0' then greatest(w.run_at, v_now + p_delay) else w.run_at end, dispatches = w.dispatches + 1, last_error = left(p_error, 2000)
  where w.job_id = any (p_ids) and w.entry_id is null;
  get diagnostics v_count = row_count;
  return v_count;
end $$;

-- Make jobs pending again whose entries are lost. Guarded by the entry that was judged lost: a job that was
-- dispatched again since then is left alone. In order of id; returns how many became pending.
--
-- The rows are locked before they are compared: a worker can read an entry, and give it back, before the
-- dispatcher that wrote it has committed. A comparison alone would not see that entry, and the job would wait for it.
create or replace function fencepost.job_recall(p_ids bigint[], p_entry_ids text[]) returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, fencepost, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
  v_count bigint;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_lengths('entry_ids', cardinality(p_ids), cardinality(p_entry_ids));
  perform 1 from fencepost.job_waiting w where w.job_id = any (p_ids) order by w.job_id for update;
  with asked as materialized (
    select a.job_id, a.entry_id from unnest(p_ids, p_entry_ids) a (job_id, entry_id) order by a.job_id
  )
  update fencepost.job_waiting w set dispatched_at = null, entry_id = null, incarnation = null
  from asked a where w.job_id = a.job_id and w.entry_id = a.entry_id;
  get diagnostics v_count = row_count;
  return v_count;
end $$;

-- Dispatched jobs whose entries were written before p_age ago, oldest first, after the given position: the
-- stream reconciler compares them with the stream. Reads only. Served by job_waiting_dispatched.
create or replace function fencepost.job_dispatched_page(
  p_queue text, p_priority integer, p_age interval, p_after_at timestamptz, p_after_id bigint, p_limit integer
) returns table (job_id bigint, dispatched_at timestamptz, entry_id text, incarnation text)
language plpgsql stable security definer
set search_path = pg_catalog, fencepost, pg_temp set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  v_before timestamptz := fencepost.clock() - p_age;
begin
  perform fencepost._check_limit(p_limit);
  return query
  select w.job_id, w.dispatched_at, w.entry_id, w.incarnation from fencepost.job_waiting w
  where hashtext(w.queue) = hashtext(p_queue) and w.queue = p_queue and w.priority = p_priority
    and w.dispatched_at is not null and w.dispatched_at <= v_before
    and (w.dispatched_at, w.job_id) > (coalesce(p_after_at, '-infinity'), coalesce(p_after_id, 0))
  order by w.dispatched_at, w.job_id limit p_limit;
end $$;

-- When the next pending job of a queue is due, or null when none waits: how long a loop may sleep. Paused
-- queues have none, and a rate-limited queue is not due before its rate leaves room. Served by
-- job_waiting_pending, one lookup for each priority.
create or replace function fencepost.job_next_due(p_queue text) returns timestamptz
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select case when min(w.run_at) is not null then greatest(min(w.run_at), fencepost._rate_ready_at(p_queue, fencepost.clock())) end
  from generate_series(0, 3) l (priority) cross join lateral (
    select n.run_at from fencepost.job_waiting n
    where hashtext(n.queue) = hashtext(p_queue) and n.queue = p_queue and n.priority = l.priority
      and n.dispatched_at is null and n.need_id is null
    order by n.run_at limit 1) w
  where not exists (select 1 from fencepost.job_queue q where q.queue = p_queue and q.paused_at is not null)
$$;
