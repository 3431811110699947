-- Verifications of packages: asked for by a setter, run by a judge as a job, read as a report.

-- Add the verification that belongs to a job, in the transaction that submitted the job: both or neither.
create or replace function fencepost.judge_verification_put(
  p_job_id bigint, p_name text, p_digest text, p_bytes bigint, p_time_limit_seconds double precision, p_asked_by text
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._check_token('job_id', p_job_id);
  perform fencepost._check_text('name', p_name, 64);
  perform fencepost._check_text('digest', p_digest, 64);
  perform fencepost._check_text('asked_by', p_asked_by, 200);
  insert into fencepost.judge_verification (job_id, name, digest, bytes, time_limit_seconds, asked_by, asked_at)
  values (p_job_id, p_name, p_digest, p_bytes, p_time_limit_seconds, p_asked_by, fencepost.clock());
end $$;

-- Verifications, newest first: the one of p_one, or those before p_before. Served by the primary key.
create or replace function fencepost.judge_verifications(p_one bigint, p_before bigint, p_limit integer)
returns table (job_id bigint, name text, digest text, bytes bigint, time_limit_seconds double precision, asked_by text,
               asked_at timestamptz, ended_at timestamptz, report jsonb, state text, progress jsonb)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select v.job_id, v.name, v.digest, v.bytes, v.time_limit_seconds, v.asked_by, v.asked_at, v.ended_at, v.report,
         coalesce(fencepost._job_seen(v.job_id) ->> 'state', 'pruned'),
         (select r.progress from fencepost.job_running r where r.job_id = v.job_id)
  from fencepost.judge_verification v
  where v.job_id = coalesce(p_one, v.job_id) and v.job_id < coalesce(p_before, 9223372036854775807)
  order by v.job_id desc limit p_limit
$$;

-- Store the report, under the job's fence.
create or replace function fencepost.judge_verification_done(p_job_id bigint, p_attempt bigint, p_owner text, p_report jsonb)
returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost.job_fence(p_job_id, p_attempt, p_owner);
  perform fencepost._check_json('report', p_report, 4194304);
  update fencepost.judge_verification v set report = p_report, ended_at = fencepost.clock() where v.job_id = p_job_id;
end $$;
