-- Logins to the judge's pages: passwords and sessions. Every function here is VOLATILE, even those that only read, so that
-- the read-only role can call none of them.

-- The key that signs cookies.
create or replace function fencepost.judge_key() returns bytea
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  return (select k.key from fencepost.judge_key k where k.only_row);
end $$;

-- Set a user's password, as a hash. Ends the sessions that began with the old one.
create or replace function fencepost.judge_password_set(p_name text, p_password text, p_actor text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._check_text('password', p_password, 1000);
  perform fencepost._check_text('actor', p_actor, 256);
  update fencepost.judge_user u set password = p_password where u.name = p_name and u.disabled_at is null;
  if not found then
    perform fencepost._refuse('not_found', 'judge_user', coalesce(p_name, 'null'), '{}', null);
  end if;
  delete from fencepost.judge_session s where s.name = p_name;
  perform fencepost._event(fencepost.clock(), 'judge_user', p_name, 'password_set', p_actor, null, '{}');
end $$;

-- Begin a login by password: the attempt is counted before the password is checked. Returns the hash, or how long to wait.
-- Ten attempts for a name, fifty for an address, in p_window. A row lock serializes the attempts of one user, so that each
-- is counted; the read-only role cannot take it, as it could an advisory lock. An unknown name has no password to guess.
create or replace function fencepost.judge_login_begin(p_name text, p_address text, p_window interval)
returns table (password text, wait_seconds double precision)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now      timestamptz;
  v_tenth    timestamptz;
  v_fiftieth timestamptz;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('name', p_name, 64);
  perform fencepost._check_text('address', p_address, 256);
  perform from fencepost.judge_user u where u.name = p_name for no key update;
  v_now := fencepost.clock();
  delete from fencepost.judge_attempt a where a.attempt_id = any (array(
    select o.attempt_id from fencepost.judge_attempt o where o.at < v_now - p_window order by o.at limit 1000
    for update skip locked));
  select a.at into v_tenth from fencepost.judge_attempt a
  where a.name = p_name and a.at > v_now - p_window order by a.at desc offset 9 limit 1;
  select a.at into v_fiftieth from fencepost.judge_attempt a
  where a.address = p_address and a.at > v_now - p_window order by a.at desc offset 49 limit 1;
  wait_seconds := extract(epoch from greatest(v_tenth, v_fiftieth) + p_window - v_now);
  if wait_seconds is null then
    insert into fencepost.judge_attempt (at, name, address) values (v_now, p_name, p_address);
    select u.password into password from fencepost.judge_user u where u.name = p_name and u.disabled_at is null;
  end if;
  return next;
end $$;

-- Begin a login from a browser that has logged in as p_name before. Wrong passwords from other clients do not count against
-- it; from the third on, each of its own doubles its wait, up to a minute. So no other client can lock out the user.
create or replace function fencepost.judge_login_begin_known(p_name text, p_known text, p_window interval)
returns table (password text, wait_seconds double precision)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now   timestamptz;
  v_tries bigint;
  v_last  timestamptz;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('name', p_name, 64);
  perform fencepost._check_text('known', p_known, 128);
  perform from fencepost.judge_user u where u.name = p_name for no key update;
  v_now := fencepost.clock();
  select count(*), max(a.at) into v_tries, v_last from fencepost.judge_attempt a
  where a.address = 'known:' || p_known and a.at > v_now - p_window;
  if v_tries >= 3 and v_last + make_interval(secs => least(60, 2 ^ (v_tries - 2))) > v_now then
    wait_seconds := extract(epoch from v_last + make_interval(secs => least(60, 2 ^ (v_tries - 2))) - v_now);
  else
    insert into fencepost.judge_attempt (at, name, address) values (v_now, p_name, 'known:' || p_known);
    select u.password into password from fencepost.judge_user u where u.name = p_name and u.disabled_at is null;
  end if;
  return next;
end $$;

-- The password was right: delete the attempts of its user, and store a better hash if one was made.
create or replace function fencepost.judge_login_end(p_name text, p_rehashed text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  delete from fencepost.judge_attempt a where a.name = p_name;
  update fencepost.judge_user u set password = p_rehashed where u.name = p_name and p_rehashed is not null;
end $$;

-- Begin a session for an authenticated user. Also removes old sessions.
create or replace function fencepost.judge_session_begin(p_digest bytea, p_name text, p_lifetime interval) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz := fencepost.clock();
begin
  perform fencepost._check_duration('lifetime', p_lifetime, interval '30 days');
  delete from fencepost.judge_session s where s.digest = any (array(
    select o.digest from fencepost.judge_session o where o.expires_at < v_now order by o.expires_at limit 1000
    for update skip locked));
  -- Locked: a concurrent disabling of the user either ends this session too, or prevents its creation.
  perform from fencepost.judge_user u where u.name = p_name and u.disabled_at is null for no key update;
  if not found then
    perform fencepost._refuse('not_found', 'judge_user', coalesce(p_name, 'null'), '{}', null);
  end if;
  insert into fencepost.judge_session (digest, name, made_at, seen_at, expires_at)
  values (p_digest, p_name, v_now, v_now, v_now + p_lifetime);
end $$;

-- The user of a session; nothing when it is unknown, expired, or was idle for p_idle. Written at most once a minute.
create or replace function fencepost.judge_session_use(p_digest bytea, p_idle interval) returns table (name text, role text)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now  timestamptz := fencepost.clock();
  v_seen timestamptz;
begin
  select u.name, u.role, s.seen_at into name, role, v_seen
  from fencepost.judge_session s join fencepost.judge_user u on u.name = s.name
  where s.digest = p_digest and s.expires_at > v_now and s.seen_at > v_now - p_idle and u.disabled_at is null;
  if not found then
    return;
  end if;
  if v_seen < v_now - interval '1 minute' then
    update fencepost.judge_session s set seen_at = v_now where s.digest = p_digest;
  end if;
  return next;
end $$;

-- Log out. Succeeds also for a session that does not exist.
create or replace function fencepost.judge_session_end(p_digest bytea) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  delete from fencepost.judge_session s where s.digest = p_digest;
end $$;
