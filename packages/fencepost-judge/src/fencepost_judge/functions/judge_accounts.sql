-- Users of the judge, their tokens, and their rate limit. Every function here is VOLATILE, even those that only read, so
-- that the read-only role can call none of them.
--
-- Locks: the user's row before its tokens and sessions; a rate limit's row alone.

-- Whether any user exists. Until then the judge does not authenticate: a request that the server accepts is the operator's.
create or replace function fencepost.judge_has_users() returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  return exists (select 1 from fencepost.judge_user);
end $$;

-- Create a user, or change its role; a disabled user is enabled again.
create or replace function fencepost.judge_user_set(p_name text, p_role text, p_actor text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz := fencepost.clock();
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('name', p_name, 64);
  perform fencepost._check_word('role', p_role, array['contestant', 'jury', 'admin']);
  perform fencepost._check_text('actor', p_actor, 256);
  if p_name !~ '^[A-Za-z0-9][A-Za-z0-9._@-]*$' then
    raise exception 'name % may hold letters, digits and . _ @ - only.', quote_literal(p_name)
      using errcode = 'ZF100', detail = '{"field": "name"}';
  end if;
  insert into fencepost.judge_user as u (name, role, made_at, made_by) values (p_name, p_role, v_now, p_actor)
  on conflict (name) do update set role = excluded.role, disabled_at = null;
  perform fencepost._event(v_now, 'judge_user', p_name, 'set', p_actor, null, jsonb_build_object('role', p_role));
end $$;

-- Disable a user: it can no longer log in, and its tokens and sessions end permanently, even if it is enabled again.
create or replace function fencepost.judge_user_disable(p_name text, p_actor text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz := fencepost.clock();
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('actor', p_actor, 256);
  update fencepost.judge_user u set disabled_at = coalesce(u.disabled_at, v_now) where u.name = p_name;
  if not found then
    perform fencepost._refuse('not_found', 'judge_user', coalesce(p_name, 'null'), '{}', null);
  end if;
  update fencepost.judge_token t set revoked_at = v_now where t.name = p_name and t.revoked_at is null;
  delete from fencepost.judge_session s where s.name = p_name;
  perform fencepost._event(v_now, 'judge_user', p_name, 'disabled', p_actor, null, '{}');
end $$;

-- Users after p_after, by name.
create or replace function fencepost.judge_users(p_after text, p_limit integer)
returns table (name text, role text, made_at timestamptz, made_by text, disabled_at timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  perform fencepost._check_limit(p_limit);
  return query select u.name, u.role, u.made_at, u.made_by, u.disabled_at from fencepost.judge_user u
               where u.name > coalesce(p_after, '') order by u.name limit p_limit;
end $$;

-- Add a token for a user that is not disabled. Only the digest is stored; the token itself is shown once and never stored.
create or replace function fencepost.judge_token_make(p_digest bytea, p_name text, p_label text, p_lifetime interval, p_actor text)
returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz := fencepost.clock();
  v_id  bigint;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('label', p_label, 100);
  perform fencepost._check_duration('lifetime', p_lifetime, interval '10 years');
  perform fencepost._check_text('actor', p_actor, 256);
  -- Locked: a concurrent disabling of the user either revokes this token too, or prevents its creation.
  perform from fencepost.judge_user u where u.name = p_name and u.disabled_at is null for no key update;
  if not found then
    perform fencepost._refuse('not_found', 'judge_user', coalesce(p_name, 'null'), '{}', null);
  end if;
  insert into fencepost.judge_token (digest, name, label, made_at, expires_at)
  values (p_digest, p_name, p_label, v_now, v_now + p_lifetime) returning token_id into v_id;
  perform fencepost._event(v_now, 'judge_user', p_name, 'token_made', p_actor, v_id, jsonb_build_object('label', p_label));
  return v_id;
end $$;

-- Revoke a token. Revoking it again changes nothing.
create or replace function fencepost.judge_token_revoke(p_token_id bigint, p_actor text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now  timestamptz := fencepost.clock();
  v_name text;
begin
  perform fencepost._check_text('actor', p_actor, 256);
  update fencepost.judge_token t set revoked_at = coalesce(t.revoked_at, v_now) where t.token_id = p_token_id
  returning t.name into v_name;
  if not found then
    perform fencepost._refuse('not_found', 'judge_token', coalesce(p_token_id::text, 'null'), '{}', null);
  end if;
  perform fencepost._event(v_now, 'judge_user', v_name, 'token_revoked', p_actor, p_token_id, '{}');
end $$;

-- The tokens of a user, oldest first, without their digests. Served by judge_token_by_name.
create or replace function fencepost.judge_tokens(p_name text)
returns table (token_id bigint, name text, label text, made_at timestamptz, expires_at timestamptz, used_at timestamptz,
               revoked_at timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  return query select t.token_id, t.name, t.label, t.made_at, t.expires_at, t.used_at, t.revoked_at
               from fencepost.judge_token t where t.name = p_name order by t.token_id;
end $$;

-- The user of a token; nothing when it is unknown, expired or revoked, or its user is disabled. Written at most once a
-- minute.
create or replace function fencepost.judge_token_use(p_digest bytea) returns table (name text, role text)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now  timestamptz := fencepost.clock();
  v_used timestamptz;
begin
  select u.name, u.role, t.used_at into name, role, v_used
  from fencepost.judge_token t join fencepost.judge_user u on u.name = t.name
  where t.digest = p_digest and t.expires_at > v_now and t.revoked_at is null and u.disabled_at is null;
  if not found then
    return;
  end if;
  if v_used is null or v_used < v_now - interval '1 minute' then
    update fencepost.judge_token t set used_at = v_now where t.digest = p_digest;
  end if;
  return next;
end $$;

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
      using errcode = 'ZF102', hint = 'Wait, and submit again.';
  end if;
  update fencepost.judge_allowance a set tokens = v_tokens - 1, refilled_at = greatest(a.refilled_at, v_now) where a.name = p_name;
end $$;
