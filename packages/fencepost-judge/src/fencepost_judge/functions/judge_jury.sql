-- The work of a jury beside judging: verdicts that it verifies, notes, balloons, and what it keeps of a contest.

-- The submissions of a contest whose standing verdict no jury has verified. Served by judge_submission_by_contest.
create or replace function fencepost._judge_unverified(p_contest text) returns table (job_id bigint)
language sql stable
as $$
  select s.job_id from fencepost.judge_submission s join fencepost.judge_result r on r.job_id = s.job_id
  where s.contest = p_contest and s.contest is not null
    and not exists (select 1 from fencepost.judge_verified v where v.job_id = r.job_id and v.generation = r.generation)
  order by s.contest, s.job_id
$$;

-- The same with what a jury looks at, after p_after; and how many there are.
create or replace function fencepost.judge_verify_queue(p_contest text, p_after bigint, p_limit integer)
returns table (job_id bigint, team text, author text, slug text, language text, submitted_at timestamptz, verdict text,
               score double precision, generation bigint, earlier bigint, notes bigint, waiting bigint)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  perform fencepost._check_limit(p_limit);
  return query
  select s.job_id, n.team, s.author, s.slug, s.language, s.submitted_at, r.verdict, r.score, r.generation,
         (select count(*) from fencepost.judge_submission b
          where b.contest = s.contest and b.slug = s.slug and b.author = s.author and b.job_id < s.job_id),
         (select count(*) from fencepost.judge_note o where o.job_id = s.job_id), u.waiting
  from (select q.job_id, count(*) over () as waiting from fencepost._judge_unverified(p_contest) q) u
  join fencepost.judge_submission s on s.job_id = u.job_id
  join fencepost.judge_contestant n on n.contest = s.contest and n.name = s.author
  join fencepost.judge_result r on r.job_id = s.job_id
  where s.job_id > coalesce(p_after, 0) order by s.job_id limit p_limit;
end $$;

-- Verify a verdict. Refused when another one stands by now than the jury has seen. Returns who verified it: the actor, or the one
-- that did before.
create or replace function fencepost.judge_verify(p_job_id bigint, p_generation bigint, p_verdict text, p_actor text) returns text
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_result fencepost.judge_result;
  v_by     text;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('actor', p_actor, 256);
  -- Locked: a generation that is applied meanwhile is applied before this or after it.
  select * into v_result from fencepost.judge_result r where r.job_id = p_job_id for update;
  if not found then
    perform fencepost._refuse('not_found', 'judge_result', coalesce(p_job_id::text, 'null'), '{}', null);
  end if;
  if (v_result.generation, v_result.verdict) is distinct from (p_generation, p_verdict) then
    perform fencepost._refuse('stale_attempt', 'judge_result', p_job_id::text,
      jsonb_build_object('generation', p_generation, 'verdict', p_verdict),
      jsonb_build_object('generation', v_result.generation, 'verdict', v_result.verdict));
  end if;
  select v.verified_by into v_by from fencepost.judge_verified v where v.job_id = p_job_id and v.generation = p_generation;
  if v_by is not null then
    return v_by;
  end if;
  insert into fencepost.judge_verified as v (job_id, generation, verified_at, verified_by)
  values (p_job_id, p_generation, fencepost.clock(), p_actor)
  on conflict on constraint judge_verified_pkey do update
    set generation = excluded.generation, verified_at = excluded.verified_at, verified_by = excluded.verified_by;
  perform fencepost._event(fencepost.clock(), 'judge_result', p_job_id::text, 'verified', p_actor, null,
    jsonb_build_object('generation', p_generation, 'verdict', p_verdict));
  return p_actor;
end $$;

-- The notes about a submission, oldest first. Served by the primary key.
create or replace function fencepost._judge_notes(p_job_id bigint) returns jsonb
language sql stable
as $$
  select coalesce(jsonb_agg(jsonb_build_object('author', n.author, 'text', n.text, 'made_at', n.made_at) order by n.note_id), '[]')
  from fencepost.judge_note n where n.job_id = p_job_id
