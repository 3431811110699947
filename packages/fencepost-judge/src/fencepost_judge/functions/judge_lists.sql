-- Lists that pages show.

-- The newest submissions of all authors before p_before. Served by the primary key, read backwards.
create or replace function fencepost.judge_recent(p_before bigint, p_limit integer)
returns table (job_id bigint, slug text, author text, language text, submitted_at timestamptz, verdict text,
               score double precision, time_ms bigint, mem_kb bigint, status text)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select s.job_id, s.slug, s.author, s.language, s.submitted_at, r.verdict, r.score, r.time_ms, r.mem_kb,
         case when r.job_id is null then upper(fencepost._judge_job_seen(s.job_id) ->> 'state') else 'FINISHED' end
  from (select * from fencepost.judge_submission b where b.job_id < coalesce(p_before, 9223372036854775807)
        order by b.job_id desc limit p_limit) s
  left join fencepost.judge_result r on r.job_id = s.job_id
  order by s.job_id desc
$$;

-- The titles of problems by their slugs, in their newest versions. Served by the primary key, one lookup for each.
create or replace function fencepost.judge_problem_titles(p_slugs text[]) returns table (slug text, version integer, title text)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select n.slug, n.version, n.title from unnest(p_slugs) s (slug)
  cross join lateral (select p.slug, p.version, p.title from fencepost.judge_problem p where p.slug = s.slug
                      order by p.version desc limit 1) n
$$;
