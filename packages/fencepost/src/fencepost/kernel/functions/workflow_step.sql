-- Steps. A step is recorded once, under the workflow's attempt; its record commits with the caller's writes.
--
-- A result of up to 64 KiB lies in the step's row, a larger one, up to 8 MiB, in a row of its own, which
-- workflow_load does not read.

-- Check what a step stores. The undo of a step must be a job that can be submitted whenever the workflow
-- ends, so its terms are checked now.
create or replace function fencepost._step_check(p_name text, p_digest text, p_result jsonb, p_undo jsonb) returns void
language plpgsql volatile
as $$
begin
  perform fencepost._check_text('name', p_name, 256);
  perform fencepost._check_text('digest', p_digest, 256);
  perform fencepost._check_json('result', p_result, 8388608);
  perform fencepost._check_json('undo', p_undo, 65536);
  if p_undo is not null then
    if jsonb_typeof(p_undo) <> 'object' or jsonb_typeof(p_undo -> 'payload') is null
       or coalesce(jsonb_typeof(p_undo -> 'headers'), 'object') <> 'object' then
      raise exception 'undo is no job: it needs queue, kind and payload.' using errcode = 'ZF100', detail = '{"field": "undo"}';
    end if;
    perform fencepost._job_check_terms(p_undo ->> 'queue', p_undo ->> 'kind', coalesce((p_undo ->> 'priority')::integer, 1),
      coalesce((p_undo ->> 'tries_max')::integer, 5), coalesce((p_undo ->> 'lease')::interval, interval '60 seconds'));
  end if;
end $$;

-- Whether _step_check has nothing to refuse; in one expression, because it is asked for every step. A step with an undo
-- is checked as a whole.
create or replace function fencepost._is_step(p_name text, p_digest text, p_result jsonb, p_undo jsonb) returns boolean
language sql immutable
as $$
  select octet_length(p_name) between 1 and 256 and octet_length(p_digest) between 1 and 256 and p_undo is null
         and coalesce(pg_column_size(p_result), 0) <= 65536
$$;

-- Write one step that does not exist yet; false when it does.
create or replace function fencepost._step_write(
  p_id bigint, p_attempt bigint, p_what text, p_name text, p_digest text, p_result jsonb, p_undo jsonb, p_now timestamptz
) returns boolean
language plpgsql volatile
as $$
declare
  v_large boolean := coalesce(pg_column_size(p_result) > 65536, false);
begin
  insert into fencepost.workflow_step (job_id, name, what, attempt, digest, result, is_large, undo, at)
  values (p_id, p_name, p_what, p_attempt, p_digest, case when not v_large then p_result end, v_large, p_undo, p_now)
  on conflict (job_id, name) do nothing;
  if not found then
    return false;
  end if;
  if v_large then
    insert into fencepost.workflow_result (job_id, name, result) values (p_id, p_name, p_result);
  end if;
  return true;
end $$;

-- Lock the running row as a fence does and check that p_owner with p_attempt may write; raises the reason. A
-- transaction that has passed the fence is not asked for the time or a cancel again.
create or replace function fencepost._step_fence(p_id bigint, p_attempt bigint, p_owner text, p_op text, p_name text) returns void
language plpgsql volatile
as $$
declare
  v_running fencepost.job_running;
begin
  perform fencepost._check_holder(p_attempt, p_owner);
  select * into v_running from fencepost.job_running r where r.job_id = p_id and r.attempt = p_attempt for key share;
  if not found or v_running.owner <> p_owner
     or ((v_running.expires_at <= fencepost.clock() or v_running.cancel_requested_at is not null)
         and not fencepost._job_is_fenced(p_id, p_attempt)) then
    perform fencepost._workflow_refuse(null, p_id, p_attempt, p_owner, p_op, p_name);
  end if;
end $$;