$$;

-- What juries know of a submission: who verified which generation, its notes, and every judging of it. Served by primary keys.
create or replace function fencepost.judge_dossier(p_job_id bigint) returns table (verified jsonb, notes jsonb, judgings jsonb)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select
    (select jsonb_build_object('generation', v.generation, 'at', v.verified_at, 'by', v.verified_by)
     from fencepost.judge_verified v where v.job_id = p_job_id),
    fencepost._judge_notes(p_job_id),
    coalesce((select jsonb_agg(jsonb_build_object('generation', j.generation, 'verdict', j.verdict, 'score', j.score, 'cases', j.cases,
                                                  'version', j.version, 'judged_at', j.judged_at, 'state', j.state) order by j.generation)
              from (
                select r.generation, r.verdict, r.score, r.cases, r.version, r.judged_at, 'stands' as state
                from fencepost.judge_result r where r.job_id = p_job_id
                union all
                select d.generation, d.verdict, d.score, d.cases, d.version, d.judged_at, g.state
                from fencepost.judge_rejudging g join fencepost.judge_rejudged d on d.generation = g.generation
                where d.submission_id = p_job_id and d.judged_at is not null
                  and d.generation <> (select r.generation from fencepost.judge_result r where r.job_id = p_job_id)) j), '[]')
$$;

