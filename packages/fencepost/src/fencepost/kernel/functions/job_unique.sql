-- Unique jobs: which job holds a key, when another takes it over, and what a submission replaces.
--
-- The row of job_unique names the job that holds a key. It is written by the submission and deleted when the job ends, unless the
-- key is held for a period that has not passed. What is left of it is judged by the next submission of the key: a row that no
-- longer holds is taken over. The end of a job skips a row that a submission is taking over, so it waits for none.
--
--   the job is      holds its key
--   waiting         always
--   running         unless states leaves it out
--   finished        if states names it, until the period after its submission has passed
--   dead, cancelled the same
--
-- Locks: the row of the key, then the waiting rows of the jobs that are replaced, in order of id. A job that ends takes its own row
-- first and waits for no key, so neither waits for the other in a circle.

create or replace function fencepost._unique_check_terms(p_keys text[], p_period interval, p_states text[], p_replace text[]) returns void
language plpgsql volatile
as $$
begin
  perform fencepost._require_read_committed();
  if p_keys is null then
    raise exception 'unique_key is missing: a period, states and what is replaced go with one.' using errcode = 'ZF100', detail = '{"field": "unique_key"}';
  end if;
  if p_period is not null then
    perform fencepost._check_duration('unique_period', p_period, interval '10 years');
  end if;
  perform fencepost._check_word('unique_states', s, array['waiting', 'running', 'finished', 'dead', 'cancelled']) from unnest(p_states) s;
  perform fencepost._check_word('unique_replace', r, array['run_at', 'priority', 'tries', 'lease', 'payload', 'headers', 'tags'])
    from unnest(p_replace) r;
  if (p_period is not null) <> (p_states && array['finished', 'dead', 'cancelled']) or (p_states is null and p_period is not null)
     or not 'waiting' = any (p_states) then
    raise exception 'unique_states hold waiting, and states of ended jobs exactly when there is a unique_period.'
      using errcode = 'ZF100', detail = '{"field": "unique_states"}';
  end if;
end $$;

-- Whether a job holds a key under these terms at p_now. Served by the primary keys.
create or replace function fencepost._unique_holds(p_id bigint, p_states text[], p_until timestamptz, p_now timestamptz) returns boolean
language sql stable
as $$
  select exists (select 1 from fencepost.job_waiting w where w.job_id = p_id)
    or ((p_states is null or 'running' = any (p_states)) and exists (select 1 from fencepost.job_running r where r.job_id = p_id))
    or (coalesce(p_until > p_now, false) and coalesce((select f.state = any (p_states) from fencepost.job_finished f where f.job_id = p_id),
                                     not exists (select 1 from fencepost.job_running r where r.job_id = p_id)))
$$;

-- The jobs that the keys of a submission belong to, in the order of the keys; p_ids are the jobs that it would create. A row that lost,
-- to another transaction or to an earlier element, has the winner's job. The newest: an old snapshot may still see the row of a job
-- that has left since. Null for a key whose job has left between two statements.
create or replace function fencepost._unique_holders(p_keys text[], p_ids bigint[]) returns bigint[]
language sql stable
as $$
  select array(select case when k.key is null then p_ids[k.place] else
                 (select max(u.job_id) from fencepost.job_unique u where u.unique_key = k.key) end
               from unnest(p_keys) with ordinality k (key, place) order by k.place)
$$;

-- Give the keys whose jobs hold them no longer to the jobs of a submission, p_ids, in order of the keys. Those jobs are not stored yet,
-- and hold theirs. Guarded by the job that was judged: what another submission took meanwhile stays its own.
create or replace function fencepost._unique_take_over(p_keys text[], p_ids bigint[], p_until timestamptz, p_states text[]) returns void
language plpgsql volatile
as $$
declare
  v      record;
  v_held fencepost.job_unique;
begin
  for v in select k.key, min(p_ids[k.place]) as job_id from unnest(p_keys) with ordinality k (key, place) where k.key is not null
           group by k.key order by k.key loop
    select * into v_held from fencepost.job_unique u where u.unique_key = v.key order by u.job_id desc limit 1;
    continue when not found or v_held.job_id = any (p_ids)
      or fencepost._unique_holds(v_held.job_id, v_held.states, v_held.held_until, fencepost.clock());
    update fencepost.job_unique u set job_id = v.job_id, held_until = p_until, states = p_states
    where u.unique_key = v.key and u.job_id = v_held.job_id;
  end loop;
