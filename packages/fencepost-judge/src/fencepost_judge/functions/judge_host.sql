-- Judges that produce system errors. A judge is the workers of one name on one host, NAME@HOST: what `fencepost workers
-- disable` takes.
--
-- The first system error of a job at a judge is blamed on the judge, and not charged to the job: it is put back,
-- and left to another judge if there is one. When the same judge fails at it again, that is charged a try: the
-- submission may be the cause, and one submission alone takes no judge out of service. What is blamed depends on
-- the cause:
--
--   judge     the sandbox or the machine: the judge
--   data      test data that is missing or damaged: the judge, if the problem was judged within a day; else none
--   problem   the problem's own programs: none
--   store     the store is away, for all judges: none
--
-- A judge is disabled, by the transaction that stores the error, when its last p_in_a_row judgings were system
-- errors that are blamed on it, or a share of p_share of its last p_window; 0 turns a rule off. It stays so until a
-- person enables it, also when it is the only one: submissions wait then, and get no verdict SE.
--
-- Locks: the running row (FOR KEY SHARE, by the fence), the record of the judge, its hold, the waiting row.

create or replace function fencepost._judge_of(p_owner text) returns text
language sql immutable parallel safe
as $$ select coalesce(substring(p_owner from '^(.+@[^@:]+):[0-9]+:[0-9a-f]+$'), p_owner) $$;

-- How many system errors end p_recent.
create or replace function fencepost._judge_errors_in_a_row(p_recent boolean[]) returns integer
language sql immutable parallel safe
as $$
  select cardinality(p_recent) - coalesce(max(r.place) filter (where not r.is_error), 0)::integer
  from unnest(p_recent) with ordinality r (is_error, place)
$$;

-- Whether the problem of a job was judged within the last day: its data is there. Served by judge_submission_by_problem.
create or replace function fencepost._judge_problem_is_sound(p_job_id bigint) returns boolean
language sql stable
as $$
  select exists (
    select 1 from fencepost.judge_submission s
    join fencepost.judge_submission o on o.slug = s.slug and o.version = s.version
    join fencepost.judge_result r on r.job_id = o.job_id and r.verdict <> 'SE' and r.judged_at > fencepost.clock() - interval '1 day'
    where s.job_id = coalesce((select d.submission_id from fencepost.judge_rejudged d where d.job_id = p_job_id), p_job_id))
$$;

-- A job ended in a system error, in the hands of p_owner. Puts it back after p_delay, or leaves it to the caller to
-- end it with the verdict SE when it has no tries left. outcome: repeated, or exhausted. disabled_for: why the judge
-- is out of service from now on, null when it is not. others: how many other judges are in service. Raises the
-- reason when the caller does not hold the job.
create or replace function fencepost.judge_system_error(
  p_job_id bigint, p_attempt bigint, p_owner text, p_error text, p_cause text, p_delay interval,
  p_in_a_row integer, p_window integer, p_share double precision
) returns table (outcome text, judge text, blamed boolean, disabled_for text, others bigint)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now    timestamptz;
  v_judge  text := fencepost._judge_of(p_owner);
  v_blamed boolean;
  v_left   integer;
  v_recent boolean[];
  v_errors integer;
  v_why    text;