-- Record a step, in the transaction of the caller's own writes: they commit together or not at all. Raises
-- mismatch when the step was recorded with other arguments, and duplicate when it was recorded with these.
-- Takes FOR KEY SHARE on the running row. One statement locks it, checks as _step_fence does and writes, because each
-- statement of a function is made ready again in each transaction; what it did not write is large, known or refused.
create or replace function fencepost.step_commit(
  p_id bigint, p_attempt bigint, p_owner text, p_name text, p_digest text, p_result jsonb default null, p_undo jsonb default null
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  if fencepost._is_step(p_name, p_digest, p_result, p_undo) is not true then
    perform fencepost._step_check(p_name, p_digest, p_result, p_undo);
  end if;
  with held as materialized (
    select r.owner, r.expires_at, r.cancel_requested_at from fencepost.job_running r
    where r.job_id = p_id and r.attempt = p_attempt for key share
  )
  insert into fencepost.workflow_step (job_id, name, what, attempt, digest, result, undo, at)
  select p_id, p_name, 'step', p_attempt, p_digest, p_result, p_undo, fencepost.clock() from held h
  where h.owner = p_owner and coalesce(pg_column_size(p_result), 0) <= 65536
    and ((h.expires_at > fencepost.clock() and h.cancel_requested_at is null) or fencepost._job_is_fenced(p_id, p_attempt))
  on conflict (job_id, name) do nothing;
  if found then
    return;
  end if;
  perform fencepost._step_fence(p_id, p_attempt, p_owner, 'step', p_name);
  if not fencepost._step_write(p_id, p_attempt, 'step', p_name, p_digest, p_result, p_undo, fencepost.clock()) then
    perform fencepost._step_refuse_known(p_id, p_attempt, p_owner, p_name, p_digest);
  end if;
end $$;

-- A step of this name exists: refuse it with the step that was seen.
create or replace function fencepost._step_refuse_known(p_id bigint, p_attempt bigint, p_owner text, p_name text, p_digest text)
returns void
language plpgsql volatile
as $$
declare
  v_known fencepost.workflow_step;
begin
  select * into strict v_known from fencepost.workflow_step s where s.job_id = p_id and s.name = p_name;
  perform fencepost._refuse(case when v_known.digest <> p_digest then 'mismatch' else 'duplicate' end, 'workflow step',
    p_id || '/' || p_name, jsonb_build_object('attempt', p_attempt, 'owner', p_owner, 'op', 'step', 'digest', p_digest),
    jsonb_build_object('what', v_known.what, 'attempt', v_known.attempt, 'digest', v_known.digest, 'at', v_known.at));
end $$;

-- Record many steps of several workflows in the transaction of their own writes: all of them, in order of id, or it raises
-- the reason of the first that is refused, as step_commit does. Takes FOR KEY SHARE on the running rows, as job_fence_all
-- did for the same transaction.
create or replace function fencepost.step_commit_all(
  p_ids bigint[], p_attempts bigint[], p_owner text, p_names text[], p_digests text[], p_results jsonb[] default null,
  p_undos jsonb[] default null
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_written bigint;
  v         record;
begin
  perform fencepost._steps_check(p_ids, p_attempts, p_owner, p_names, p_digests, p_results, p_undos);
  if cardinality(fencepost._steps_held(p_ids, p_attempts, p_owner, fencepost.clock())) < cardinality(p_ids) then
    for v in select a.* from unnest(p_ids, p_attempts, p_names) with ordinality a (job_id, attempt, name, place)
             order by a.job_id, a.place loop
      perform fencepost._step_fence(v.job_id, v.attempt, p_owner, 'step', v.name);
    end loop;
  end if;
  -- One that is known is refused: its writes would happen twice. So is one that is named twice. Each is looked up: a plan
  -- from the time when there were few steps would read them all.
  select a.* into v
  from unnest(p_ids, p_attempts, p_names, p_digests) with ordinality a (job_id, attempt, name, digest, place)
  cross join lateral (select 1 from fencepost.workflow_step s where s.job_id = a.job_id and s.name = a.name offset 0) s
  order by a.job_id, a.place limit 1;
  if found then
    perform fencepost._step_refuse_known(v.job_id, v.attempt, p_owner, v.name, v.digest);
  end if;
  v_written := fencepost._steps_write(p_ids, p_attempts, null, p_names, p_digests, p_results, p_undos, fencepost.clock());
  if v_written < cardinality(p_ids) then
    select a.job_id, max(a.attempt) as attempt, a.name, min(a.digest) as digest into v
    from unnest(p_ids, p_attempts, p_names, p_digests) a (job_id, attempt, name, digest)
    cross join lateral (select 1 from fencepost.workflow_step s where s.job_id = a.job_id and s.name = a.name offset 0) s
    group by a.job_id, a.name order by count(*) desc, a.job_id, a.name limit 1;
    perform fencepost._step_refuse_known(v.job_id, v.attempt, p_owner, v.name, v.digest);
  end if;
end $$;

-- Record many steps, of one workflow or of several, by one statement and one commit; answers for each and
-- never raises for one. A step that this attempt has recorded already, with the same arguments, is answered as
-- recorded: a caller that lost the answer may repeat the call. A row that is locked at this moment is
-- answered as in_flight, so that one takeover does not hold up the steps of the others. In order of id.
create or replace function fencepost.step_commit_many(
  p_ids bigint[], p_attempts bigint[], p_owner text, p_names text[], p_digests text[], p_results jsonb[] default null,
  p_undos jsonb[] default null
) returns table (job_id bigint, name text, refusal text)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now  timestamptz;
  v_held bigint[];
  v      record;
begin
  perform fencepost._steps_check(p_ids, p_attempts, p_owner, p_names, p_digests, p_results, p_undos);
  v_now := fencepost.clock();
  v_held := fencepost._steps_held(p_ids, p_attempts, p_owner, v_now);
  if cardinality(v_held) = cardinality(p_ids) then
    v_held := null;
  end if;
  if fencepost._steps_write(p_ids, p_attempts, v_held, p_names, p_digests, p_results, p_undos, v_now) = cardinality(p_ids) then
    return query select a.job_id, a.name, null::text from unnest(p_ids, p_names) a (job_id, name);
    return;
  end if;
  for v in
    select a.job_id, a.attempt, a.name, a.digest, s.digest as known, s.attempt as known_attempt,
           v_held is null or a.place = any (v_held) as held
    from unnest(p_ids, p_attempts, p_names, p_digests) with ordinality a (job_id, attempt, name, digest, place)
    left join fencepost.workflow_step s on s.job_id = a.job_id and s.name = a.name
    order by a.place
  loop
    job_id := v.job_id; name := v.name;
    refusal := case
      when not v.held then (select e.refusal from fencepost._job_explain(v.job_id, v.attempt, p_owner, v_now) e)
      when v.known <> v.digest then 'mismatch'
      when v.known_attempt <> v.attempt then 'duplicate' end;
    if refusal <> 'in_flight' then
      perform fencepost._refusal_note(refusal, 'job', v.job_id::text, p_owner,
        jsonb_build_object('attempt', v.attempt, 'owner', p_owner, 'op', 'step', 'name', v.name), fencepost._job_seen(v.job_id));
    end if;
    return next;
  end loop;
end $$;

-- Check what many steps store.
create or replace function fencepost._steps_check(
  p_ids bigint[], p_attempts bigint[], p_owner text, p_names text[], p_digests text[], p_results jsonb[], p_undos jsonb[]
) returns void
language plpgsql volatile
as $$
declare
  v_count integer := cardinality(p_ids);
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('owner', p_owner, 256);
  perform fencepost._check_tokens('ids', p_ids);
  perform fencepost._check_tokens('attempts', p_attempts);
  perform fencepost._check_lengths('attempts', v_count, cardinality(p_attempts));
  perform fencepost._check_lengths('names', v_count, cardinality(p_names));
  perform fencepost._check_lengths('digests', v_count, cardinality(p_digests));
  perform fencepost._check_lengths('results', v_count, coalesce(cardinality(p_results), v_count));
  perform fencepost._check_lengths('undos', v_count, coalesce(cardinality(p_undos), v_count));
  perform fencepost._check_texts('name', p_names, 256);
  perform fencepost._check_texts('digest', p_digests, 256);
  if p_results is not null then
    perform fencepost._check_documents('result', p_results, 8388608);
  end if;
  if p_undos is not null then
    perform fencepost._step_check(a.name, a.digest, null, a.undo)
      from unnest(p_names, p_digests, p_undos) a (name, digest, undo) where a.undo is not null;
  end if;
end $$;

-- The places of the steps that may be recorded now, their running rows locked as by a fence; a row that is locked at this
-- moment is not among them. A step counts by its own attempt: a worker may hold two of one workflow.
create or replace function fencepost._steps_held(p_ids bigint[], p_attempts bigint[], p_owner text, p_now timestamptz) returns bigint[]
language plpgsql volatile
as $$
begin
  return array(
    select a.place from unnest(p_ids, p_attempts) with ordinality a (job_id, attempt, place)
    join fencepost.job_running r on r.job_id = a.job_id and r.attempt = a.attempt and r.owner = p_owner
      and ((r.expires_at > p_now and r.cancel_requested_at is null) or fencepost._job_is_fenced(r.job_id, r.attempt))
    order by r.job_id for key share of r skip locked);
end $$;

-- Write the steps that do not exist yet, of those at the places p_held, or of all of them; how many those were.
create or replace function fencepost._steps_write(
  p_ids bigint[], p_attempts bigint[], p_held bigint[], p_names text[], p_digests text[], p_results jsonb[], p_undos jsonb[],
  p_now timestamptz
) returns bigint
language plpgsql volatile
as $$
declare
  v_written bigint;
begin
  insert into fencepost.workflow_step (job_id, name, what, attempt, digest, result, is_large, undo, at)
  select a.job_id, a.name, 'step', a.attempt, a.digest, case when not l.is_large then a.result end, l.is_large, a.undo, p_now
  from unnest(p_ids, p_attempts, p_names, p_digests, p_results, p_undos) with ordinality
    a (job_id, attempt, name, digest, result, undo, place)
  cross join lateral (select coalesce(pg_column_size(a.result) > 65536, false)) l (is_large)
  where p_held is null or a.place = any (p_held) order by a.job_id, a.place
  on conflict (job_id, name) do nothing;
  get diagnostics v_written = row_count;
  if exists (select 1 from unnest(p_results) a (result) where pg_column_size(a.result) > 65536) then
    -- Of a name that is asked for twice the first is written; one that this attempt has recorded before has its row.
    insert into fencepost.workflow_result (job_id, name, result)
    select distinct on (a.job_id, a.name) a.job_id, a.name, a.result
    from unnest(p_ids, p_attempts, p_names, p_digests, p_results) with ordinality a (job_id, attempt, name, digest, result, place)
    cross join lateral (
      select k.is_large, k.attempt, k.digest from fencepost.workflow_step k where k.job_id = a.job_id and k.name = a.name offset 0) s
    where s.is_large and s.attempt = a.attempt and s.digest = a.digest and pg_column_size(a.result) > 65536
      and (p_held is null or a.place = any (p_held))
    order by a.job_id, a.name, a.place
    on conflict (job_id, name) do nothing;
  end if;
  return v_written;
end $$;

-- The result of a step whose result lies in a row of its own.
create or replace function fencepost.step_result(p_id bigint, p_name text) returns jsonb
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$ select r.result from fencepost.workflow_result r where r.job_id = p_id and r.name = p_name $$;