end $$;

-- Free the keys of jobs that have ended, except those that are held for a time. Skips a row that a submission is taking over: if
-- that rolls back, the next submission judges the row again.
create or replace function fencepost._unique_free(p_ids bigint[], p_now timestamptz) returns void
language sql volatile
as $$
  delete from fencepost.job_unique u where u.ctid = any (array(
    select k.ctid from fencepost.job_unique k where k.job_id = any (p_ids)
      and (k.held_until is null or not fencepost._unique_holds(k.job_id, k.states, k.held_until, p_now)) for update skip locked))
$$;

-- A submission whose key is held replaces what it names of the job that waits: p_won are the jobs that the keys belong to, p_kept
-- tells which of them are new. A job that runs or has ended is left alone, and so is the time of a batch's callback. A job that lies
-- in a stream becomes pending again when its time or priority changes. Returns the jobs that were changed.
create or replace function fencepost._unique_replace(
  p_won bigint[], p_kept boolean[], p_payloads jsonb[], p_headers jsonb[], p_priority integer, p_run_at timestamptz, p_tries_max integer,
  p_lease interval, p_tags text[], p_search_by text[], p_fields text[], p_now timestamptz
) returns bigint[]
language plpgsql volatile
as $$
declare
  v          record;
  v_waiting  fencepost.job_waiting;
  v_replaced bigint[] := '{}';
begin
  -- The last of several submissions of one key is the one that stays; those behind a job of this submission are that job.
  for v in select distinct on (n.job_id) n.job_id, n.payload, n.headers
           from unnest(p_won, p_payloads, p_headers, p_kept) with ordinality n (job_id, payload, headers, kept, place)
           where not n.kept and n.job_id <> all (array(select k.job_id from unnest(p_won, p_kept) k (job_id, kept) where k.kept))
           order by n.job_id, n.place desc loop
    select * into v_waiting from fencepost.job_waiting w where w.job_id = v.job_id for update;
    continue when not found;
    update fencepost.job j
    set payload = case when 'payload' = any (p_fields) then v.payload else j.payload end,
        headers = case when 'headers' = any (p_fields) then coalesce(v.headers, '{}') else j.headers end,
        tries_max = case when 'tries' = any (p_fields) then p_tries_max else j.tries_max end,
        lease = case when 'lease' = any (p_fields) then p_lease else j.lease end,
        priority = case when 'priority' = any (p_fields) then p_priority else j.priority end
    where j.job_id = v.job_id;
    if p_fields && array['run_at', 'priority'] then
      update fencepost.job_waiting w
      set run_at = case when 'run_at' = any (p_fields) and w.run_at < fencepost._batch_never()
                        then greatest(coalesce(p_run_at, p_now), p_now) else w.run_at end,
          priority = case when 'priority' = any (p_fields) then p_priority else w.priority end,
          dispatched_at = null, entry_id = null, incarnation = null, deferred_at = null
      where w.job_id = v.job_id;
    end if;
    if p_fields && array['tags', 'payload'] then
      delete from fencepost.job_label l where l.job_id = v.job_id
        and ((l.label like 'tag:%' and 'tags' = any (p_fields)) or (l.label like 'arg:%' and 'payload' = any (p_fields)));
      perform fencepost._job_label(v.job_id, v.payload, case when 'tags' = any (p_fields) then p_tags end,
        case when 'payload' = any (p_fields) then p_search_by end);
    end if;
    perform fencepost._event(p_now, 'job', v.job_id::text, 'replaced', null, v_waiting.attempt, jsonb_build_object('fields', p_fields));
    perform fencepost._wake('job:' || v_waiting.queue);
    v_replaced := v_replaced || v.job_id;
  end loop;
  return v_replaced;
end $$;

-- Delete keys whose time has passed, at most p_limit, unless their job waits or runs. Served by job_unique_by_end.
create or replace function fencepost.unique_prune(p_limit integer) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now   timestamptz := fencepost.clock();
  v_count bigint;
begin
  perform fencepost._check_limit(p_limit);
  delete from fencepost.job_unique u where u.ctid = any (array(
    select k.ctid from fencepost.job_unique k where k.held_until <= v_now
      and not fencepost._unique_holds(k.job_id, k.states, k.held_until, v_now)
    order by k.held_until limit p_limit for update skip locked));
  get diagnostics v_count = row_count;
  return v_count;
end $$;
