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
-- Takes FOR KEY SHARE on the running row.
create or replace function fencepost.step_commit(
  p_id bigint, p_attempt bigint, p_owner text, p_name text, p_digest text, p_result jsonb default null, p_undo jsonb default null
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._step_check(p_name, p_digest, p_result, p_undo);
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
  v_count   integer := cardinality(p_ids);
  v_now     timestamptz;
  v_held    bigint[];
  v_written bigint;
  v         record;
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
  perform fencepost._check_documents('result', p_results, 8388608);
  perform fencepost._step_check(a.name, a.digest, null, a.undo)
    from unnest(p_names, p_digests, p_undos) a (name, digest, undo) where a.undo is not null;
  v_now := fencepost.clock();
  v_held := array(select r.job_id from (select distinct a.job_id, a.attempt from unnest(p_ids, p_attempts) a (job_id, attempt)) a
                  join fencepost.job_running r on r.job_id = a.job_id and r.attempt = a.attempt and r.owner = p_owner
                    and ((r.expires_at > v_now and r.cancel_requested_at is null) or fencepost._job_is_fenced(r.job_id, r.attempt))
                  order by r.job_id for key share of r skip locked);
  with asked as materialized (
    select a.*, coalesce(pg_column_size(a.result) > 65536, false) as is_large
    from unnest(p_ids, p_attempts, p_names, p_digests, p_results, p_undos) with ordinality
      a (job_id, attempt, name, digest, result, undo, place)
    where a.job_id = any (v_held) order by a.job_id, a.place
  ), written as (
    insert into fencepost.workflow_step (job_id, name, what, attempt, digest, result, is_large, undo, at)
    select a.job_id, a.name, 'step', a.attempt, a.digest, case when not a.is_large then a.result end, a.is_large, a.undo, v_now
    from asked a
    on conflict (job_id, name) do nothing
    returning job_id, name, is_large
  ), large as (
    insert into fencepost.workflow_result (job_id, name, result)
    select w.job_id, w.name, a.result from written w join asked a on a.job_id = w.job_id and a.name = w.name where w.is_large
  )
  select count(*) into v_written from written;
  if v_written = v_count then
    return query select a.job_id, a.name, null::text from unnest(p_ids, p_names) a (job_id, name);
    return;
  end if;
  for v in
    select a.job_id, a.attempt, a.name, a.digest, s.digest as known, s.attempt as known_attempt, a.job_id = any (v_held) as held
    from unnest(p_ids, p_attempts, p_names, p_digests) a (job_id, attempt, name, digest)
    left join fencepost.workflow_step s on s.job_id = a.job_id and s.name = a.name
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

-- The result of a step whose result lies in a row of its own.
create or replace function fencepost.step_result(p_id bigint, p_name text) returns jsonb
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$ select r.result from fencepost.workflow_result r where r.job_id = p_id and r.name = p_name $$;
