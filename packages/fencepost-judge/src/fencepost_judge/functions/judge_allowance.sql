-- How fast a user of the judge may submit. The row of the allowance is locked alone.

-- Count one submission of a user, or raise ZF102. In the transaction of the submission: one that is refused for another
-- reason is not counted. The row lock serializes submissions of one user.
create or replace function fencepost.judge_admit(p_name text, p_per_minute double precision, p_burst integer) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now    timestamptz;
  v_tokens double precision;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_rate(p_per_minute, p_burst);
  insert into fencepost.judge_allowance (name, tokens, refilled_at) values (p_name, p_burst, fencepost.clock())
  on conflict (name) do nothing;
  perform from fencepost.judge_allowance a where a.name = p_name for no key update;
  -- Read after the wait for the lock: the time spent waiting counts towards the allowance.
  v_now := fencepost.clock();
  select least(p_burst, a.tokens + p_per_minute * greatest(0, extract(epoch from v_now - a.refilled_at)) / 60) into v_tokens
  from fencepost.judge_allowance a where a.name = p_name;
  if v_tokens < 1 then
    raise exception '% submits too fast: % a minute are allowed, the next one in % s.', p_name, p_per_minute,
        ceil((1 - v_tokens) * 60 / p_per_minute)
      using errcode = 'ZF102', hint = 'Wait, and submit again.',
            detail = jsonb_build_object('retry_seconds', (1 - v_tokens) * 60 / p_per_minute)::text;
  end if;
  update fencepost.judge_allowance a set tokens = v_tokens - 1, refilled_at = greatest(a.refilled_at, v_now) where a.name = p_name;
end $$;
