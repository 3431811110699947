-- The judge: problems are imported, programs are submitted, and each verdict is written once, under the job's fence.
--
-- Locks: the problem's current version before a new one; the job's running row (its fence), then its generation, then its
-- result, then finished jobs, then the webhooks that are told, then the head of the contest's feed.

-- The final status of a job by its verdict.
create or replace function fencepost._judge_final_status(p_verdict text) returns text
language sql immutable
as $$ select case p_verdict when 'TLE' then 'TIMEOUT' when 'MLE' then 'OOM' when 'SE' then 'SANDBOX_ERROR' else p_verdict end $$;

-- Pruning a job removes its end. For a submission without a verdict the end is kept, in the transaction that prunes. A
-- replay removes the row of the end too, and then the job waits.
create or replace function fencepost._judge_keep_ends() returns trigger
language plpgsql volatile
as $$
begin
  insert into fencepost.judge_ended as e (job_id, state, final_status, attempt, ended_at)
  select g.job_id, g.state, g.final_status, g.attempt, g.finished_at
  from gone g join fencepost.judge_submission s on s.job_id = g.job_id
  where g.state <> 'finished' and not exists (select 1 from fencepost.job_waiting w where w.job_id = g.job_id)
  on conflict (job_id) do update
    set state = excluded.state, final_status = excluded.final_status, attempt = excluded.attempt, ended_at = excluded.ended_at;
  delete from fencepost.judge_store_wait w using gone g where w.job_id = g.job_id;
  return null;
end $$;
create or replace trigger judge_keeps_ends after delete on fencepost.job_finished
  referencing old table as gone for each statement execute function fencepost._judge_keep_ends();

-- A job, or, when it is pruned, how it ended.
create or replace function fencepost._judge_job_seen(p_job_id bigint) returns jsonb
language sql stable
as $$
  select coalesce(nullif(fencepost._job_seen(p_job_id), '{}'),
                  (select jsonb_build_object('state', e.state, 'final_status', e.final_status, 'attempt', e.attempt,
                                             'finished_at', e.ended_at)
                   from fencepost.judge_ended e where e.job_id = p_job_id), '{}')
$$;

-- Import a problem: adds the next version, unless the newest one is the same. Returns the version. A lock on the table
-- serializes imports, as a row to lock may not exist yet: the read-only role cannot take it, as it could an advisory lock.
create or replace function fencepost.judge_problem_put(p_slug text, p_title text, p_spec jsonb) returns integer
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_newest fencepost.judge_problem;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('slug', p_slug, 64);
  perform fencepost._check_text('title', p_title, 800);
  perform fencepost._check_json('spec', p_spec, 16777216);
  lock table fencepost.judge_problem in share row exclusive mode;
  select * into v_newest from fencepost.judge_problem p where p.slug = p_slug order by p.version desc limit 1;
  if v_newest.spec = p_spec then
    return v_newest.version;
  end if;
  insert into fencepost.judge_problem (slug, version, title, spec, imported_at)
  values (p_slug, coalesce(v_newest.version, 0) + 1, p_title, p_spec, fencepost.clock());
  return coalesce(v_newest.version, 0) + 1;
end $$;

-- One problem, in its newest version; nothing when there is none. Served by the primary key.
create or replace function fencepost.judge_problem_get(p_slug text)
returns table (slug text, version integer, title text, spec jsonb)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select p.slug, p.version, p.title, p.spec from fencepost.judge_problem p where p.slug = p_slug
  order by p.version desc limit 1
$$;

-- The languages that judging a program of p_language takes: its own, and those of the problem's validators and grader, without
-- scripts, which need no compiler. Only its own when there is no such problem. Served by the primary key.
create or replace function fencepost.judge_languages(p_slug text, p_language text) returns text[]
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select array(
    select l from (
      select p_language as l
      union
      select program ->> 'language' from (
        select p.spec from fencepost.judge_problem p where p.slug = p_slug order by p.version desc limit 1) newest
      cross join lateral (
        values (jsonb_build_array(newest.spec -> 'validator', newest.spec -> 'grader', newest.spec -> 'static_validator')),
               (newest.spec -> 'more_validators')) v (programs)
      cross join lateral jsonb_array_elements(case when jsonb_typeof(v.programs) = 'array' then v.programs else '[]' end) program) found
    where l <> 'script' order by l)
$$;

-- The same for submissions. Served by primary keys.
create or replace function fencepost.judge_submission_languages(p_ids bigint[]) returns table (job_id bigint, languages text[])
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select s.job_id, fencepost.judge_languages(s.slug, s.language) from unnest(p_ids) i (job_id)
  join fencepost.judge_submission s on s.job_id = i.job_id
