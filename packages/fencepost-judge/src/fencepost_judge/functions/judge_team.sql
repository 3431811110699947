-- Teams of contests, their organizations and groups; and what the Contest API reads.
--
-- Locks: the contest's row (FOR SHARE, by _judge_contest_enter); the head of its feed last.

-- Add or change organizations, groups and teams, in this order; each is a list of objects with an id, or null. What is not
-- named stays. All of it or nothing: a team of an unknown group or organization is refused.
create or replace function fencepost.judge_teams_put(p_contest text, p_organizations jsonb, p_groups jsonb, p_teams jsonb, p_actor text)
returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_missing text;
begin
  perform fencepost._require_read_committed();
  perform fencepost._judge_contest_enter(p_contest);
  perform fencepost._check_json('organizations', p_organizations, 4194304);
  perform fencepost._check_json('groups', p_groups, 4194304);
  perform fencepost._check_json('teams', p_teams, 16777216);
  perform fencepost._check_text('actor', p_actor, 256);
  insert into fencepost.judge_organization as o (contest, id, name, formal_name, country, icpc_id)
  select p_contest, n.id, n.name, n.formal_name, n.country, n.icpc_id
  from jsonb_to_recordset(p_organizations) n (id text, name text, formal_name text, country text, icpc_id text) order by n.id
  on conflict on constraint judge_organization_pkey do update
    set name = excluded.name, formal_name = excluded.formal_name, country = excluded.country, icpc_id = excluded.icpc_id;
  insert into fencepost.judge_group as g (contest, id, name, kind, type, icpc_id)
  select p_contest, n.id, n.name, coalesce(n.kind, 'participants'), n.type, n.icpc_id
  from jsonb_to_recordset(p_groups) n (id text, name text, kind text, type text, icpc_id text) order by n.id
  on conflict on constraint judge_group_pkey do update
    set name = excluded.name, kind = excluded.kind, type = excluded.type, icpc_id = excluded.icpc_id;
  select coalesce('organization ' || n.organization, 'group ' || m.group_id) into v_missing
  from jsonb_to_recordset(p_teams) n (id text, organization text, groups jsonb)
  left join lateral jsonb_array_elements_text(n.groups) m (group_id) on true
  where (n.organization is not null
         and not exists (select 1 from fencepost.judge_organization o where o.contest = p_contest and o.id = n.organization))
     or (m.group_id is not null
         and not exists (select 1 from fencepost.judge_group g where g.contest = p_contest and g.id = m.group_id))
  order by n.id limit 1;
  if v_missing is not null then
    raise exception 'A team names the %, which the contest does not have.', v_missing
      using errcode = 'ZF100', detail = '{"field": "teams"}';
  end if;
  insert into fencepost.judge_team as t (contest, id, name, label, display_name, organization, icpc_id, hidden, location, members)
  select p_contest, n.id, n.name, coalesce(n.label, n.id), n.display_name, n.organization, n.icpc_id, coalesce(n.hidden, false), n.location,
         coalesce(array(select m from jsonb_array_elements_text(n.members) m), '{}')
  from jsonb_to_recordset(p_teams) n (id text, name text, label text, display_name text, organization text, icpc_id text,
                                      hidden boolean, location text, members jsonb) order by n.id
  on conflict on constraint judge_team_pkey do update
    set name = excluded.name, label = excluded.label, display_name = excluded.display_name, organization = excluded.organization,
        icpc_id = excluded.icpc_id, hidden = excluded.hidden, location = excluded.location, members = excluded.members;
  delete from fencepost.judge_team_group m where m.contest = p_contest
    and m.team in (select n.id from jsonb_to_recordset(p_teams) n (id text));
  insert into fencepost.judge_team_group (contest, team, group_id)
  select distinct p_contest, n.id, m.group_id from jsonb_to_recordset(p_teams) n (id text, groups jsonb)
  cross join lateral jsonb_array_elements_text(n.groups) m (group_id);
  perform fencepost._event(fencepost.clock(), 'judge_contest', p_contest, 'teams', p_actor, null,
    jsonb_build_object('organizations', jsonb_array_length(p_organizations), 'groups', jsonb_array_length(p_groups),
                       'teams', jsonb_array_length(p_teams)));
  perform fencepost._judge_feed_add(p_contest, coalesce(array_agg(n.type order by n.place, n.id), '{}'), array_agg(n.id order by n.place, n.id))
  from (
    select 0, 'organizations', o.id from jsonb_to_recordset(p_organizations) o (id text)
    union all
    select 1, 'groups', g.id from jsonb_to_recordset(p_groups) g (id text)
    union all
    select 2, 'teams', t.id from jsonb_to_recordset(p_teams) t (id text)
    union all
    -- A group that becomes hidden, or is shown, takes its teams along.
    select 2, 'teams', m.team from jsonb_to_recordset(p_groups) g (id text)
    join fencepost.judge_team_group m on m.contest = p_contest and m.group_id = g.id
    where m.team not in (select t.id from jsonb_to_recordset(p_teams) t (id text))) n (place, type, id);
end $$;

