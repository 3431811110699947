-- A refusal is an answer. Singular forms raise it: the caller's own writes do not commit either. Plural forms
-- answer for each row. Both count it; the count is a sequence and survives the rollback.

-- Count one refusal.
create or replace function fencepost._refusal_count(p_reason text) returns void
language plpgsql volatile
as $$
begin
  perform nextval(('fencepost.refused_' || p_reason)::regclass);
end $$;

-- Count a refusal and raise it with its reason and the row that was seen, as JSON in the DETAIL.
create or replace function fencepost._refuse(
  p_reason text, p_noun text, p_subject text, p_attempted jsonb, p_seen jsonb
) returns void
language plpgsql volatile
as $$
declare
  v_reason fencepost.refusal_reason;
begin
  select * into strict v_reason from fencepost.refusal_reason r where r.reason = p_reason;
  perform fencepost._refusal_count(p_reason);
  raise exception '% %: %. %', p_noun, p_subject, p_reason, v_reason.meaning
    using errcode = v_reason.sqlstate, hint = v_reason.remedy,
          detail = jsonb_build_object('reason', p_reason, 'noun', p_noun, 'subject', p_subject,
                                      'attempted', p_attempted, 'seen', coalesce(p_seen, '{}'));
end $$;

-- Count a refusal and record it, without raising: for plural forms and for answers.
create or replace function fencepost._refusal_note(
  p_reason text, p_noun text, p_subject text, p_actor text, p_attempted jsonb, p_seen jsonb
) returns void
language plpgsql volatile
as $$
begin
  perform fencepost._refusal_count(p_reason);
  insert into fencepost.refusal (at, reason, noun, subject, actor, attempted, seen)
  values (fencepost.clock(), p_reason, p_noun, p_subject, p_actor, p_attempted, coalesce(p_seen, '{}'));
end $$;

-- Record a refusal that was raised: the raise rolled back everything that its own transaction could have
-- written, so the client writes it afterwards, on its own connection. It counts nothing.
create or replace function fencepost.refusal_record(
  p_reason text, p_noun text, p_subject text, p_actor text, p_attempted jsonb, p_seen jsonb
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._check_text('noun', p_noun, 64);
  perform fencepost._check_text('subject', p_subject, 1200);
  perform fencepost._check_json('attempted', p_attempted, 16384);
  perform fencepost._check_json('seen', p_seen, 65536);
  if not exists (select 1 from fencepost.refusal_reason r where r.reason = p_reason) then
    raise exception 'reason % is not known.', quote_nullable(p_reason)
      using errcode = 'ZF100', detail = '{"field": "reason"}';
  end if;
  insert into fencepost.refusal (at, reason, noun, subject, actor, attempted, seen)
  values (fencepost.clock(), p_reason, p_noun, p_subject, p_actor, coalesce(p_attempted, '{}'), coalesce(p_seen, '{}'));
end $$;

-- What a recorded refusal tells an operator. `late`: a writer that carried a token, and had lost what the token was for. `routine`: what
-- a healthy system has too, as a claim of a job that is done, an acquisition of what another holds, a job that was told to stop.
-- `conflict`: callers that contradict one another, or themselves.
create or replace function fencepost.refusal_kind(p_reason text, p_attempted jsonb) returns text
language sql stable parallel safe
as $$
  select case
    when p_attempted ?| array['attempt', 'token', 'take']
         and p_reason in ('stale_attempt', 'lease_expired', 'not_owner', 'already_finished', 'not_running', 'not_found') then 'late'
    when p_reason = 'cancelled' or p_attempted ->> 'op' in ('claim', 'acquire', 'reclaim', 'evict') then 'routine'
    else 'conflict'
  end
$$;

-- How often each reason was given since the schema was created. A definer function, because the application
-- role may not read or set a sequence's value.
create or replace function fencepost.refusal_counts() returns table (reason text, refused bigint)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select r.reason, coalesce(pg_sequence_last_value(('fencepost.refused_' || r.reason)::regclass), 0)
  from fencepost.refusal_reason r
$$;

-- Record one rare transition.
create or replace function fencepost._event(
  p_at timestamptz, p_noun text, p_subject text, p_event text, p_actor text, p_token bigint, p_detail jsonb
) returns void
language sql volatile
as $$
  insert into fencepost.event (at, noun, subject, event, actor, token, detail)
  values (p_at, p_noun, p_subject, p_event, p_actor, p_token, coalesce(p_detail, '{}'))
$$;

-- Which of these jobs are dead, as subjects of history. Locks them in order of id: a concurrent pruning of
-- such a job skips it, or has come before us, and then the job is not dead but gone.
create or replace function fencepost._history_dead(p_subjects text[]) returns text[]
language plpgsql volatile
as $$
begin
  return array(
    select f.job_id::text from fencepost.job_finished f
    -- A recorded refusal may have any subject.
    where f.job_id = any (array(select s::bigint from unnest(p_subjects) s where s ~ '^[1-9][0-9]{0,17}$')) and f.state = 'dead'
    order by f.job_id for share);
end $$;

-- Delete events and recorded refusals older than p_keep, but not those of dead jobs, which stay with the job.
-- Reads at most p_limit of each, and returns how many it has processed: spared rows are not read again.
-- Served by the indexes over age.
create or replace function fencepost.history_prune(p_keep interval, p_limit integer) returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, fencepost, pg_temp set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
  v_before   timestamptz := fencepost._prune_before(p_keep, p_limit);
  v_rows     tid[];
  v_subjects text[];
  v_dead     text[];
  v_count    bigint := 0;
begin
  select coalesce(array_agg(o.place), '{}'), coalesce(array_agg(o.subject) filter (where o.noun = 'job'), '{}')
  into v_rows, v_subjects from (
    select e.ctid as place, e.noun, e.subject from fencepost.event e where e.at < v_before and not e.spared
    order by e.at limit p_limit for update skip locked) o;
  v_dead := fencepost._history_dead(v_subjects);
  delete from fencepost.event e where e.ctid = any (v_rows) and not (e.noun = 'job' and e.subject = any (v_dead));
  if v_dead <> '{}' then
    update fencepost.event e set spared = true where e.ctid = any (v_rows);
  end if;
  v_count := cardinality(v_rows);

  select coalesce(array_agg(o.place), '{}'), coalesce(array_agg(o.subject) filter (where o.noun = 'job'), '{}')
  into v_rows, v_subjects from (
    select r.ctid as place, r.noun, r.subject from fencepost.refusal r where r.at < v_before and not r.spared
    order by r.at limit p_limit for update skip locked) o;
  v_dead := fencepost._history_dead(v_subjects);
  delete from fencepost.refusal r where r.ctid = any (v_rows) and not (r.noun = 'job' and r.subject = any (v_dead));
  if v_dead <> '{}' then
    update fencepost.refusal r set spared = true where r.ctid = any (v_rows);
  end if;
  return v_count + cardinality(v_rows);
end $$;

-- Jobs were deleted: their history is no longer spared. Served by event_spared and refusal_spared, which are
-- small.
create or replace function fencepost._history_release(p_ids bigint[]) returns void
language plpgsql volatile
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
begin
  update fencepost.event e set spared = false where e.noun = 'job' and e.subject = any (p_ids::text[]) and e.spared;
  update fencepost.refusal r set spared = false where r.noun = 'job' and r.subject = any (p_ids::text[]) and r.spared;
end $$;