begin
  perform fencepost._check_text('error', p_error, 20000);
  perform fencepost.job_fence(p_job_id, p_attempt, p_owner);
  perform fencepost._check_word('cause', p_cause, array['judge', 'data', 'problem', 'store']);
  v_blamed := (p_cause = 'judge' or (p_cause = 'data' and fencepost._judge_problem_is_sound(p_job_id)))
    and not exists (select 1 from fencepost.judge_system_error e where e.job_id = p_job_id and e.judge = v_judge);
  select j.tries_max - r.tries into strict v_left from fencepost.job_running r join fencepost.job j on j.job_id = r.job_id
  where r.job_id = p_job_id;
  if v_blamed then
    -- The lock on its record lets the errors of one judge pass one by one.
    insert into fencepost.judge_record as r (judge, recent, size_max) values (v_judge, '{true}', p_window)
    on conflict on constraint judge_record_pkey do update
    set recent = (r.recent || true)[greatest(1, cardinality(r.recent) + 2 - p_window):], size_max = p_window
    returning r.recent into v_recent;
    v_errors := (select count(*) from unnest(v_recent) e where e);
    v_why := case
      when p_in_a_row > 0 and fencepost._judge_errors_in_a_row(v_recent) >= p_in_a_row then
        format('%s system errors in a row', fencepost._judge_errors_in_a_row(v_recent))
      when p_share > 0 and v_errors >= p_share * p_window then
        format('%s of its last %s judgings were system errors', v_errors, p_window)
      end || format('; the last, at job %s: %s', p_job_id, left(p_error, 500));
  end if;
  v_now := fencepost.clock();
  insert into fencepost.judge_system_error (job_id, attempt, judge, at, error, blamed)
  values (p_job_id, p_attempt, v_judge, v_now, left(p_error, 2000), v_blamed)
  on conflict on constraint judge_system_error_pkey do nothing;
  if v_why is not null then
    -- It begins anew when it is enabled.
    delete from fencepost.judge_record r where r.judge = v_judge;
    if exists (select 1 from fencepost.worker_hold h where h.target = v_judge and h.state = 'disabled') then
      v_why := null;
    else
      perform fencepost._worker_hold(v_judge, 'disabled', 'judge', v_why, v_now, jsonb_build_object('job_id', p_job_id));
    end if;
  end if;
  if v_blamed then
    perform fencepost.job_release(p_job_id, p_attempt, p_owner, p_delay);
  elsif v_left > 0 then
    perform fencepost.job_retry(p_job_id, p_attempt, p_owner, p_error, p_delay);
  end if;
  return query select case when v_blamed or v_left > 0 then 'repeated' else 'exhausted' end, v_judge, v_blamed, v_why,
    (select count(distinct fencepost._judge_of(w.owner)) from fencepost.judge_workers w
     where w.state = 'alive' and fencepost._judge_of(w.owner) <> v_judge and not fencepost._worker_is_held(w.owner));
end $$;

-- A judging of p_owner ended with a verdict. Its judge has no record, unless it had a system error lately.
create or replace function fencepost._judge_did_well(p_owner text) returns void
language plpgsql volatile
as $$
declare
  v_judge text := fencepost._judge_of(p_owner);
begin
  delete from fencepost.judge_record r where r.judge = v_judge
    and not true = any ((r.recent || false)[greatest(1, cardinality(r.recent) + 2 - r.size_max):]);
  update fencepost.judge_record r set recent = (r.recent || false)[greatest(1, cardinality(r.recent) + 2 - r.size_max):]
  where r.judge = v_judge;
end $$;

-- Whether a job should be left to another judge: this one failed at it within the last minute, and another is in
-- service that has not and that compiles its languages. After a minute this one tries again: the other may be
-- busy, or pinned to other work. Judges that are listed elsewhere (etcd) are not known here.
create or replace function fencepost.judge_leave_to_others(p_job_id bigint, p_owner text) returns boolean
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select exists (select 1 from fencepost.judge_system_error e where e.job_id = p_job_id
                   and e.judge = fencepost._judge_of(p_owner) and e.at > fencepost.clock() - interval '1 minute')
    and exists (
      select 1 from fencepost.judge_workers w, fencepost.job j
      where j.job_id = p_job_id and w.state = 'alive' and fencepost._judge_of(w.owner) <> fencepost._judge_of(p_owner)
        and not exists (select 1 from fencepost.judge_system_error e where e.job_id = p_job_id
                          and e.judge = fencepost._judge_of(w.owner))
        and not fencepost._worker_is_held(w.owner)
        and not exists (select 1 from jsonb_array_elements_text(case when jsonb_typeof(j.headers -> 'needs') = 'array'
                                                                     then j.headers -> 'needs' else '[]' end) n (need)
                        where n.need like 'language:%' and not w.languages ? substr(n.need, 10)))
$$;

-- Delete system errors older than p_keep, at most p_limit. Served by judge_system_error_by_time.
create or replace function fencepost.judge_system_error_prune(p_keep interval, p_limit integer) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now   timestamptz := fencepost.clock();
  v_count bigint;
begin
  perform fencepost._check_limit(p_limit);
  perform fencepost._check_duration('keep', p_keep, interval '10 years');
  delete from fencepost.judge_system_error e where (e.job_id, e.attempt) in (
    select o.job_id, o.attempt from fencepost.judge_system_error o where o.at < v_now - p_keep order by o.at limit p_limit
    for update skip locked);
  get diagnostics v_count = row_count;
  return v_count;
end $$;

-- The last system errors, newest first, for people.
create or replace view fencepost.judge_system_errors as
  select e.job_id, e.attempt, e.judge, e.at, e.error, e.blamed from fencepost.judge_system_error e;
