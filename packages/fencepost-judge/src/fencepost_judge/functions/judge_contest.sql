-- Contests. Only the database's clock at the moment of the submission's write decides.
--
-- Locks: a contest's row, shared by submissions and joins, exclusive for changes; the head of its feed last.

-- Create a contest, or change one; its problems are replaced by those given. Its submissions are kept in any case. What is null
-- of the parameters from the colors on stays as it is. Refused when an interval that was removed would lie outside of it.
create or replace function fencepost.judge_contest_put(
  p_slug text, p_title text, p_scoring text, p_starts_at timestamptz, p_freeze_at timestamptz, p_ends_at timestamptz,
  p_penalty_minutes integer, p_labels text[], p_problems text[], p_actor text, p_secret_figures text default 'rounded',
  p_colors text[] default null, p_rgbs text[] default null, p_is_public boolean default null, p_medals integer[] default null,
  p_feedback text default null, p_tokens integer default null, p_verifies boolean default null, p_categories text[] default null,
  p_answers text[] default null
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_missing text;
  v_known   fencepost.judge_contest_problem[];
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('contest', p_slug, 64);
  perform fencepost._check_text('title', p_title, 800);
  perform fencepost._check_word('scoring', p_scoring, array['icpc', 'ioi']);
  perform fencepost._check_word('secret_figures', p_secret_figures, array['shown', 'rounded', 'withheld', 'open']);
  perform fencepost._check_moment('starts_at', p_starts_at);
  perform fencepost._check_moment('freeze_at', p_freeze_at);
  perform fencepost._check_moment('ends_at', p_ends_at);
  perform fencepost._check_lengths('problems', cardinality(p_labels), cardinality(p_problems));
  perform fencepost._check_text('actor', p_actor, 256);
  select s into v_missing from unnest(p_problems) s
  where not exists (select 1 from fencepost.judge_problem p where p.slug = s) order by s limit 1;
  if v_missing is not null then
    perform fencepost._refuse('not_found', 'problem', v_missing, '{}', null);
  end if;
  if exists (select 1 from fencepost.judge_interval i
             where i.contest = p_slug and (i.from_at < p_starts_at or (i.team is null and i.until_at > p_ends_at))) then
    perform fencepost._judge_contest_refuse(p_slug, 'an interval that was removed would be outside of it');
  end if;
  insert into fencepost.judge_contest as c (slug, title, scoring, starts_at, freeze_at, ends_at, penalty_minutes, secret_figures,
                                            is_public, medals, feedback, tokens, verifies, categories, answers)
  values (p_slug, p_title, p_scoring, p_starts_at, p_freeze_at, p_ends_at, p_penalty_minutes, p_secret_figures,
          coalesce(p_is_public, false), coalesce(p_medals, '{4,4,4}'), coalesce(p_feedback, 'full'), coalesce(p_tokens, 0),
          coalesce(p_verifies, false), coalesce(p_categories, '{}'), coalesce(p_answers, '{}'))
  on conflict (slug) do update
    set title = excluded.title, scoring = excluded.scoring, starts_at = excluded.starts_at, freeze_at = excluded.freeze_at,
        ends_at = excluded.ends_at, penalty_minutes = excluded.penalty_minutes, secret_figures = excluded.secret_figures,
        is_public = coalesce(p_is_public, c.is_public), medals = coalesce(p_medals, c.medals),
        feedback = coalesce(p_feedback, c.feedback), tokens = coalesce(p_tokens, c.tokens), verifies = coalesce(p_verifies, c.verifies),
        categories = coalesce(p_categories, c.categories), answers = coalesce(p_answers, c.answers);
  insert into fencepost.judge_feed_head (contest, seq, told_at) values (p_slug, 0, fencepost.clock())
  on conflict on constraint judge_feed_head_pkey do nothing;
  v_known := array(select p from fencepost.judge_contest_problem p where p.contest = p_slug order by p.label);
  delete from fencepost.judge_contest_problem p where p.contest = p_slug;
  insert into fencepost.judge_contest_problem (contest, label, slug, color, rgb)
  select p_slug, n.label, n.slug, coalesce(p_colors[n.place], k.color), coalesce(p_rgbs[n.place], k.rgb)
  from unnest(p_labels, p_problems) with ordinality n (label, slug, place) left join unnest(v_known) k on k.slug = n.slug;
  perform fencepost._event(fencepost.clock(), 'judge_contest', p_slug, 'set', p_actor, null,
    jsonb_build_object('starts_at', p_starts_at, 'freeze_at', p_freeze_at, 'ends_at', p_ends_at, 'problems', p_problems));
  perform fencepost._judge_feed_add(p_slug, array_agg(n.type order by n.place), array_agg(n.id order by n.place)) from (
    values (0, 'contest', null), (1, 'state', null)
    union all
    select 2, 'problems', k.slug from unnest(v_known) k where k.slug <> all (p_problems)
    union all
    select 3, 'problems', s from unnest(p_problems) s) n (place, type, id);
end $$;

-- Contests after p_after by name, or one; each with its problems, and whether it has begun and is over by now.
create or replace function fencepost.judge_contests(p_slug text, p_after text, p_limit integer)
returns table (slug text, title text, scoring text, starts_at timestamptz, freeze_at timestamptz, ends_at timestamptz,
               unfrozen_at timestamptz, penalty_minutes integer, problems jsonb, seen_at timestamptz, secret_figures text,
               is_public boolean, medals integer[], finalized_at timestamptz, revealed jsonb, intervals jsonb, feedback text,
               tokens integer, verifies boolean, categories text[], answers text[])
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := fencepost.clock();
begin
  perform fencepost._check_limit(p_limit);
  return query
  select c.slug, c.title, c.scoring, c.starts_at, c.freeze_at, c.ends_at, c.unfrozen_at, c.penalty_minutes,
         coalesce((select jsonb_agg(jsonb_build_object('label', p.label, 'slug', p.slug, 'color', p.color, 'rgb', p.rgb) order by p.label)
                   from fencepost.judge_contest_problem p where p.contest = c.slug), '[]'), v_now, c.secret_figures,
         c.is_public, c.medals, c.finalized_at,
         coalesce((select jsonb_agg(jsonb_build_array(d.team, d.slug)) from fencepost.judge_revealed d where d.contest = c.slug), '[]'),
         coalesce((select jsonb_agg(jsonb_build_object('id', i.id, 'team', i.team, 'from_at', i.from_at, 'until_at', i.until_at,
                                                       'reason', i.reason) order by i.id)
                   from fencepost.judge_interval i where i.contest = c.slug), '[]'),
         c.feedback, c.tokens, c.verifies, c.categories, c.answers
  from fencepost.judge_contest c
  where c.slug >= coalesce(p_slug, '') and c.slug > coalesce(p_after, '') and (p_slug is null or c.slug = p_slug)
  order by c.slug limit p_limit;
end $$;

-- Lock a contest for an action in it; raises not_found.
create or replace function fencepost._judge_contest_enter(p_slug text) returns fencepost.judge_contest
language plpgsql volatile
as $$
declare
  v_contest fencepost.judge_contest;
begin
  select * into v_contest from fencepost.judge_contest c where c.slug = p_slug for share;
  if not found then
    perform fencepost._refuse('not_found', 'contest', coalesce(p_slug, 'null'), '{}', null);
  end if;
  return v_contest;
end $$;

-- Refuse an action with the reason.
create or replace function fencepost._judge_contest_refuse(p_slug text, p_why text) returns void
language plpgsql immutable
as $$
begin
  raise exception 'contest %: %.', p_slug, p_why using errcode = 'ZF100', detail = '{"field": "contest"}';
end $$;

-- Join a contest that is not over, as a team of one. Joining again changes nothing.
create or replace function fencepost.judge_contest_join(p_slug text, p_name text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_contest fencepost.judge_contest := fencepost._judge_contest_enter(p_slug);
  v_now     timestamptz := fencepost.clock();
  v_team    text := case when p_name ~ '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,35}$' and p_name !~ '\.$' then p_name else 'u' || md5(p_name) end;
begin
  perform fencepost._check_text('name', p_name, 200);
  if v_now >= v_contest.ends_at then
    perform fencepost._judge_contest_refuse(p_slug, 'it is over');
  end if;
  if exists (select 1 from fencepost.judge_contestant n where n.contest = p_slug and n.name = p_name) then
    return;
  end if;
  insert into fencepost.judge_team (contest, id, name, label) values (p_slug, v_team, p_name, p_name)
  on conflict on constraint judge_team_pkey do nothing;
  if not found and exists (select 1 from fencepost.judge_contestant n where n.contest = p_slug and n.team = v_team) then
    perform fencepost._judge_contest_refuse(p_slug, format('%s is a team of others', v_team));
  end if;
  insert into fencepost.judge_contestant (contest, name, joined_at, team) values (p_slug, p_name, v_now, v_team)
  on conflict (contest, name) do nothing;
  perform fencepost._judge_feed_add(p_slug, '{teams}', array[v_team]);
end $$;

-- Whether a user is a contestant. Served by the primary key.
create or replace function fencepost._judge_contest_check_contestant(p_slug text, p_name text) returns void
language plpgsql stable
as $$
begin
  if not exists (select 1 from fencepost.judge_contestant n where n.contest = p_slug and n.name = p_name) then
    perform fencepost._judge_contest_refuse(p_slug, format('%s does not take part; join first', p_name));
  end if;
end $$;

-- Check that this may be submitted into the contest now: within its time, by a contestant, to one of its problems.
create or replace function fencepost._judge_contest_check(p_contest text, p_slug text, p_author text, p_now timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_contest fencepost.judge_contest := fencepost._judge_contest_enter(p_contest);
  v_team    text;
begin
  if p_now < v_contest.starts_at then
    perform fencepost._judge_contest_refuse(p_contest, 'it has not begun');
  end if;
  perform fencepost._judge_contest_check_contestant(p_contest, p_author);
  select n.team into strict v_team from fencepost.judge_contestant n where n.contest = p_contest and n.name = p_author;
  if p_now >= v_contest.ends_at + fencepost._judge_interval_of_team(p_contest, v_team) then
    perform fencepost._judge_contest_refuse(p_contest, 'it is over');
  end if;
  if not exists (select 1 from fencepost.judge_contest_problem p where p.contest = p_contest and p.slug = p_slug) then
    perform fencepost._refuse('not_found', 'problem', p_slug, jsonb_build_object('contest', p_contest), null);
  end if;
end $$;

-- Show what the freeze hides. Only after the end: until then the freeze is guaranteed.
create or replace function fencepost.judge_contest_unfreeze(p_slug text, p_actor text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_contest fencepost.judge_contest;
  v_now     timestamptz;
begin
  perform fencepost._check_text('actor', p_actor, 256);
  v_contest := fencepost._judge_contest_lock(p_slug);
  v_now := fencepost.clock();
  if v_now < fencepost._judge_contest_over_at(v_contest) then
    perform fencepost._judge_contest_refuse(p_slug, 'it is not over yet');
  end if;
  if v_contest.unfrozen_at is not null then
    return;
  end if;
  perform fencepost._judge_feed_shown(p_slug, array(
    select s.job_id from fencepost.judge_submission s
    where s.contest = p_slug and s.submitted_at >= v_contest.freeze_at order by s.contest, s.job_id));
  perform fencepost._judge_feed_add(p_slug, '{contest,state}', '{null,null}');
  update fencepost.judge_contest c set unfrozen_at = v_now where c.slug = p_slug;
  perform fencepost._event(v_now, 'judge_contest', p_slug, 'unfrozen', p_actor, null, '{}');
end $$;

-- Tell again of results that were hidden until now.
create or replace function fencepost._judge_feed_shown(p_contest text, p_job_ids bigint[]) returns void
language sql volatile
as $$
  select fencepost._judge_feed_results(array_agg(i order by i), array_agg(null::bigint), array_agg(null::integer))
  from unnest(p_job_ids) i having count(*) > 0
$$;

-- Show what the freeze hides of one team at one problem. Only after the end. Showing it again changes nothing.
create or replace function fencepost.judge_contest_reveal(p_slug text, p_team text, p_problem text, p_actor text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_contest fencepost.judge_contest;
  v_now     timestamptz;
begin
  perform fencepost._check_text('actor', p_actor, 256);
  v_contest := fencepost._judge_contest_lock(p_slug);
  v_now := fencepost.clock();
  if v_now < fencepost._judge_contest_over_at(v_contest) then
    perform fencepost._judge_contest_refuse(p_slug, 'it is not over yet');
  end if;
  if not exists (select 1 from fencepost.judge_team t where t.contest = p_slug and t.id = p_team) then
    perform fencepost._refuse('not_found', 'team', coalesce(p_team, 'null'), jsonb_build_object('contest', p_slug), null);
  end if;
  insert into fencepost.judge_revealed (contest, team, slug, revealed_at) values (p_slug, p_team, p_problem, v_now)
  on conflict on constraint judge_revealed_pkey do nothing;
  if not found or v_contest.unfrozen_at is not null then
    return;
  end if;
  perform fencepost._event(v_now, 'judge_contest', p_slug, 'revealed', p_actor, null,
                           jsonb_build_object('team', p_team, 'problem', p_problem));
  perform fencepost._judge_feed_shown(p_slug, array(
    select s.job_id from fencepost.judge_submission s
    join fencepost.judge_contestant n on n.contest = s.contest and n.name = s.author and n.team = p_team
    where s.contest = p_slug and s.slug = p_problem and s.submitted_at >= v_contest.freeze_at order by s.contest, s.job_id));
end $$;

-- Lock a contest for a decision about all of it; raises not_found.
create or replace function fencepost._judge_contest_lock(p_slug text) returns fencepost.judge_contest
language plpgsql volatile
as $$
declare
  v_contest fencepost.judge_contest;
begin
  perform fencepost._require_read_committed();
  select * into v_contest from fencepost.judge_contest c where c.slug = p_slug for update;
  if not found then
    perform fencepost._refuse('not_found', 'contest', coalesce(p_slug, 'null'), '{}', null);
  end if;
  return v_contest;
end $$;

-- Make the results of a contest final. Only after its end, and when every submission has its verdict. Once it is unfrozen too,
-- nothing of it changes any more, until it is reopened.
create or replace function fencepost.judge_contest_finalize(p_slug text, p_actor text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_contest fencepost.judge_contest;
  v_now     timestamptz;
  v_pending bigint;
begin
  perform fencepost._check_text('actor', p_actor, 256);
  v_contest := fencepost._judge_contest_lock(p_slug);
  v_now := fencepost.clock();
  if v_contest.finalized_at is not null then
    return;
  end if;
  if v_now < fencepost._judge_contest_over_at(v_contest) then
    perform fencepost._judge_contest_refuse(p_slug, 'it is not over yet');
  end if;
  -- Under the lock of the head: a verdict that is being written is waited for, and then seen.
  perform fencepost._judge_feed_add(p_slug, '{state}', '{null}');
  select count(*) into v_pending from fencepost.judge_submission s
  where s.contest = p_slug and not exists (select 1 from fencepost.judge_result r where r.job_id = s.job_id)
    and fencepost._judge_job_seen(s.job_id) ->> 'state' not in ('dead', 'cancelled', 'finished');
  if v_pending > 0 then
    perform fencepost._judge_contest_refuse(p_slug, format('%s submissions have no verdict yet', v_pending));
  end if;
  select count(*) into v_pending from fencepost._judge_unverified(p_slug) where v_contest.verifies;
  if v_pending > 0 then
    perform fencepost._judge_contest_refuse(p_slug, format('%s verdicts are not verified yet', v_pending));
  end if;
  update fencepost.judge_contest c set finalized_at = v_now, finalized_by = p_actor where c.slug = p_slug;
  perform fencepost._event(v_now, 'judge_contest', p_slug, 'finalized', p_actor, null, '{}');
end $$;

-- Let the results of a final contest change again.
create or replace function fencepost.judge_contest_reopen(p_slug text, p_actor text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._check_text('actor', p_actor, 256);
  perform fencepost._judge_contest_lock(p_slug);
  update fencepost.judge_contest c set finalized_at = null, finalized_by = null where c.slug = p_slug;
  perform fencepost._judge_feed_add(p_slug, '{state}', '{null}');
  perform fencepost._event(fencepost.clock(), 'judge_contest', p_slug, 'reopened', p_actor, null, '{}');
end $$;

-- Move the start of a contest that has not begun; its end and its freeze move with it.
create or replace function fencepost.judge_contest_start(p_slug text, p_starts_at timestamptz, p_actor text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_contest fencepost.judge_contest;
  v_now     timestamptz;
begin
  perform fencepost._check_moment('start_time', p_starts_at);
  perform fencepost._check_text('actor', p_actor, 256);
  v_contest := fencepost._judge_contest_lock(p_slug);
  v_now := fencepost.clock();
  if v_contest.starts_at < v_now + interval '30 seconds' then
    perform fencepost._judge_contest_refuse(p_slug, 'it has begun, or begins within 30 s');
  end if;
  if p_starts_at < v_now + interval '30 seconds' then
    perform fencepost._judge_contest_refuse(p_slug, 'the new start is not 30 s ahead');
  end if;
  update fencepost.judge_contest c
  set starts_at = p_starts_at, freeze_at = c.freeze_at + (p_starts_at - c.starts_at), ends_at = c.ends_at + (p_starts_at - c.starts_at)
  where c.slug = p_slug;
  perform fencepost._event(v_now, 'judge_contest', p_slug, 'set', p_actor, null, jsonb_build_object('starts_at', p_starts_at));
  perform fencepost._judge_feed_add(p_slug, '{contest,state}', '{null,null}');
end $$;

-- The team of a contestant, or nothing. Served by the primary key.
create or replace function fencepost.judge_contest_team(p_slug text, p_name text) returns text
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$ select n.team from fencepost.judge_contestant n where n.contest = p_slug and n.name = p_name $$;

-- The submissions into a contest, in order, with the team and the standing result of each. Served by judge_submission_by_contest.
create or replace function fencepost.judge_contest_entries(p_slug text)
returns table (team text, slug text, submitted_at timestamptz, verdict text, score double precision, points jsonb)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select n.team, s.slug, s.submitted_at, r.verdict, r.score, coalesce(r.points, '{}')
  from fencepost.judge_submission s join fencepost.judge_contestant n on n.contest = s.contest and n.name = s.author
  left join fencepost.judge_result r on r.job_id = s.job_id
  where s.contest = p_slug and s.contest is not null order by s.contest, s.job_id
$$;

-- Which of the problems are hidden from contestants: those of contests that have not begun, and of none that has.
create or replace function fencepost.judge_problem_hidden(p_slugs text[]) returns table (slug text)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := fencepost.clock();
begin
  return query
  select s.slug from unnest(p_slugs) s (slug)
  cross join lateral (select count(*), count(*) filter (where c.starts_at <= v_now)
                      from fencepost.judge_contest_problem p join fencepost.judge_contest c on c.slug = p.contest
                      where p.slug = s.slug) n (contests, begun)
  where n.contests > 0 and n.begun = 0;
end $$;

-- Ask a question. Only for contestants, about the contest or one of its problems.
create or replace function fencepost.judge_clarification_ask(
  p_slug text, p_label text, p_author text, p_question text, p_category text default null
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_id bigint;
begin
  perform fencepost._judge_contest_enter(p_slug);
  perform fencepost._check_text('question', p_question, 4000);
  perform fencepost._judge_contest_check_contestant(p_slug, p_author);
  perform fencepost._judge_contest_check_label(p_slug, p_label);
  perform fencepost._check_text('category', p_category, 200) where p_category is not null;
  insert into fencepost.judge_clarification (contest, label, author, question, asked_at, category)
  values (p_slug, p_label, p_author, p_question, fencepost.clock(), p_category) returning clarification_id into v_id;
  perform fencepost._judge_feed_add(p_slug, '{clarifications}', array[v_id::text]);
  return v_id;
end $$;

-- Check that the contest has a problem with this label, if one is given.
create or replace function fencepost._judge_contest_check_label(p_slug text, p_label text) returns void
language plpgsql volatile
as $$
begin
  if p_label is not null and not exists (
    select 1 from fencepost.judge_contest_problem p where p.contest = p_slug and p.label = p_label) then
    perform fencepost._refuse('not_found', 'problem', p_label, jsonb_build_object('contest', p_slug), null);
  end if;
end $$;

-- Answer a question, to its author or to all. Once: two jury members that answer at the same time cannot contradict each
-- other.
create or replace function fencepost.judge_clarification_answer(
  p_slug text, p_id bigint, p_answer text, p_to_all boolean, p_actor text
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_seen fencepost.judge_clarification;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('answer', p_answer, 4000);
  perform fencepost._check_text('actor', p_actor, 256);
  select * into v_seen from fencepost.judge_clarification c where c.clarification_id = p_id and c.contest = p_slug for update;
  if not found then
    perform fencepost._refuse('not_found', 'clarification', coalesce(p_id::text, 'null'), '{}', null);
  end if;
  if v_seen.answer is not null then
    perform fencepost._refuse('already_finished', 'clarification', p_id::text, '{}',
      jsonb_build_object('answered_by', v_seen.answered_by, 'answered_at', v_seen.answered_at));
  end if;
  update fencepost.judge_clarification c
  set answer = p_answer, to_all = coalesce(p_to_all, false), answered_by = p_actor, answered_at = fencepost.clock()
  where c.clarification_id = p_id;
  -- A question whose answer goes to all is shown to all with it.
  perform fencepost._judge_feed_add(p_slug, '{clarifications,clarifications}', array[p_id::text, p_id || '-answer']);
end $$;

-- Send an announcement to all contestants.
create or replace function fencepost.judge_announce(p_slug text, p_label text, p_text text, p_actor text) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz := fencepost.clock();
  v_id  bigint;
begin
  perform fencepost._judge_contest_enter(p_slug);
  perform fencepost._check_text('text', p_text, 4000);
  perform fencepost._check_text('actor', p_actor, 256);
  perform fencepost._judge_contest_check_label(p_slug, p_label);
  insert into fencepost.judge_clarification (contest, label, author, question, asked_at, answer, answered_at, answered_by, to_all)
  values (p_slug, p_label, p_actor, '', v_now, p_text, v_now, p_actor, true) returning clarification_id into v_id;
  perform fencepost._judge_feed_add(p_slug, '{clarifications}', array[v_id::text]);
  return v_id;
end $$;

-- The clarifications of a contest after p_after: for p_name its own questions and what was sent to all; for null everything.
create or replace function fencepost.judge_clarifications(p_slug text, p_name text, p_after bigint, p_limit integer)
returns table (clarification_id bigint, label text, author text, question text, asked_at timestamptz, answer text,
               answered_at timestamptz, answered_by text, to_all boolean, category text)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  perform fencepost._check_limit(p_limit);
  return query
  select c.clarification_id, c.label, c.author, c.question, c.asked_at, c.answer, c.answered_at, c.answered_by, c.to_all, c.category
  from fencepost.judge_clarification c
  where c.contest = p_slug and c.clarification_id > coalesce(p_after, 0) and (p_name is null or c.to_all or c.author = p_name)
  order by c.contest, c.clarification_id limit p_limit;
end $$;

-- What p_name has not read yet of the questions and announcements of a contest; for a jury, the questions that wait for an answer. A
-- change of the feed is numbered in the order of commits, so nothing that commits later is taken for read. Served by
-- judge_feed_clarifications.
create or replace function fencepost.judge_clarification_news(p_slug text, p_name text, p_is_jury boolean)
returns table (clarification_id bigint, label text, question text, answer text, head bigint)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select c.clarification_id, c.label, c.question, c.answer, h.seq
  from fencepost.judge_feed_head h
  left join fencepost.judge_clarification c on c.contest = h.contest and (
    (p_is_jury and c.answer is null)
    or (not p_is_jury and c.answer is not null and (c.to_all or c.author = p_name) and c.clarification_id in (
      select split_part(f.id, '-', 1)::bigint from fencepost.judge_feed f
      where f.contest = p_slug and f.type = 'clarifications' and f.seq > coalesce((
        select r.seq from fencepost.judge_clarification_read r where r.contest = p_slug and r.name = p_name), 0))))
  where h.contest = p_slug order by c.clarification_id desc nulls last limit 20
$$;

-- Record that a person has read the questions up to a change of the feed. It only grows.
create or replace function fencepost.judge_clarification_seen(p_slug text, p_name text, p_seq bigint) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._check_text('name', p_name, 200);
  insert into fencepost.judge_clarification_read as r (contest, name, seq) values (p_slug, p_name, p_seq)
  on conflict on constraint judge_clarification_read_pkey do update set seq = greatest(r.seq, excluded.seq);
end $$;
