-- The feed of a contest: every change of what the Contest API shows, numbered in the order of its commits.
--
-- A number that is assigned before the commit is no order: of two transactions the one with the lower number may commit
-- later, and a reader that has seen the higher one would never see it. So a number is assigned under the lock on the row of
-- the contest's head, which is held until the commit: who sees number n sees all before it, and a rollback takes its numbers
-- back, so there are no gaps. Changes of one contest commit one after another; other contests do not wait.
--
-- Locks: the head is the last lock of every transaction that takes it; of several contests, in order of their names.

-- Lock the head of a contest and tell what has become due by the clock. Returns the last number. Refuses when the
-- contest is final: nothing changes any more then.
create or replace function fencepost._judge_feed_lock(p_contest text) returns bigint
language plpgsql volatile
as $$
declare
  v_head    fencepost.judge_feed_head;
  v_contest fencepost.judge_contest;
  v_now     timestamptz;
begin
  select * into strict v_head from fencepost.judge_feed_head h where h.contest = p_contest for update;
  v_now := fencepost.clock();
  select * into strict v_contest from fencepost.judge_contest c where c.slug = p_contest;
  if v_contest.finalized_at is not null and (v_contest.freeze_at is null or v_contest.unfrozen_at is not null) then
    perform fencepost._judge_contest_refuse(p_contest, 'its results are final; reopen it first');
  end if;
  if not fencepost._judge_feed_is_due(v_contest, v_head.told_at, v_now) then
    return v_head.seq;
  end if;
  -- With the start, the problems are shown to all; with the end, the verdicts that were withheld until then.
  insert into fencepost.judge_feed (contest, seq, type, id)
  select p_contest, v_head.seq + row_number() over (order by n.place), n.type, n.id from (
    select 0, 'state', null
    union all
    select row_number() over (order by p.label), 'problems', p.slug from fencepost.judge_contest_problem p
    where p.contest = p_contest and v_contest.starts_at > v_head.told_at and v_contest.starts_at <= v_now
    union all
    select 1000 + row_number() over (order by s.job_id), 'judgements', fencepost._judge_judgement_id(s.job_id, r.generation)
    from fencepost.judge_submission s join fencepost.judge_result r on r.job_id = s.job_id
    where s.contest = p_contest and v_contest.feedback <> 'full'
      and fencepost._judge_contest_over_at(v_contest) > v_head.told_at and fencepost._judge_contest_over_at(v_contest) <= v_now) n (place, type, id);
  update fencepost.judge_feed_head h
  set told_at = v_now, seq = (select max(f.seq) from fencepost.judge_feed f where f.contest = p_contest)
  where h.contest = p_contest returning h.seq into v_head.seq;
  return v_head.seq;
end $$;

-- Whether the contest has begun, was frozen or has ended since p_told_at.
create or replace function fencepost._judge_feed_is_due(p_contest fencepost.judge_contest, p_told_at timestamptz, p_now timestamptz)
returns boolean
language sql stable
as $$
  select (p_contest.starts_at > p_told_at and p_contest.starts_at <= p_now)
    or coalesce(p_contest.freeze_at > p_told_at and p_contest.freeze_at <= p_now, false)
    or (fencepost._judge_contest_over_at(p_contest) > p_told_at and fencepost._judge_contest_over_at(p_contest) <= p_now)
$$;

-- Tell that objects changed, in their order. Types and ids go together. Nothing for a submission outside of contests.
create or replace function fencepost._judge_feed_add(p_contest text, p_types text[], p_ids text[]) returns void
language plpgsql volatile
as $$
declare
  v_seq bigint;
begin
  if p_contest is null or cardinality(p_types) = 0 then
    return;
  end if;
  v_seq := fencepost._judge_feed_lock(p_contest);
  insert into fencepost.judge_feed (contest, seq, type, id)
  select p_contest, v_seq + n.place, n.type, n.id from unnest(p_types, p_ids) with ordinality n (type, id, place);
  update fencepost.judge_feed_head h set seq = v_seq + cardinality(p_types) where h.contest = p_contest;
