-- What a browser or a program carries: sessions and API tokens. VOLATILE throughout, as in account.sql.

-- A session for an authenticated account. Old sessions are deleted too.
create or replace function fencepost.account_session_begin(
  p_digest bytea, p_service text, p_name text, p_lifetime interval, p_address text, p_agent text
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz := fencepost.clock();
begin
  perform fencepost._check_duration('lifetime', p_lifetime, interval '30 days');
  delete from fencepost.account_session s where s.digest = any (array(
    select o.digest from fencepost.account_session o where o.expires_at < v_now order by o.expires_at limit 1000
    for update skip locked));
  -- Locked: a concurrent disabling of the account either ends this session too, or prevents its creation.
  perform from fencepost.account_role r where r.service = p_service and r.name = p_name and r.disabled_at is null for no key update;
  if not found then
    perform fencepost._refuse('not_found', 'user', coalesce(p_name, 'null'), '{}', null);
  end if;
  insert into fencepost.account_session (digest, service, name, made_at, seen_at, expires_at, address, agent)
  values (p_digest, p_service, p_name, v_now, v_now, v_now + p_lifetime, left(p_address, 256), left(p_agent, 256));
end $$;

-- The account of a session of the service; nothing when it is unknown, expired, or was idle for p_idle. Written at most once a minute.
create or replace function fencepost.account_session_use(p_digest bytea, p_service text, p_idle interval)
returns table (name text, role text)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now  timestamptz := fencepost.clock();
  v_seen timestamptz;
begin
  select r.name, r.role, s.seen_at into name, role, v_seen
  from fencepost.account_session s join fencepost.account_role r on r.service = s.service and r.name = s.name
  where s.digest = p_digest and s.service = p_service and s.expires_at > v_now and s.seen_at > v_now - p_idle
    and r.disabled_at is null;
  if not found then
    return;
  end if;
  if v_seen < v_now - interval '1 minute' then
    update fencepost.account_session s set seen_at = v_now where s.digest = p_digest;
  end if;
  return next;
end $$;

-- Log out. Returns nothing: a session that does not exist is over as well.
create or replace function fencepost.account_session_end(p_digest bytea) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  delete from fencepost.account_session s where s.digest = p_digest;
end $$;

-- A token for programs, of one service, with at most p_role, and at most the role that its account has when it is used. Without p_role:
-- with the role that the account has now. Only the digest is stored; the token itself is shown once.
create or replace function fencepost.account_token_make(
  p_digest bytea, p_service text, p_name text, p_label text, p_role text, p_lifetime interval, p_actor text
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now  timestamptz := fencepost.clock();
  v_role text;
  v_id   bigint;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('label', p_label, 100);
  perform fencepost._check_duration('lifetime', p_lifetime, interval '1000 days');
  perform fencepost._check_text('actor', p_actor, 256);
  if p_role is not null then
    perform fencepost._account_check_role(p_service, p_role);
  end if;
  -- Locked: a concurrent disabling of the account either revokes this token too, or prevents its creation.
  select r.role into v_role from fencepost.account_role r
  where r.service = p_service and r.name = p_name and r.disabled_at is null for no key update;
  if not found then
    perform fencepost._refuse('not_found', 'user', coalesce(p_name, 'null'), '{}', null);
  end if;
  insert into fencepost.account_token (digest, service, name, label, role, made_at, expires_at)
  values (p_digest, p_service, p_name, p_label, fencepost._account_lesser(p_service, coalesce(p_role, v_role), v_role),
          v_now, v_now + p_lifetime)
  returning token_id into v_id;
  perform fencepost._account_note(p_service, p_actor, '', 'token.made', p_name, 'done',
    jsonb_build_object('token_id', v_id, 'label', p_label), '');
  return v_id;
end $$;

-- The account of a token of the service; nothing when it is unknown, expired or revoked. Written at most once a minute.
create or replace function fencepost.account_token_use(p_digest bytea, p_service text) returns table (name text, role text)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now  timestamptz := fencepost.clock();
  v_used timestamptz;
begin
  select r.name, fencepost._account_lesser(p_service, t.role, r.role), t.used_at into name, role, v_used
  from fencepost.account_token t join fencepost.account_role r on r.service = t.service and r.name = t.name
  where t.digest = p_digest and t.service = p_service and t.revoked_at is null and t.expires_at > v_now and r.disabled_at is null;
  if not found then
    return;
  end if;
  if v_used is null or v_used < v_now - interval '1 minute' then
    update fencepost.account_token t set used_at = v_now where t.digest = p_digest;
  end if;
  return next;
end $$;

-- The tokens of one account in a service, newest first; without their secrets, which are not stored. Served by account_token_by_name.
create or replace function fencepost.account_tokens(p_service text, p_name text)
returns table (token_id bigint, label text, role text, made_at timestamptz, expires_at timestamptz, used_at timestamptz,
               revoked_at timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  return query select t.token_id, t.label, t.role, t.made_at, t.expires_at, t.used_at, t.revoked_at
  from fencepost.account_token t where t.name = p_name and t.service = p_service order by t.token_id desc limit 200;
end $$;

-- Revoke a token of the service; with p_owner, only a token of that account. Any other is not found. Again changes nothing.
create or replace function fencepost.account_token_revoke(p_id bigint, p_service text, p_owner text, p_actor text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_name text;
begin
  perform fencepost._check_text('actor', p_actor, 256);
  update fencepost.account_token t set revoked_at = coalesce(t.revoked_at, fencepost.clock())
  where t.token_id = p_id and t.service = p_service and (p_owner is null or t.name = p_owner)
  returning t.name into v_name;
  if not found then
    perform fencepost._refuse('not_found', 'token', coalesce(p_id::text, 'null'), '{}', null);
  end if;
  perform fencepost._account_note(p_service, p_actor, '', 'token.revoked', v_name, 'done', jsonb_build_object('token_id', p_id), '');
end $$;