$$;

-- All problems, the newest version of each, by slug after p_after: a skip scan over the primary key.
create or replace function fencepost.judge_problem_list(p_after text, p_limit integer)
returns table (slug text, version integer, title text)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  with recursive walk (slug, version, title) as (
    (select p.slug, p.version, p.title from fencepost.judge_problem p where p.slug > coalesce(p_after, '')
     order by p.slug, p.version desc limit 1)
    union all
    select n.slug, n.version, n.title from walk w cross join lateral (
      select p.slug, p.version, p.title from fencepost.judge_problem p where p.slug > w.slug
      order by p.slug, p.version desc limit 1) n
  )
  select w.slug, w.version, w.title from walk w limit p_limit
$$;

-- Add the submission that belongs to a job, in the transaction that submitted the job: both or neither. It refers to the
-- newest version of the problem. Raises not_found when there is none, and refuses a language that the problem does not allow
-- and a program larger than it allows. Into a contest only within its time, and only by its contestants.
create or replace function fencepost.judge_submission_put(
  p_job_id bigint, p_slug text, p_language text, p_author text, p_sources jsonb, p_contest text
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_version   integer;
  v_languages jsonb;
  v_code_kb   bigint;
  v_bytes     bigint;
  v_now       timestamptz := fencepost.clock();
begin
  perform fencepost._check_token('job_id', p_job_id);
  perform fencepost._check_text('language', p_language, 32);
  perform fencepost._check_text('author', p_author, 200);
  perform fencepost._check_json('sources', p_sources, 2097152);
  select p.version, p.spec -> 'languages', (p.spec #>> '{bounds,code_kb}')::bigint into v_version, v_languages, v_code_kb
  from fencepost.judge_problem p where p.slug = p_slug order by p.version desc limit 1;
  if v_version is null then
    perform fencepost._refuse('not_found', 'problem', coalesce(p_slug, ''), '{}', '{}');
  end if;
  if jsonb_typeof(v_languages) is distinct from 'array' and p_language = 'answers' then
    raise exception '% is solved by programs; answers are not allowed.', p_slug
      using errcode = 'ZF100', detail = '{"field": "language"}';
  end if;
  if jsonb_typeof(v_languages) = 'array' and not v_languages ? p_language then
    raise exception '% is solved in %; % is not allowed.', p_slug,
      (select string_agg(l, ', ' order by l) from jsonb_array_elements_text(v_languages) l), p_language
      using errcode = 'ZF100', detail = '{"field": "language"}';
  end if;
  select sum(octet_length(s.value)) into v_bytes from jsonb_each_text(p_sources) s;
  if v_bytes > v_code_kb * 1024 then
    raise exception 'The program has % bytes; % allows %.', v_bytes, p_slug, v_code_kb * 1024
      using errcode = 'ZF100', detail = '{"field": "code"}';
  end if;
  if p_contest is not null then
    perform fencepost._judge_contest_check(p_contest, p_slug, p_author, v_now);
  end if;
  insert into fencepost.judge_submission (job_id, slug, version, language, author, sources, submitted_at, contest)
  values (p_job_id, p_slug, v_version, p_language, p_author, p_sources, v_now, p_contest);
  perform fencepost._judge_feed_add(p_contest, '{submissions}', array[p_job_id::text]);
end $$;

-- What a worker judges: the program, and the problem in the version that it was submitted to or is rejudged with. Nothing
-- when its generation was settled meanwhile. Served by the primary key, and by judge_rejudged_job_key.
create or replace function fencepost.judge_case(p_job_id bigint)
returns table (language text, sources jsonb, spec jsonb)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select s.language, s.sources, p.spec from fencepost.judge_submission s
  join fencepost.judge_problem p on p.slug = s.slug and p.version = s.version
  where s.job_id = p_job_id
  union all
  select s.language, s.sources, p.spec from fencepost.judge_rejudged d
  join fencepost.judge_rejudging g on g.generation = d.generation and g.state = 'judging'
  join fencepost.judge_submission s on s.job_id = d.submission_id
  join fencepost.judge_problem p on p.slug = s.slug and p.version = d.version
  where d.job_id = p_job_id
$$;

-- When the holder of a job took it. Served by the primary key.
create or replace function fencepost._judge_started_at(p_job_id bigint) returns timestamptz
language sql stable
as $$ select r.claimed_at from fencepost.job_running r where r.job_id = p_job_id $$;

-- Write the verdict under the job's fence: refused unless the caller holds this attempt now. The fence is checked again
-- here, so that no caller can omit it; the primary key of the table admits one verdict in any case. Commits with the job's
-- finish.
--
-- Returns whether the verdict was kept. It is not kept when a later generation was applied before it arrived, or when its
-- own generation was settled without it: then the job ends all the same, and a refusal is recorded.
create or replace function fencepost.judge_result_put(
  p_job_id bigint, p_attempt bigint, p_owner text, p_verdict text, p_score double precision, p_time_ms bigint,
  p_mem_kb bigint, p_message text, p_cases jsonb, p_points jsonb
) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz;
begin
  perform fencepost.job_fence(p_job_id, p_attempt, p_owner);
  perform fencepost._check_json('cases', p_cases, 8388608);
  perform fencepost._check_json('points', p_points, 1048576);
  delete from fencepost.judge_store_wait w where w.job_id = p_job_id;
  perform fencepost._judge_did_well(p_owner) where p_verdict <> 'SE';
  if exists (select 1 from fencepost.judge_rejudged d where d.job_id = p_job_id) then
    return fencepost._judge_rejudged_put(p_job_id, p_attempt, p_owner, p_verdict, p_score, p_time_ms, p_mem_kb, p_message,
                                         p_cases, p_points);
  end if;
  v_now := fencepost.clock();
  insert into fencepost.judge_result (job_id, attempt, verdict, score, time_ms, mem_kb, message, cases, points, version, judged_at,
                                      started_at)
  select s.job_id, p_attempt, p_verdict, p_score, p_time_ms, p_mem_kb, left(p_message, 20000), p_cases, p_points, s.version, v_now,
         fencepost._judge_started_at(p_job_id)
  from fencepost.judge_submission s where s.job_id = p_job_id
  on conflict (job_id) do nothing;
  if found then
    perform fencepost._judge_tell(array[p_job_id]);
    perform fencepost._judge_feed_results(array[p_job_id], '{null}', '{null}');
    return true;
  end if;
  perform fencepost._refusal_note('stale_attempt', 'judge_result', p_job_id::text, p_owner,
    jsonb_build_object('generation', 0, 'verdict', p_verdict),
    (select jsonb_build_object('generation', r.generation, 'verdict', r.verdict) from fencepost.judge_result r
     where r.job_id = p_job_id));
  return false;
end $$;

-- The standing result for the submission of a job whose own result was not kept; nothing for a job of a generation. Holds a
-- shared lock on the result's row until the end of the transaction, so that a generation applied meanwhile finds the job
-- finished.
create or replace function fencepost.judge_standing(p_job_id bigint)
returns table (verdict text, score double precision, time_ms bigint, mem_kb bigint)
language sql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$ select r.verdict, r.score, r.time_ms, r.mem_kb from fencepost.judge_result r where r.job_id = p_job_id for share $$;

-- Record that the holder of a job cannot reach its test data. Returns for how long that has been so for this job.
create or replace function fencepost.judge_store_away(p_job_id bigint, p_attempt bigint, p_owner text) returns interval
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now   timestamptz;
  v_since timestamptz;
begin
  perform fencepost.job_fence(p_job_id, p_attempt, p_owner);
  v_now := fencepost.clock();
  insert into fencepost.judge_store_wait (job_id, since) values (p_job_id, v_now)
  on conflict on constraint judge_store_wait_pkey do nothing;
  select w.since into strict v_since from fencepost.judge_store_wait w where w.job_id = p_job_id;
  return v_now - v_since;
end $$;

-- What contestants see of the figures of secret tests: the strictest setting of the submission's own contest and of the
-- contests that have its problem and are not over. Otherwise a program submitted outside the contest would reveal what the
-- contest withholds.
create or replace function fencepost._judge_figures(p_slug text, p_contest text, p_now timestamptz) returns text
language sql stable
as $$
  select coalesce((
    select c.secret_figures
    from fencepost.judge_contest c
    where c.slug = p_contest
       or (fencepost._judge_contest_over_at(c) > p_now
           and c.slug in (select p.contest from fencepost.judge_contest_problem p where p.slug = p_slug))
    order by array_position(array['withheld', 'rounded', 'shown', 'open'], c.secret_figures) limit 1), 'shown')
$$;

-- What its author is told of a submission's verdict: all of it, its points, or nothing. The strictest setting of the contests that
-- have its problem, have begun and are not over, for the same reason as the figures; all of it when its team has played a token.
create or replace function fencepost._judge_feedback(p_job_id bigint, p_slug text, p_now timestamptz) returns text
language sql stable
as $$
  select case when exists (select 1 from fencepost.judge_token_played t where t.job_id = p_job_id) then 'full' else coalesce((
    select c.feedback
    from fencepost.judge_contest c
    where c.starts_at <= p_now and fencepost._judge_contest_over_at(c) > p_now
      and c.slug in (select p.contest from fencepost.judge_contest_problem p where p.slug = p_slug)
    order by array_position(array['none', 'points', 'full'], c.feedback) limit 1), 'full') end
$$;

-- Tell the webhooks of the standing results of submissions: verdict.given, or verdict.changed for those of a generation that was
-- applied. Once for each, in the transaction that makes it stand. docs/reference/judge.md#webhooks describes the messages. Before the
-- lock of the feed's head, which is the last.
create or replace function fencepost._judge_tell(p_job_ids bigint[]) returns void
language plpgsql volatile
as $$
declare
  v record;
begin
  if not fencepost._webhook_is_heard('judge') then
    return;
  end if;
  for v in
    select s.job_id, s.slug, s.contest, s.author, s.language, s.submitted_at, r.generation, r.version, r.verdict, r.score, r.time_ms,
           r.mem_kb, r.judged_at,
           'verdict-' || s.job_id || '-' || r.generation as id
    from unnest(p_job_ids) i (job_id) join fencepost.judge_submission s on s.job_id = i.job_id
    join fencepost.judge_result r on r.job_id = s.job_id order by s.job_id
  loop
    perform fencepost._webhook_publish('judge', 'submission:' || v.job_id, v.id, jsonb_build_object(
      'version', 1, 'id', v.id, 'event', case when v.generation = 0 then 'verdict.given' else 'verdict.changed' end, 'at', v.judged_at,
      'submission', jsonb_build_object(
        'job_id', v.job_id, 'problem_id', v.slug, 'problem_version', v.version, 'contest', v.contest, 'author', v.author,
        'language', v.language, 'submitted_at', v.submitted_at, 'generation', v.generation, 'verdict', v.verdict,
        'final_status', fencepost._judge_final_status(v.verdict), 'score', v.score, 'time_ms', v.time_ms, 'mem_kb', v.mem_kb)), null);
  end loop;
end $$;

-- The state of a submission: the job's state, its progress, and the result when there is one. Served by primary keys.
create or replace function fencepost.judge_status(p_job_id bigint)
returns table (job_id bigint, slug text, version integer, language text, author text, submitted_at timestamptz,
               job jsonb, progress jsonb, result jsonb, figures text, feedback text, contest text)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select s.job_id, s.slug, s.version, s.language, s.author, s.submitted_at, fencepost._judge_job_seen(s.job_id),
         (select r.progress from fencepost.job_running r where r.job_id = s.job_id),
         (select jsonb_build_object('attempt', r.attempt, 'verdict', r.verdict, 'score', r.score, 'time_ms', r.time_ms,
                                    'mem_kb', r.mem_kb, 'message', r.message, 'cases', r.cases, 'judged_at', r.judged_at,
                                    'generation', r.generation, 'version', r.version, 'points', r.points)
          from fencepost.judge_result r where r.job_id = s.job_id),
         fencepost._judge_figures(s.slug, s.contest, fencepost.clock()), fencepost._judge_feedback(s.job_id, s.slug, fencepost.clock()),
         s.contest
  from fencepost.judge_submission s where s.job_id = p_job_id
$$;

-- The submissions of one author, newest first, before p_before. Served by judge_submission_by_author.
create or replace function fencepost.judge_history(p_author text, p_before bigint, p_limit integer)
returns table (job_id bigint, slug text, language text, submitted_at timestamptz, verdict text, score double precision,
               time_ms bigint, mem_kb bigint, status text, figures text, feedback text, contest text)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select s.job_id, s.slug, s.language, s.submitted_at, r.verdict, r.score, r.time_ms, r.mem_kb,
         case when r.job_id is null then upper(fencepost._judge_job_seen(s.job_id) ->> 'state') else 'FINISHED' end,
         fencepost._judge_figures(s.slug, s.contest, fencepost.clock()), fencepost._judge_feedback(s.job_id, s.slug, fencepost.clock()),
         s.contest
  from (select * from fencepost.judge_submission b
        where b.author = p_author and b.job_id < coalesce(p_before, 9223372036854775807)
        order by b.author desc, b.job_id desc limit p_limit) s
  left join fencepost.judge_result r on r.job_id = s.job_id
  order by s.job_id desc
$$;