end $$;

-- The id of a judgement: that of the submission, and the generation that judged it again. A run adds its place.
create or replace function fencepost._judge_judgement_id(p_job_id bigint, p_generation bigint) returns text
language sql immutable parallel safe
as $$ select p_job_id || case when p_generation > 0 then '-' || p_generation else '' end $$;

-- Tell again of submissions, with their results: what their times in the contest are has changed.
create or replace function fencepost._judge_feed_submissions(p_contest text, p_job_ids bigint[]) returns void
language plpgsql volatile
as $$
begin
  perform fencepost._judge_feed_add(p_contest, array_agg('submissions'::text), array_agg(i::text order by i))
  from unnest(p_job_ids) i having count(*) > 0;
  perform fencepost._judge_feed_shown(p_contest, p_job_ids);
end $$;

-- Tell of the standing results of submissions, each with its runs; and, of those that they replaced, that they are gone.
-- p_before and p_runs: the replaced generation of each and how many runs it had, null where there was none. Served by primary keys.
create or replace function fencepost._judge_feed_results(p_job_ids bigint[], p_before bigint[], p_runs integer[]) returns void
language plpgsql volatile
as $$
declare
  v record;
begin
  for v in
    select s.contest, array_agg(o.type order by s.job_id, o.step, o.place) as types, array_agg(o.id order by s.job_id, o.step, o.place) as ids
    from unnest(p_job_ids, p_before, p_runs) n (job_id, before, runs)
    join fencepost.judge_submission s on s.job_id = n.job_id and s.contest is not null
    join fencepost.judge_result r on r.job_id = n.job_id
    cross join lateral (
      select 0, g::bigint, 'runs', fencepost._judge_judgement_id(n.job_id, n.before) || '.' || g
      from generate_series(1, n.runs) g where n.before <> r.generation
      union all
      select 1, 0, 'judgements', fencepost._judge_judgement_id(n.job_id, n.before) where n.before <> r.generation
      union all
      select 2, 0, 'judgements', fencepost._judge_judgement_id(n.job_id, r.generation)
      union all
      select 3, c.place, 'runs', fencepost._judge_judgement_id(n.job_id, r.generation) || '.' || c.place
      from jsonb_array_elements(r.cases) with ordinality c (tested, place) where c.tested ->> 'verdict' <> 'SK') o (step, place, type, id)
    group by s.contest order by s.contest
  loop
    perform fencepost._judge_feed_add(v.contest, v.types, v.ids);
  end loop;
end $$;

-- The changes of a contest after p_after, in order, and the number of the last one there is. Tells first what has become
-- due by the clock. Raises not_found. Served by the primary key.
create or replace function fencepost.judge_feed_read(p_contest text, p_after bigint, p_limit integer)
returns table (seq bigint, type text, id text, head bigint)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_contest fencepost.judge_contest;
  v_head    fencepost.judge_feed_head;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_limit(p_limit);
  select * into v_contest from fencepost.judge_contest c where c.slug = p_contest;
  if not found then
    perform fencepost._refuse('not_found', 'contest', coalesce(p_contest, 'null'), '{}', null);
  end if;
  select * into strict v_head from fencepost.judge_feed_head h where h.contest = p_contest;
  if v_contest.finalized_at is null and fencepost._judge_feed_is_due(v_contest, v_head.told_at, fencepost.clock()) then
    v_head.seq := fencepost._judge_feed_lock(p_contest);
  end if;
  return query
  select f.seq, f.type, f.id, v_head.seq from fencepost.judge_feed f
  where f.contest = p_contest and f.seq > p_after and f.seq <= v_head.seq order by f.contest, f.seq limit p_limit;
  if not found then
    return query select null::bigint, null::text, null::text, v_head.seq;
  end if;
end $$;