-- Let a user act for a team of a contest. It acts for one team at a time, and keeps that while it has submissions.
create or replace function fencepost.judge_team_account(p_contest text, p_name text, p_team text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_team text;
begin
  perform fencepost._judge_contest_enter(p_contest);
  perform fencepost._check_text('name', p_name, 200);
  if not exists (select 1 from fencepost.judge_team t where t.contest = p_contest and t.id = p_team) then
    perform fencepost._refuse('not_found', 'team', coalesce(p_team, 'null'), jsonb_build_object('contest', p_contest), null);
  end if;
  select n.team into v_team from fencepost.judge_contestant n where n.contest = p_contest and n.name = p_name for update;
  if v_team <> p_team and exists (
    select 1 from fencepost.judge_submission s where s.author = p_name and s.contest = p_contest) then
    perform fencepost._judge_contest_refuse(p_contest, format('%s has submitted for the team %s', p_name, v_team));
  end if;
  insert into fencepost.judge_contestant as n (contest, name, joined_at, team) values (p_contest, p_name, fencepost.clock(), p_team)
  on conflict (contest, name) do update set team = excluded.team;
  perform fencepost._judge_feed_add(p_contest, '{accounts}', array[p_name]);
end $$;

-- The teams of a contest by id, or those given; kind is the strictest of its groups.
create or replace function fencepost.judge_teams(p_contest text, p_ids text[])
returns table (id text, name text, label text, display_name text, organization text, icpc_id text, location text, members text[],
               groups text[], kind text)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select t.id, t.name, t.label, t.display_name, t.organization, t.icpc_id, t.location, t.members,
         array(select m.group_id from fencepost.judge_team_group m where m.contest = t.contest and m.team = t.id order by m.group_id),
         case when t.hidden then 'hidden' else coalesce((
           select g.kind from fencepost.judge_team_group m join fencepost.judge_group g on g.contest = m.contest and g.id = m.group_id
           where m.contest = t.contest and m.team = t.id
           order by array_position(array['hidden', 'observers', 'participants'], g.kind) limit 1), 'participants') end
  from fencepost.judge_team t where t.contest = p_contest and (p_ids is null or t.id = any (p_ids)) order by t.contest, t.id
$$;

-- The groups of a contest by id, or those given. Served by the primary key.
create or replace function fencepost.judge_groups(p_contest text, p_ids text[])
returns table (id text, name text, kind text, type text, icpc_id text)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select g.id, g.name, g.kind, g.type, g.icpc_id from fencepost.judge_group g
  where g.contest = p_contest and (p_ids is null or g.id = any (p_ids)) order by g.contest, g.id
$$;

-- The organizations of a contest by id, or those given. Served by the primary key.
create or replace function fencepost.judge_organizations(p_contest text, p_ids text[])
returns table (id text, name text, formal_name text, country text, icpc_id text)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select o.id, o.name, o.formal_name, o.country, o.icpc_id from fencepost.judge_organization o
  where o.contest = p_contest and (p_ids is null or o.id = any (p_ids)) order by o.contest, o.id
$$;

-- The users that act for teams of a contest.
create or replace function fencepost.judge_team_accounts(p_contest text, p_ids text[]) returns table (name text, team text)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select n.name, n.team from fencepost.judge_contestant n
  where n.contest = p_contest and (p_ids is null or n.name = any (p_ids)) order by n.contest, n.name
$$;

-- The submissions into a contest in order, or those given, with their standing results. Served by judge_submission_by_contest, or by
-- the primary key.
create or replace function fencepost.judge_contest_submissions(p_contest text, p_ids bigint[])
returns table (job_id bigint, team text, slug text, language text, submitted_at timestamptz, generation bigint, verdict text,
               score double precision, time_ms bigint, cases jsonb, started_at timestamptz, judged_at timestamptz)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select s.job_id, n.team, s.slug, s.language, s.submitted_at, r.generation, r.verdict, r.score, r.time_ms, r.cases,
         coalesce(r.started_at, r.judged_at), r.judged_at
  from (
    select a.* from fencepost.judge_submission a where p_ids is null and a.contest = p_contest and a.contest is not null
    union all
    select b.* from fencepost.judge_submission b where b.job_id = any (p_ids) and b.contest = p_contest) s
  join fencepost.judge_contestant n on n.contest = s.contest and n.name = s.author
  left join fencepost.judge_result r on r.job_id = s.job_id
  order by s.job_id
$$;

-- The files of a submission into a contest, and the team that sent it.
create or replace function fencepost.judge_contest_sources(p_contest text, p_job_id bigint) returns table (team text, sources jsonb)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select n.team, s.sources from fencepost.judge_submission s
  join fencepost.judge_contestant n on n.contest = s.contest and n.name = s.author
  where s.job_id = p_job_id and s.contest = p_contest
$$;

-- The problems of a contest by label, or those given: the newest version of each, without statement and data.
create or replace function fencepost.judge_contest_problems(p_contest text, p_slugs text[])
returns table (slug text, label text, ordinal bigint, title text, color text, rgb text, time_ms bigint, memory_kb bigint, tests bigint,
               scoring boolean)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select p.slug, p.label, p.ordinal, v.title, p.color, p.rgb, coalesce((v.spec #>> '{bounds,time_ms}')::bigint, 1000),
         coalesce((v.spec #>> '{bounds,memory_kb}')::bigint, 262144),
         (select count(*) from jsonb_path_query(v.spec -> 'data', 'strict $.** ? (@.type() == "object" && exists (@.input))')), coalesce((v.spec ->> 'scoring')::boolean, false)
  from (select o.*, row_number() over (order by o.label) as ordinal from fencepost.judge_contest_problem o where o.contest = p_contest) p
  cross join lateral (select n.title, n.spec from fencepost.judge_problem n where n.slug = p.slug order by n.version desc limit 1) v
  where p_slugs is null or p.slug = any (p_slugs)
  order by p.ordinal
$$;
