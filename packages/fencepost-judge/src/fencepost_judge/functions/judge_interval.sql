-- Removed intervals: while the clock of a contest stands still, for all or for one team. A team that loses a quarter of an hour to a
-- broken machine has its quarter of an hour later, at the same times in the contest as the others: no other team, and no tool that reads
-- the Contest API, has to know of it.
--
-- Locks: the contest's row (FOR UPDATE); the head of its feed last.

-- How long the clock of one team stands still, beside the intervals of all, which have moved the contest's own end. Served by the
-- primary key.
create or replace function fencepost._judge_interval_of_team(p_contest text, p_team text) returns interval
language sql stable
as $$
  select coalesce(sum(i.until_at - i.from_at), interval '0') from fencepost.judge_interval i
  where i.contest = p_contest and i.team = p_team
$$;

-- When a contest is over for every team.
create or replace function fencepost._judge_contest_over_at(p_contest fencepost.judge_contest) returns timestamptz
language sql stable
as $$
  select p_contest.ends_at + coalesce((
    select max(t.length) from (
      select sum(i.until_at - i.from_at) as length from fencepost.judge_interval i
      where i.contest = p_contest.slug and i.team is not null group by i.team) t), interval '0')
$$;

-- Remove an interval from the time of a contest, or of one team of it. Of all: its end comes later by the interval's length, and its
-- freeze if it is still to come. Only within the contest, and while it is not over. Intervals that concern the same team do not
-- overlap, so lengths add up. Returns its number.
create or replace function fencepost.judge_interval_remove(
  p_contest text, p_team text, p_from_at timestamptz, p_until_at timestamptz, p_reason text, p_actor text
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_contest fencepost.judge_contest;
  v_length  interval := p_until_at - p_from_at;
  v_now     timestamptz;
  v_id      bigint;
begin
  perform fencepost._check_moment('from_at', p_from_at);
  perform fencepost._check_moment('until_at', p_until_at);
  perform fencepost._check_text('reason', p_reason, 1000);
  perform fencepost._check_text('actor', p_actor, 256);
  v_contest := fencepost._judge_contest_lock(p_contest);
  v_now := fencepost.clock();
  if p_team is not null and not exists (select 1 from fencepost.judge_team t where t.contest = p_contest and t.id = p_team) then
    perform fencepost._refuse('not_found', 'team', p_team, jsonb_build_object('contest', p_contest), null);
  end if;
  if v_now >= fencepost._judge_contest_over_at(v_contest) then
    perform fencepost._judge_contest_refuse(p_contest, 'it is over');
  end if;
  if p_from_at >= p_until_at or v_length > interval '1 day' then
    perform fencepost._judge_contest_refuse(p_contest, 'an interval ends after it begins, and within a day');
  end if;
  if p_from_at < v_contest.starts_at or p_from_at >= v_contest.ends_at + fencepost._judge_interval_of_team(p_contest, p_team) then
    perform fencepost._judge_contest_refuse(p_contest, 'an interval begins within the contest');
  end if;
  if exists (select 1 from fencepost.judge_interval i
             where i.contest = p_contest and (i.team is null or p_team is null or i.team = p_team)
               and i.from_at < p_until_at and i.until_at > p_from_at) then
    perform fencepost._judge_contest_refuse(p_contest, 'a part of this interval is removed already');
  end if;
  insert into fencepost.judge_interval (contest, team, from_at, until_at, reason, made_at, made_by)
  values (p_contest, p_team, p_from_at, p_until_at, p_reason, v_now, p_actor) returning id into v_id;
  if p_team is null then
    update fencepost.judge_contest c
    set ends_at = c.ends_at + v_length,
        -- A freeze that has begun stays: what it hides must not be shown.
        freeze_at = case when c.freeze_at >= p_from_at and c.freeze_at > v_now then c.freeze_at + v_length else c.freeze_at end
    where c.slug = p_contest;
  end if;
  perform fencepost._event(v_now, 'judge_contest', p_contest, 'interval_removed', p_actor, null,
    jsonb_build_object('interval', v_id, 'team', p_team, 'from', p_from_at, 'until', p_until_at, 'reason', p_reason));
  perform fencepost._judge_interval_tell(p_contest, p_team, p_from_at);
  return v_id;
end $$;

-- Give an interval back, while the contest is not over and would not be over by it.
create or replace function fencepost.judge_interval_restore(p_contest text, p_id bigint, p_actor text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_contest  fencepost.judge_contest;
  v_interval fencepost.judge_interval;
  v_length   interval;
  v_now      timestamptz;
begin
  perform fencepost._check_text('actor', p_actor, 256);
  v_contest := fencepost._judge_contest_lock(p_contest);
  v_now := fencepost.clock();
  delete from fencepost.judge_interval i where i.contest = p_contest and i.id = p_id returning * into v_interval;
  if not found then
    perform fencepost._refuse('not_found', 'interval', coalesce(p_id::text, 'null'), jsonb_build_object('contest', p_contest), null);
  end if;
  v_length := v_interval.until_at - v_interval.from_at;
  -- The row is gone already: this is the end without it.
  if v_now >= (v_contest.ends_at + fencepost._judge_interval_of_team(p_contest, v_interval.team)
               - case when v_interval.team is null then v_length else interval '0' end) then
    perform fencepost._judge_contest_refuse(p_contest, 'without the interval it would be over');
  end if;
  if v_interval.team is null then
    update fencepost.judge_contest c
    set ends_at = c.ends_at - v_length,
        freeze_at = case when c.freeze_at >= v_interval.until_at and c.freeze_at - v_length > v_now then c.freeze_at - v_length
                         else least(c.freeze_at, c.ends_at - v_length) end
    where c.slug = p_contest;
  end if;
  perform fencepost._event(v_now, 'judge_contest', p_contest, 'interval_restored', p_actor, null,
    jsonb_build_object('interval', p_id, 'team', v_interval.team, 'from', v_interval.from_at, 'until', v_interval.until_at));
  perform fencepost._judge_interval_tell(p_contest, v_interval.team, v_interval.from_at);
end $$;

-- Tell of what has other times now: the contest, and the submissions since then. Served by judge_submission_by_contest.
create or replace function fencepost._judge_interval_tell(p_contest text, p_team text, p_from_at timestamptz) returns void
language plpgsql volatile
as $$
begin
  perform fencepost._judge_feed_add(p_contest, '{contest,state}', '{null,null}');
  perform fencepost._judge_feed_submissions(p_contest, array(
    select s.job_id from fencepost.judge_submission s
    join fencepost.judge_contestant n on n.contest = s.contest and n.name = s.author
    where s.contest = p_contest and s.submitted_at > p_from_at and (p_team is null or n.team = p_team) order by s.contest, s.job_id));
end $$;

-- Let the team of a submission see all of its verdict, for one of the contest's tokens.
create or replace function fencepost.judge_token_play(p_job_id bigint, p_name text) returns integer
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_slug    text;
  v_team    text;
  v_contest fencepost.judge_contest;
  v_played  integer;
begin
  select s.contest, n.team into v_slug, v_team from fencepost.judge_submission s
  join fencepost.judge_contestant n on n.contest = s.contest and n.name = s.author
  where s.job_id = p_job_id
    and n.team = (select own.team from fencepost.judge_contestant own where own.contest = s.contest and own.name = p_name);
  if not found then
    perform fencepost._refuse('not_found', 'submission', coalesce(p_job_id::text, 'null'), '{}', null);
  end if;
  -- Exclusive: two that are played at once are counted one after the other.
  v_contest := fencepost._judge_contest_lock(v_slug);
  insert into fencepost.judge_token_played (contest, team, job_id, played_at, played_by)
  values (v_slug, v_team, p_job_id, fencepost.clock(), p_name) on conflict on constraint judge_token_played_pkey do nothing;
  select count(*) into v_played from fencepost.judge_token_played t where t.contest = v_slug and t.team = v_team;
  if v_played > v_contest.tokens then
    perform fencepost._judge_contest_refuse(v_slug, format('%s has no token left', v_team));
  end if;
  return v_contest.tokens - v_played;
end $$;

-- How many tokens the team of a user has left. Served by judge_token_played_by_team.
create or replace function fencepost.judge_tokens_left(p_contest text, p_name text) returns integer
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select c.tokens - (select count(*) from fencepost.judge_token_played t where t.contest = n.contest and t.team = n.team)::integer
  from fencepost.judge_contestant n join fencepost.judge_contest c on c.slug = n.contest
  where n.contest = p_contest and n.name = p_name
$$;
