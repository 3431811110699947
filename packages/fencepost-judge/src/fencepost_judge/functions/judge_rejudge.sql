-- Rejudging: a generation of jobs that judge submissions again, beside their standing results.
--
--   state    event  to       guard
--   judging  apply  applied  every submission has its result, and no standing one is of a later generation
--   judging  drop   dropped
--
-- A result of a generation is written to judge_rejudged and nowhere else; only applying moves it to judge_result, and there
-- the generation is the fence: it only grows. So a late result of an old generation, or of the submission's own judging,
-- replaces nothing, whichever comes first.
--
-- Locks: a job's fence, then the generation's row (results share it, settling takes it alone), then results in order of id, then
-- the finished jobs of the submissions, in order of id, then the heads of the contests' feeds, in order of name.

-- The selected submissions, in order of id. At least one of ids, problem and author is given; the rest narrows the
-- selection. Served by the primary key, judge_submission_by_problem or judge_submission_by_author.
create or replace function fencepost.judge_rejudge_find(
  p_ids bigint[], p_slug text, p_author text, p_language text, p_verdict text, p_limit integer
) returns table (job_id bigint)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  perform fencepost._check_limit(p_limit);
  if p_ids is null and p_slug is null and p_author is null then
    raise exception 'Name submissions, a problem or an author: a rejudging needs at least one of them.'
      using errcode = 'ZF100', detail = '{"field": "filter"}';
  end if;
  return query
  select f.job_id from (
    select s.* from fencepost.judge_submission s where p_ids is not null and s.job_id = any (p_ids)
    union all
    select s.* from fencepost.judge_submission s where p_ids is null and s.slug = p_slug
    union all
    select s.* from fencepost.judge_submission s where p_ids is null and p_slug is null and s.author = p_author) f
  left join fencepost.judge_result r on r.job_id = f.job_id
  where f.slug = coalesce(p_slug, f.slug) and f.author = coalesce(p_author, f.author)
    and f.language = coalesce(p_language, f.language) and (p_verdict is null or r.verdict = p_verdict)
  order by f.job_id limit p_limit;
end $$;

