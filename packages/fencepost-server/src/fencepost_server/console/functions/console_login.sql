-- Authentication: password, one-time link, session and API token. VOLATILE throughout, as in console_accounts.sql.

-- Begin a login by password: the attempt is counted before the password is checked. Returns the hash, or how long to wait. Ten
-- attempts for a name, fifty for an address, in p_window. One user's attempts are serialized, so that all are counted: by the row
-- lock, which the read-only role cannot take, as it could an advisory lock. An unknown name has no password to guess.
create or replace function fencepost.console_login_begin(p_name text, p_address text, p_window interval)
returns table (password text, role text, wait_seconds double precision)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now     timestamptz;
  v_tenth   timestamptz;
  v_fiftieth timestamptz;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('name', p_name, 64);
  perform fencepost._check_text('address', p_address, 256);
  perform from fencepost.console_user u where u.name = p_name for no key update;
  v_now := fencepost.clock();
  delete from fencepost.console_attempt a where a.attempt_id = any (array(
    select o.attempt_id from fencepost.console_attempt o where o.at < v_now - p_window order by o.at limit 1000
    for update skip locked));
  select a.at into v_tenth from fencepost.console_attempt a
  where a.name = p_name and a.at > v_now - p_window order by a.at desc offset 9 limit 1;
  select a.at into v_fiftieth from fencepost.console_attempt a
  where a.address = p_address and a.at > v_now - p_window order by a.at desc offset 49 limit 1;
  wait_seconds := extract(epoch from greatest(v_tenth, v_fiftieth) + p_window - v_now);
  if wait_seconds is null then
    insert into fencepost.console_attempt (at, name, address) values (v_now, p_name, p_address);
    select u.password, u.role into password, role from fencepost.console_user u where u.name = p_name and u.disabled_at is null;
  end if;
  return next;
end $$;

-- Begin a login from a browser that has logged in as p_name before. Strangers' wrong passwords do not count against it: each of
-- its own, from the third on, doubles its wait, to a minute at most. So no stranger can lock its user out.
create or replace function fencepost.console_login_begin_known(p_name text, p_known text, p_window interval)
returns table (password text, role text, wait_seconds double precision)
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
  perform from fencepost.console_user u where u.name = p_name for no key update;
  v_now := fencepost.clock();
  select count(*), max(a.at) into v_tries, v_last from fencepost.console_attempt a
  where a.address = 'known:' || p_known and a.at > v_now - p_window;
  if v_tries >= 3 and v_last + make_interval(secs => least(60, 2 ^ (v_tries - 2))) > v_now then
    wait_seconds := extract(epoch from v_last + make_interval(secs => least(60, 2 ^ (v_tries - 2))) - v_now);
  else
    insert into fencepost.console_attempt (at, name, address) values (v_now, p_name, 'known:' || p_known);
    select u.password, u.role into password, role from fencepost.console_user u where u.name = p_name and u.disabled_at is null;
  end if;
  return next;
end $$;

