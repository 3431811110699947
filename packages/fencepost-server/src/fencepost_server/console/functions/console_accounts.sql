-- Users and their roles. Every function here is VOLATILE, also one that only reads: so the read-only role may call none of them.

create or replace function fencepost._console_check_role(p_role text) returns void
language plpgsql immutable
as $$
begin
  perform fencepost._check_word('role', p_role, array['viewer', 'operator', 'admin']);
end $$;

create or replace function fencepost._console_check_name(p_name text) returns void
language plpgsql immutable
as $$
begin
  perform fencepost._check_text('name', p_name, 64);
  if p_name !~ '^[A-Za-z0-9][A-Za-z0-9._@-]*$' then
    raise exception 'name % may hold letters, digits and . _ @ - only.', quote_literal(p_name)
      using errcode = 'ZF100', detail = '{"field": "name"}';
  end if;
end $$;

-- The lower of two roles: a token never has more rights than its user.
create or replace function fencepost._console_lesser(p_one text, p_other text) returns text
language sql immutable
as $$
  select (array['viewer', 'operator', 'admin'])[least(array_position(array['viewer', 'operator', 'admin'], p_one),
                                                      array_position(array['viewer', 'operator', 'admin'], p_other))]
$$;

-- The key that signs cookies.
create or replace function fencepost.console_key() returns bytea
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  return (select k.key from fencepost.console_key k where k.only_row);
end $$;

-- Whether an administrator with a password exists: without one the console stays on loopback.
create or replace function fencepost.console_has_admin() returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  return exists (select 1 from fencepost.console_user u
                 where u.role = 'admin' and u.password is not null and u.disabled_at is null);
end $$;

-- Whether any user may log in: then an address counts in the limit of logins and in the audit.
create or replace function fencepost.console_has_users() returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  return exists (select 1 from fencepost.console_user u where u.disabled_at is null);
end $$;

-- Create a user, or change one. A null password keeps the old one. The user's sessions end.
create or replace function fencepost.console_user_set(p_name text, p_role text, p_password text, p_actor text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz := fencepost.clock();
begin
  perform fencepost._require_read_committed();
  perform fencepost._console_check_name(p_name);
  perform fencepost._console_check_role(p_role);
  perform fencepost._check_text('actor', p_actor, 256);
  insert into fencepost.console_user (name, role, password, made_at, made_by)
  values (p_name, p_role, p_password, v_now, p_actor)
  on conflict (name) do update
    set role = excluded.role, password = coalesce(excluded.password, console_user.password), disabled_at = null;
  delete from fencepost.console_session s where s.name = p_name;
  perform fencepost._console_note(p_actor, 'admin', 'user.set', p_name, 'done',
    jsonb_build_object('role', p_role, 'password', p_password is not null), '');
end $$;

-- Disable an account: its sessions, links and tokens end with it.
create or replace function fencepost.console_user_disable(p_name text, p_actor text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz := fencepost.clock();
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('actor', p_actor, 256);
  update fencepost.console_user u set disabled_at = coalesce(u.disabled_at, v_now) where u.name = p_name;
  if not found then
    perform fencepost._refuse('not_found', 'user', coalesce(p_name, 'null'), '{}', null);
  end if;
  delete from fencepost.console_session s where s.name = p_name;
  delete from fencepost.console_ticket t where t.digest in (select k.digest from fencepost.console_ticket k where k.name = p_name);
  update fencepost.console_token t set revoked_at = v_now where t.name = p_name and t.revoked_at is null;
  perform fencepost._console_note(p_actor, 'admin', 'user.disable', p_name, 'done', '{}', '');
end $$;

-- One page of all users in order of name, without passwords: those after p_after. Served by the primary key.
create or replace function fencepost.console_users(p_after text default null, p_limit integer default 10000)
returns table (name text, role text, has_password boolean, made_at timestamptz, made_by text, disabled_at timestamptz,
               seen_at timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._check_limit(p_limit);
  return query select u.name, u.role, u.password is not null, u.made_at, u.made_by, u.disabled_at,
                      (select max(s.seen_at) from fencepost.console_session s where s.name = u.name)
               from fencepost.console_user u where u.name > coalesce(p_after, '') order by u.name limit p_limit;
end $$;

create or replace function fencepost._console_note(
  p_actor text, p_role text, p_action text, p_subject text, p_outcome text, p_detail jsonb, p_address text
) returns bigint
language sql volatile
as $$
  insert into fencepost.console_audit (at, actor, role, action, subject, outcome, detail, address)
  values (fencepost.clock(), p_actor, p_role, p_action, left(p_subject, 1200), p_outcome, coalesce(p_detail, '{}'), p_address)
  returning audit_id
$$;

-- Record an action before it happens: an action that is not recorded does not happen.
create or replace function fencepost.console_audit_begin(
  p_actor text, p_role text, p_action text, p_subject text, p_detail jsonb, p_address text
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._check_text('actor', p_actor, 256);
  perform fencepost._check_text('action', p_action, 64);
  perform fencepost._check_json('detail', p_detail, 16384);
  return fencepost._console_note(p_actor, p_role, p_action, p_subject, 'begun', p_detail, p_address);
end $$;

-- Record its result: done, or the reason why not. An entry that stays at 'begun' was interrupted; the subject's own history has
-- the result.
create or replace function fencepost.console_audit_end(p_id bigint, p_outcome text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._check_text('outcome', p_outcome, 128);
  update fencepost.console_audit a set outcome = p_outcome where a.audit_id = p_id and a.outcome = 'begun';
end $$;

-- The audit, newest first, below p_before; of one user when named. Served by the primary key, or by actor.
create or replace function fencepost.console_audit_page(p_actor text, p_before bigint, p_limit integer)
returns table (audit_id bigint, at timestamptz, actor text, role text, action text, subject text, outcome text, detail jsonb,
               address text)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_below bigint := coalesce(p_before, 9223372036854775807);
begin
  perform fencepost._check_limit(p_limit);
  if p_actor is null then
    return query select a.audit_id, a.at, a.actor, a.role, a.action, a.subject, a.outcome, a.detail, a.address
    from fencepost.console_audit a where a.audit_id < v_below order by a.audit_id desc limit p_limit;
  else
    return query select a.audit_id, a.at, a.actor, a.role, a.action, a.subject, a.outcome, a.detail, a.address
    from fencepost.console_audit a where a.actor = p_actor and a.audit_id < v_below order by a.audit_id desc limit p_limit;
  end if;
end $$;