-- A new generation: each submission with the job that judges it again, with the newest version of its problem. In the
-- transaction that submitted the jobs.
create or replace function fencepost.judge_rejudge_open(
  p_submissions bigint[], p_job_ids bigint[], p_scope jsonb, p_reason text, p_actor text
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now        timestamptz := fencepost.clock();
  v_generation bigint;
begin
  perform fencepost._check_tokens('submissions', p_submissions);
  perform fencepost._check_tokens('job_ids', p_job_ids);
  perform fencepost._check_lengths('job_ids', cardinality(p_submissions), cardinality(p_job_ids));
  perform fencepost._check_json('scope', p_scope, 1048576);
  perform fencepost._check_text('reason', p_reason, 1000);
  perform fencepost._check_text('actor', p_actor, 256);
  insert into fencepost.judge_rejudging (scope, reason, made_at, made_by) values (p_scope, p_reason, v_now, p_actor)
  returning generation into v_generation;
  insert into fencepost.judge_rejudged (generation, submission_id, job_id, version)
  select v_generation, g.submission_id, g.job_id, n.version
  from unnest(p_submissions, p_job_ids) g (submission_id, job_id)
  join fencepost.judge_submission s on s.job_id = g.submission_id
  cross join lateral (select p.version from fencepost.judge_problem p where p.slug = s.slug order by p.version desc limit 1) n;
  perform fencepost._event(v_now, 'judge_rejudging', v_generation::text, 'opened', p_actor, v_generation,
                           jsonb_build_object('submissions', cardinality(p_submissions), 'reason', p_reason));
  return v_generation;
end $$;

-- Store the result of a generation's job; the caller holds the job's fence. Stored once, and only while the generation is
-- open.
create or replace function fencepost._judge_rejudged_put(
  p_job_id bigint, p_attempt bigint, p_owner text, p_verdict text, p_score double precision, p_time_ms bigint,
  p_mem_kb bigint, p_message text, p_cases jsonb, p_points jsonb
) returns boolean
language plpgsql volatile
as $$
declare
  v_generation bigint;
  v_state      text;
begin
  select d.generation into strict v_generation from fencepost.judge_rejudged d where d.job_id = p_job_id;
  select g.state into strict v_state from fencepost.judge_rejudging g where g.generation = v_generation for share;
  if v_state <> 'judging' then
    perform fencepost._refusal_note('already_finished', 'judge_rejudging', v_generation::text, p_owner,
      jsonb_build_object('job_id', p_job_id, 'verdict', p_verdict), jsonb_build_object('state', v_state));
    return false;
  end if;
  update fencepost.judge_rejudged d
  set attempt = p_attempt, verdict = p_verdict, score = p_score, time_ms = p_time_ms, mem_kb = p_mem_kb,
      message = left(p_message, 20000), cases = p_cases, points = p_points, judged_at = fencepost.clock(),
      started_at = fencepost._judge_started_at(p_job_id)
  where d.job_id = p_job_id and d.judged_at is null;
  return found;
end $$;

-- Lock a generation that is still open; raises not_found, or already_finished.
create or replace function fencepost._judge_rejudging_lock(p_generation bigint) returns void
language plpgsql volatile
as $$
declare
  v_seen fencepost.judge_rejudging;
begin
  perform fencepost._require_read_committed();
  select * into v_seen from fencepost.judge_rejudging g where g.generation = p_generation for update;
  if not found then
    perform fencepost._refuse('not_found', 'judge_rejudging', coalesce(p_generation::text, 'null'), '{}', null);
  end if;
  if v_seen.state <> 'judging' then
    perform fencepost._refuse('already_finished', 'judge_rejudging', p_generation::text, '{}',
      jsonb_build_object('state', v_seen.state, 'settled_by', v_seen.settled_by, 'settled_at', v_seen.settled_at));
  end if;
end $$;

-- Move a locked generation to its final state.
create or replace function fencepost._judge_rejudging_settle(p_generation bigint, p_state text, p_actor text, p_detail jsonb) returns void
language plpgsql volatile
as $$
declare
  v_now timestamptz := fencepost.clock();
begin
  update fencepost.judge_rejudging g set state = p_state, settled_at = v_now, settled_by = p_actor where g.generation = p_generation;
  perform fencepost._event(v_now, 'judge_rejudging', p_generation::text, p_state, p_actor, p_generation, p_detail);
end $$;

-- Make the results of a generation the standing ones. All of them or none: raises in_flight while one is missing,
-- stale_attempt when a result of a later generation stands. A failure of the judge (SE) replaces no verdict. Returns how
-- many results were replaced.
create or replace function fencepost.judge_rejudge_apply(p_generation bigint, p_actor text) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_missing bigint;
  v_later   jsonb;
  v_count   bigint;
begin
  perform fencepost._check_text('actor', p_actor, 256);
  perform fencepost._judge_rejudging_lock(p_generation);
  select count(*) into v_missing from fencepost.judge_rejudged d where d.generation = p_generation and d.judged_at is null;
  if v_missing > 0 then
    perform fencepost._refuse('in_flight', 'judge_rejudging', p_generation::text, '{}', jsonb_build_object('missing', v_missing));
  end if;
  -- In order, so that two generations cannot deadlock; and locked, so that the results read here are those that are
  -- replaced.
  perform from fencepost.judge_result r where r.job_id = any (array(
    select d.submission_id from fencepost.judge_rejudged d where d.generation = p_generation)) order by r.job_id for update;
  update fencepost.judge_rejudged d
  set before = (select jsonb_build_object('verdict', r.verdict, 'score', r.score, 'generation', r.generation,
                                            'runs', jsonb_array_length(r.cases))
                from fencepost.judge_result r where r.job_id = d.submission_id)
  where d.generation = p_generation;
  insert into fencepost.judge_result as r (job_id, attempt, verdict, score, time_ms, mem_kb, message, cases, points, version,
                                           generation, judged_at, started_at)
  select d.submission_id, d.attempt, d.verdict, d.score, d.time_ms, d.mem_kb, d.message, d.cases, d.points, d.version,
         d.generation, d.judged_at, d.started_at
  from fencepost.judge_rejudged d where d.generation = p_generation and d.verdict <> 'SE' order by d.submission_id
  -- The fence. Here and not before: a submission without a result had no row to lock, and may have got one meanwhile.
  on conflict (job_id) do update
    set attempt = excluded.attempt, verdict = excluded.verdict, score = excluded.score, time_ms = excluded.time_ms,
        mem_kb = excluded.mem_kb, message = excluded.message, cases = excluded.cases, points = excluded.points,
        version = excluded.version, generation = excluded.generation, judged_at = excluded.judged_at,
        started_at = excluded.started_at
    where r.generation < excluded.generation;
  get diagnostics v_count = row_count;
  select jsonb_build_object('submission', r.job_id, 'generation', r.generation) into v_later
  from fencepost.judge_rejudged d join fencepost.judge_result r on r.job_id = d.submission_id
  where d.generation = p_generation and r.generation > p_generation order by r.job_id limit 1;
  if v_later is not null then
    perform fencepost._refuse('stale_attempt', 'judge_rejudging', p_generation::text, '{}', v_later);
  end if;
  -- The submission's own job gets the standing result: the views have no other source.
  perform fencepost._job_restate(array_agg(r.job_id order by r.job_id),
      array_agg(fencepost._judge_final_status(r.verdict) order by r.job_id),
      array_agg(jsonb_build_object('verdict', r.verdict, 'score', r.score, 'time_ms', r.time_ms, 'mem_kb', r.mem_kb)
                order by r.job_id),
      'rejudged', p_actor, jsonb_build_object('generation', p_generation))
  from fencepost.judge_result r where r.generation = p_generation and r.job_id = any (array(
    select d.submission_id from fencepost.judge_rejudged d where d.generation = p_generation));
  perform fencepost._judge_rejudging_settle(p_generation, 'applied', p_actor, jsonb_build_object('replaced', v_count));
  perform fencepost._judge_tell(array(
    select r.job_id from fencepost.judge_rejudged d join fencepost.judge_result r on r.job_id = d.submission_id
    where d.generation = p_generation and r.generation = p_generation));
  perform fencepost._judge_feed_results(array_agg(d.submission_id), array_agg((d.before ->> 'generation')::bigint),
                                        array_agg((d.before ->> 'runs')::integer))
  from fencepost.judge_rejudged d where d.generation = p_generation and d.verdict <> 'SE';
  return v_count;
end $$;

-- Drop a generation: the standing results stay. Its jobs that still wait find nothing to do.
create or replace function fencepost.judge_rejudge_drop(p_generation bigint, p_actor text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._check_text('actor', p_actor, 256);
  perform fencepost._judge_rejudging_lock(p_generation);
  perform fencepost._judge_rejudging_settle(p_generation, 'dropped', p_actor, '{}');
end $$;

-- The generations, newest first, before p_before; or one.
create or replace function fencepost.judge_rejudgings(p_generation bigint, p_before bigint, p_limit integer)
returns table (generation bigint, state text, reason text, scope jsonb, made_at timestamptz, made_by text,
               settled_at timestamptz, settled_by text, submissions bigint, judged bigint)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  perform fencepost._check_limit(p_limit);
  return query
  select g.generation, g.state, g.reason, g.scope, g.made_at, g.made_by, g.settled_at, g.settled_by, c.submissions, c.judged
  from (select * from fencepost.judge_rejudging o
        where o.generation >= coalesce(p_generation, 0)
          and o.generation <= coalesce(p_generation, p_before - 1, 9223372036854775807)
        order by o.generation desc limit p_limit) g
  cross join lateral (select count(*), count(d.judged_at) from fencepost.judge_rejudged d
                      where d.generation = g.generation) c (submissions, judged)
  order by g.generation desc;
end $$;

-- What a generation changes, by submission after p_after: the standing result (or the former one, once it is applied), and
-- the new one. Missing verdicts are null.
create or replace function fencepost.judge_rejudge_changes(p_generation bigint, p_changed boolean, p_after bigint, p_limit integer)
returns table (submission_id bigint, slug text, author text, job_id bigint, verdict_before text, score_before double precision,
               verdict_after text, score_after double precision, judged boolean)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  perform fencepost._check_limit(p_limit);
  return query
  select d.submission_id, s.slug, s.author, d.job_id, b.verdict, b.score, d.verdict, d.score, d.judged_at is not null
  from fencepost.judge_rejudged d
  join fencepost.judge_rejudging g on g.generation = d.generation
  join fencepost.judge_submission s on s.job_id = d.submission_id
  left join fencepost.judge_result r on r.job_id = d.submission_id
  cross join lateral (
    select case g.state when 'applied' then d.before ->> 'verdict' else r.verdict end,
           case g.state when 'applied' then (d.before ->> 'score')::double precision else r.score end) b (verdict, score)
  where d.generation = p_generation and d.submission_id > coalesce(p_after, 0)
    and (not p_changed or (d.judged_at is not null and (d.verdict, d.score) is distinct from (b.verdict, b.score)))
  order by d.generation, d.submission_id limit p_limit;
end $$;

-- The contests of the submissions of a generation, in order of name: those whose standings it may change.
create or replace function fencepost.judge_rejudge_contests(p_generation bigint) returns table (slug text)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select distinct s.contest from fencepost.judge_rejudged d join fencepost.judge_submission s on s.job_id = d.submission_id
  where d.generation = p_generation and s.contest is not null order by 1
$$;

-- The submissions into a contest as judge_contest_entries returns them, with the results that stand after the generation is
-- applied: what it could not judge keeps its result. Served by judge_submission_by_contest and the generation's primary key.
create or replace function fencepost.judge_rejudge_entries(p_generation bigint, p_slug text)
returns table (team text, slug text, submitted_at timestamptz, verdict text, score double precision, points jsonb)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select n.team, s.slug, s.submitted_at,
         case when d.verdict <> 'SE' then d.verdict else r.verdict end, case when d.verdict <> 'SE' then d.score else r.score end,
         coalesce(case when d.verdict <> 'SE' then d.points else r.points end, '{}')
  from fencepost.judge_submission s join fencepost.judge_contestant n on n.contest = s.contest and n.name = s.author
  left join fencepost.judge_result r on r.job_id = s.job_id
  left join fencepost.judge_rejudged d on d.generation = p_generation and d.submission_id = s.job_id
  where s.contest = p_slug and s.contest is not null order by s.contest, s.job_id
$$;