-- The password was right: its attempts are deleted, and a better hash is stored when one was made. Or it was wrong.
create or replace function fencepost.console_login_end(p_name text, p_address text, p_right boolean, p_rehashed text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  if p_right then
    delete from fencepost.console_attempt a where a.name = p_name;
    update fencepost.console_user u set password = p_rehashed where u.name = p_name and p_rehashed is not null;
  end if;
  perform fencepost._console_note(p_name, '', 'login', p_name, case when p_right then 'done' else 'wrong password' end, '{}', p_address);
end $$;

-- A session for an authenticated user. Old sessions are deleted too.
create or replace function fencepost.console_session_begin(
  p_digest bytea, p_name text, p_lifetime interval, p_address text, p_agent text
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz := fencepost.clock();
begin
  perform fencepost._check_duration('lifetime', p_lifetime, interval '30 days');
  delete from fencepost.console_session s where s.digest = any (array(
    select o.digest from fencepost.console_session o where o.expires_at < v_now order by o.expires_at limit 1000
    for update skip locked));
  insert into fencepost.console_session (digest, name, made_at, seen_at, expires_at, address, agent)
  select p_digest, u.name, v_now, v_now, v_now + p_lifetime, left(p_address, 256), left(p_agent, 256)
  from fencepost.console_user u where u.name = p_name and u.disabled_at is null;
  if not found then
    perform fencepost._refuse('not_found', 'user', coalesce(p_name, 'null'), '{}', null);
  end if;
end $$;

-- The user of a session; nothing when it is unknown, expired, or was idle for p_idle. Written at most once a minute.
create or replace function fencepost.console_session_use(p_digest bytea, p_idle interval)
returns table (name text, role text)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now  timestamptz := fencepost.clock();
  v_seen timestamptz;
begin
  select u.name, u.role, s.seen_at into name, role, v_seen
  from fencepost.console_session s join fencepost.console_user u on u.name = s.name
  where s.digest = p_digest and s.expires_at > v_now and s.seen_at > v_now - p_idle and u.disabled_at is null;
  if not found then
    return;
  end if;
  if v_seen < v_now - interval '1 minute' then
    update fencepost.console_session s set seen_at = v_now where s.digest = p_digest;
  end if;
  return next;
end $$;

-- Log out. Returns nothing: a session that does not exist is over as well.
create or replace function fencepost.console_session_end(p_digest bytea) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  delete from fencepost.console_session s where s.digest = p_digest;
end $$;

-- A link that logs its bearer in once, as p_name, who is created with p_role and without a password when missing.
create or replace function fencepost.console_ticket_make(p_digest bytea, p_name text, p_role text, p_lifetime interval) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz := fencepost.clock();
begin
  perform fencepost._check_duration('lifetime', p_lifetime, interval '1 day');
  perform fencepost._console_check_role(p_role);
  insert into fencepost.console_user (name, role, made_at, made_by) values (p_name, p_role, v_now, 'login link')
  on conflict (name) do nothing;
  delete from fencepost.console_ticket t where t.expires_at < v_now;
  insert into fencepost.console_ticket (digest, name, made_at, expires_at) values (p_digest, p_name, v_now, v_now + p_lifetime);
  perform fencepost._console_note(p_name, p_role, 'link.make', p_name, 'done', '{}', '');
end $$;

-- Use a link: the first use deletes it, also when two are concurrent. Returns nothing when it is not valid.
create or replace function fencepost.console_ticket_use(p_digest bytea, p_address text) returns table (name text, role text)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now  timestamptz := fencepost.clock();
  v_user fencepost.console_user;
  v_name text;
begin
  delete from fencepost.console_ticket t where t.digest = p_digest and t.expires_at > v_now returning t.name into v_name;
  select * into v_user from fencepost.console_user u where u.name = v_name and u.disabled_at is null;
  if not found then
    return;
  end if;
  perform fencepost._console_note(v_user.name, v_user.role, 'link.use', v_user.name, 'done', '{}', p_address);
  return query select v_user.name, v_user.role;
end $$;

-- A token for programs, with at most the role that its user has at the time of use.
create or replace function fencepost.console_token_make(
  p_digest bytea, p_name text, p_label text, p_role text, p_lifetime interval
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz := fencepost.clock();
  v_id  bigint;
begin
  perform fencepost._check_text('label', p_label, 128);
  perform fencepost._console_check_role(p_role);
  perform fencepost._check_duration('lifetime', p_lifetime, interval '1000 days');
  insert into fencepost.console_token (digest, name, label, role, made_at, expires_at)
  select p_digest, u.name, p_label, fencepost._console_lesser(p_role, u.role), v_now, v_now + p_lifetime
  from fencepost.console_user u where u.name = p_name and u.disabled_at is null
  returning token_id into v_id;
  if v_id is null then
    perform fencepost._refuse('not_found', 'user', coalesce(p_name, 'null'), '{}', null);
  end if;
  return v_id;
end $$;

-- The user of a token; nothing when it is unknown, expired or revoked. Written at most once a minute.
create or replace function fencepost.console_token_use(p_digest bytea) returns table (name text, role text)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now  timestamptz := fencepost.clock();
  v_used timestamptz;
begin
  select u.name, fencepost._console_lesser(t.role, u.role), t.used_at into name, role, v_used
  from fencepost.console_token t join fencepost.console_user u on u.name = t.name
  where t.digest = p_digest and t.revoked_at is null and t.expires_at > v_now and u.disabled_at is null;
  if not found then
    return;
  end if;
  if v_used is null or v_used < v_now - interval '1 minute' then
    update fencepost.console_token t set used_at = v_now where t.digest = p_digest;
  end if;
  return next;
end $$;

-- The tokens of one user, newest first; without their secrets, which are not stored.
create or replace function fencepost.console_tokens(p_name text)
returns table (token_id bigint, label text, role text, made_at timestamptz, expires_at timestamptz, used_at timestamptz,
               revoked_at timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  return query select t.token_id, t.label, t.role, t.made_at, t.expires_at, t.used_at, t.revoked_at
  from fencepost.console_token t where t.name = p_name order by t.token_id desc limit 200;
end $$;

-- Revoke one's own token. A token of another user is not found.
create or replace function fencepost.console_token_revoke(p_id bigint, p_name text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  update fencepost.console_token t set revoked_at = coalesce(t.revoked_at, fencepost.clock()) where t.token_id = p_id and t.name = p_name;
  if not found then
    perform fencepost._refuse('not_found', 'token', coalesce(p_id::text, 'null'), '{}', null);
  end if;
end $$;
