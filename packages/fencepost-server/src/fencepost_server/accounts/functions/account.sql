-- Accounts and their roles in services. Every function of the accounts is VOLATILE, also one that only reads: so the read-only role
-- may call none of them.
--
-- Locks: the account's row, then the row of its role in a service, then its sessions, links and tokens.

create or replace function fencepost._account_check_role(p_service text, p_role text) returns void
language plpgsql stable
as $$
begin
  perform fencepost._check_word('role', p_role, array(
    select r.role from fencepost.account_service_role r where r.service = p_service order by r.rank));
end $$;

create or replace function fencepost._account_check_name(p_name text) returns void
language plpgsql immutable
as $$
begin
  perform fencepost._check_text('name', p_name, 64);
  if p_name !~ '^[A-Za-z0-9][A-Za-z0-9._@-]*$' then
    raise exception 'name % may hold letters, digits and . _ @ - only.', quote_literal(p_name)
      using errcode = 'ZF100', detail = '{"field": "name"}';
  end if;
end $$;

-- The lower of two roles of a service: a token never has more rights than its user.
create or replace function fencepost._account_lesser(p_service text, p_one text, p_other text) returns text
language sql stable
as $$
  select r.role from fencepost.account_service_role r
  where r.service = p_service and r.role in (p_one, p_other) order by r.rank limit 1
$$;

-- One service's administrators, and its tokens, decide about that service only. A password opens every service in which the account
-- has a role, so only its owner and the operator at the command line may set it then.
create or replace function fencepost._account_check_only_of(p_service text, p_name text) returns void
language plpgsql stable
as $$
declare
  v_other text;
begin
  select r.service into v_other from fencepost.account_role r where r.name = p_name and r.service <> p_service order by 1 limit 1;
  if found then
    raise exception '% has a role in the % too, so that its password is not set from the %.', p_name, v_other, p_service
      using errcode = 'ZF100', detail = '{"field": "password"}',
            hint = 'Its owner can change it there; an operator can set it with the command line.';
  end if;
end $$;

-- The key that signs cookies.
create or replace function fencepost.account_key() returns bytea
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  return (select k.key from fencepost.account_key k where k.only_row);
end $$;

-- Whether the service has users, disabled ones included: then every request is authenticated, and the address of a login counts.
create or replace function fencepost.account_has_users(p_service text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  return exists (select 1 from fencepost.account_role r where r.service = p_service);
end $$;

-- Whether the service has an account with a password, and with the highest role.
create or replace function fencepost.account_has_admin(p_service text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  return exists (
    select 1 from fencepost.account_role r join fencepost.account a on a.name = r.name
    where r.service = p_service and a.password is not null and r.disabled_at is null and r.role = (
      select k.role from fencepost.account_service_role k where k.service = p_service order by k.rank desc limit 1));
end $$;

-- Give an account a role in a service; it is created when missing, and enabled again when disabled. A null password keeps the old
-- one. Its sessions of the service end; with a new password, all of them. p_by_service: an administrator of the service asks.
create or replace function fencepost.account_set(
  p_service text, p_name text, p_role text, p_password text, p_actor text, p_by_service boolean
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz := fencepost.clock();
begin
  perform fencepost._require_read_committed();
  perform fencepost._account_check_name(p_name);
  perform fencepost._account_check_role(p_service, p_role);
  perform fencepost._check_text('actor', p_actor, 256);
  insert into fencepost.account (name, made_at, made_by) values (p_name, v_now, p_actor) on conflict (name) do nothing;
  -- Locked: a concurrent role in another service is seen by the check of the password, or waits for it.
  perform from fencepost.account a where a.name = p_name for no key update;
  insert into fencepost.account_role (service, name, role, made_at, made_by) values (p_service, p_name, p_role, v_now, p_actor)
  on conflict (service, name) do update set role = excluded.role, disabled_at = null;
  delete from fencepost.account_session s where s.name = p_name and s.service = p_service;
  if p_password is not null then
    perform fencepost._account_password(p_service, p_name, p_password, p_by_service);
  end if;
  perform fencepost._account_note(p_service, p_actor, '', 'user.set', p_name, 'done',
    jsonb_build_object('role', p_role, 'password', p_password is not null), '');
end $$;

-- Set the password of an account with a role in the service, as a hash. All of its sessions end.
create or replace function fencepost.account_password_set(
  p_service text, p_name text, p_password text, p_actor text, p_by_service boolean
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('actor', p_actor, 256);
  perform from fencepost.account a where a.name = p_name for no key update;
  perform from fencepost.account_role r where r.service = p_service and r.name = p_name and r.disabled_at is null for no key update;
  if not found then
    perform fencepost._refuse('not_found', 'user', coalesce(p_name, 'null'), '{}', null);
  end if;
  perform fencepost._account_password(p_service, p_name, p_password, p_by_service);
  perform fencepost._account_note(p_service, p_actor, '', 'user.password', p_name, 'done', '{}', '');
end $$;

create or replace function fencepost._account_password(p_service text, p_name text, p_password text, p_by_service boolean)
returns void
language plpgsql volatile
as $$
begin
  perform fencepost._check_text('password', p_password, 1000);
  if p_by_service then
    perform fencepost._account_check_only_of(p_service, p_name);
  end if;
  update fencepost.account a set password = p_password where a.name = p_name;
  delete from fencepost.account_session s where s.name = p_name;
end $$;

-- Disable an account in a service: its sessions, links and tokens of the service end permanently, even if it is enabled again.
create or replace function fencepost.account_disable(p_service text, p_name text, p_actor text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz := fencepost.clock();
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('actor', p_actor, 256);
  update fencepost.account_role r set disabled_at = coalesce(r.disabled_at, v_now) where r.service = p_service and r.name = p_name;
  if not found then
    perform fencepost._refuse('not_found', 'user', coalesce(p_name, 'null'), '{}', null);
  end if;
  delete from fencepost.account_session s where s.name = p_name and s.service = p_service;
  delete from fencepost.account_ticket t where t.digest in (
    select k.digest from fencepost.account_ticket k where k.name = p_name and k.service = p_service);
  update fencepost.account_token t set revoked_at = v_now
  where t.name = p_name and t.service = p_service and t.revoked_at is null;
  perform fencepost._account_note(p_service, p_actor, '', 'user.disable', p_name, 'done', '{}', '');
end $$;

-- One page of a service's users in order of name, without passwords: those after p_after. Served by account_role_pkey.
create or replace function fencepost.account_users(p_service text, p_after text, p_limit integer)
returns table (name text, role text, has_password boolean, made_at timestamptz, made_by text, disabled_at timestamptz,
               seen_at timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  perform fencepost._check_limit(p_limit);
  return query
  select r.name, r.role, a.password is not null, r.made_at, r.made_by, r.disabled_at,
         (select max(s.seen_at) from fencepost.account_session s where s.name = r.name and s.service = p_service)
  from fencepost.account_role r join fencepost.account a on a.name = r.name
  where r.service = p_service and r.name > coalesce(p_after, '') order by r.name limit p_limit;
end $$;