-- Write a note about a submission.
create or replace function fencepost.judge_note_add(p_job_id bigint, p_text text, p_actor text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._check_text('text', p_text, 4000);
  perform fencepost._check_text('actor', p_actor, 256);
  if not exists (select 1 from fencepost.judge_submission s where s.job_id = p_job_id) then
    perform fencepost._refuse('not_found', 'submission', coalesce(p_job_id::text, 'null'), '{}', null);
  end if;
  insert into fencepost.judge_note (job_id, author, text, made_at) values (p_job_id, p_actor, p_text, fencepost.clock());
end $$;

-- Which balloons were delivered.
create or replace function fencepost.judge_balloons(p_contest text) returns table (team text, slug text, delivered_at timestamptz, delivered_by text)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select b.team, b.slug, b.delivered_at, b.delivered_by from fencepost.judge_balloon b where b.contest = p_contest
$$;

-- Record that a balloon was delivered, or that it was not. Two that deliver it at once: one of them is recorded. Returns the user.
create or replace function fencepost.judge_balloon_put(p_contest text, p_team text, p_slug text, p_is_delivered boolean, p_actor text)
returns text
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_by text;
begin
  perform fencepost._check_text('actor', p_actor, 256);
  perform fencepost._judge_contest_enter(p_contest);
  if not exists (select 1 from fencepost.judge_team t where t.contest = p_contest and t.id = p_team)
     or not exists (select 1 from fencepost.judge_contest_problem p where p.contest = p_contest and p.slug = p_slug) then
    perform fencepost._refuse('not_found', 'balloon', coalesce(p_team || ' ' || p_slug, 'null'), jsonb_build_object('contest', p_contest), null);
  end if;
  if p_is_delivered then
    insert into fencepost.judge_balloon (contest, team, slug, delivered_at, delivered_by)
    values (p_contest, p_team, p_slug, fencepost.clock(), p_actor) on conflict on constraint judge_balloon_pkey do nothing;
  else
    delete from fencepost.judge_balloon b where b.contest = p_contest and b.team = p_team and b.slug = p_slug;
  end if;
  if found then
    perform fencepost._event(fencepost.clock(), 'judge_contest', p_contest,
      case when p_is_delivered then 'balloon_delivered' else 'balloon_taken_back' end, p_actor, null,
      jsonb_build_object('team', p_team, 'problem', p_slug));
  end if;
  select b.delivered_by into v_by from fencepost.judge_balloon b where b.contest = p_contest and b.team = p_team and b.slug = p_slug;
  return v_by;
end $$;

-- The submissions of a contest with their sources and standing results, for an archive, after p_after.
create or replace function fencepost.judge_contest_archive(p_contest text, p_after bigint, p_limit integer)
returns table (job_id bigint, team text, author text, slug text, language text, submitted_at timestamptz, sources jsonb, generation bigint,
               verdict text, score double precision, time_ms bigint, mem_kb bigint, message text, cases jsonb, points jsonb,
               judged_at timestamptz, verified_by text, notes jsonb)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  perform fencepost._check_limit(p_limit);
  return query
  select s.job_id, n.team, s.author, s.slug, s.language, s.submitted_at, s.sources, r.generation, r.verdict, r.score, r.time_ms, r.mem_kb,
         r.message, r.cases, r.points, r.judged_at,
         (select v.verified_by from fencepost.judge_verified v where v.job_id = s.job_id and v.generation = r.generation),
         fencepost._judge_notes(s.job_id)
  from fencepost.judge_submission s
  join fencepost.judge_contestant n on n.contest = s.contest and n.name = s.author
  left join fencepost.judge_result r on r.job_id = s.job_id
  where s.contest = p_contest and s.contest is not null and s.job_id > coalesce(p_after, 0)
  order by s.contest, s.job_id limit p_limit;
end $$;

-- What was decided about a contest, newest first. Served by the index of events by subject.
create or replace function fencepost.judge_contest_decisions(p_contest text, p_limit integer)
returns table (at timestamptz, decision text, actor text, detail jsonb)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select e.at, e.event, e.actor, e.detail from fencepost.event e
  where e.noun = 'judge_contest' and e.subject = p_contest order by e.event_id desc limit p_limit
$$;

-- How often problems were tried and solved, by how many users. Only of submissions that no running contest has to do with, and of
-- problems that none has. Served by judge_submission_by_problem.
create or replace function fencepost.judge_problem_statistics(p_slugs text[])
returns table (slug text, submissions bigint, tried bigint, solved bigint)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := fencepost.clock();
begin
  return query
  select i.slug, c.submissions, c.tried, c.solved from unnest(p_slugs) i (slug)
  cross join lateral (
    select count(*), count(distinct s.author), count(distinct s.author) filter (where r.verdict = 'AC')
    from fencepost.judge_submission s join fencepost.judge_result r on r.job_id = s.job_id where s.slug = i.slug) c (submissions, tried, solved)
  where not exists (
    select 1 from fencepost.judge_contest_problem p join fencepost.judge_contest k on k.slug = p.contest
    where p.slug = i.slug and (fencepost._judge_contest_over_at(k) > v_now or (k.freeze_at is not null and k.unfrozen_at is null)));
end $$;

-- What a user has reached at problems, as far as it is told: solved, tried, or nothing. Served by judge_submission_by_author.
create or replace function fencepost.judge_own_marks(p_author text, p_slugs text[]) returns table (slug text, mark text)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := fencepost.clock();
begin
  return query
  select s.slug, case when bool_or(r.verdict = 'AC' and fencepost._judge_feedback(s.job_id, s.slug, v_now) <> 'none') then 'solved' else 'tried' end
  from fencepost.judge_submission s left join fencepost.judge_result r on r.job_id = s.job_id
  where s.author = p_author and s.slug = any (p_slugs) group by s.slug;
end $$;

-- The users that solved problems of a contest after its end, outside of it.
create or replace function fencepost.judge_contest_upsolved(p_contest text) returns table (author text, slug text, solved_at timestamptz)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select s.author, s.slug, min(s.submitted_at)
  from fencepost.judge_contest c join fencepost.judge_contest_problem p on p.contest = c.slug
  join fencepost.judge_submission s on s.slug = p.slug and s.contest is null and s.submitted_at >= fencepost._judge_contest_over_at(c)
  join fencepost.judge_result r on r.job_id = s.job_id and r.verdict = 'AC'
  where c.slug = p_contest group by s.author, s.slug order by s.author, s.slug
$$;
