-- Custom runs. An expired one is treated as absent, whether it was removed already or not.

-- Add the custom run that belongs to a job, in the transaction that submitted the job: both or neither. Without an input it
-- is only compiled. Kept for p_keep from now, and again from its outcome on.
create or replace function fencepost.judge_custom_run_put(
  p_job_id bigint, p_author text, p_language text, p_sources jsonb, p_input text, p_keep interval
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz := fencepost.clock();
begin
  perform fencepost._check_token('job_id', p_job_id);
  perform fencepost._check_text('author', p_author, 200);
  perform fencepost._check_text('language', p_language, 32);
  perform fencepost._check_json('sources', p_sources, 2097152);
  perform fencepost._check_duration('keep', p_keep, interval '30 days');
  if octet_length(p_input) > 1048576 then
    raise exception 'input has % bytes; at most % are allowed.', octet_length(p_input), 1048576
      using errcode = 'ZF100', detail = '{"field": "input"}';
  end if;
  insert into fencepost.judge_custom_run (job_id, author, language, sources, input, keep, made_at, expires_at)
  values (p_job_id, p_author, p_language, p_sources, p_input, p_keep, v_now, v_now + p_keep);
end $$;

-- One custom run: what a worker runs, and what its author reads. Nothing when it has expired.
create or replace function fencepost.judge_custom_run_get(p_job_id bigint)
returns table (job_id bigint, author text, language text, sources jsonb, input text, made_at timestamptz,
               expires_at timestamptz, outcome jsonb)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := fencepost.clock();
begin
  return query select t.job_id, t.author, t.language, t.sources, t.input, t.made_at, t.expires_at, t.outcome
               from fencepost.judge_custom_run t where t.job_id = p_job_id and t.expires_at > v_now;
end $$;

-- Store the outcome, under the job's fence. Nothing is stored for a custom run that was removed meanwhile.
create or replace function fencepost.judge_custom_run_done(p_job_id bigint, p_attempt bigint, p_owner text, p_outcome jsonb) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost.job_fence(p_job_id, p_attempt, p_owner);
  perform fencepost._check_json('outcome', p_outcome, 1048576);
  perform fencepost._judge_did_well(p_owner) where p_outcome ->> 'verdict' <> 'SE';
  update fencepost.judge_custom_run t set outcome = p_outcome, expires_at = fencepost.clock() + t.keep where t.job_id = p_job_id;
end $$;

-- Remove expired custom runs, at most p_limit: program, input and output. Served by judge_custom_run_by_expiry.
create or replace function fencepost.judge_custom_run_prune(p_limit integer) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now   timestamptz := fencepost.clock();
  v_count bigint;
begin
  perform fencepost._check_limit(p_limit);
  delete from fencepost.judge_custom_run t where t.job_id = any (array(
    select o.job_id from fencepost.judge_custom_run o where o.expires_at <= v_now order by o.expires_at limit p_limit
    for update skip locked));
  get diagnostics v_count = row_count;
  return v_count;
end $$;
