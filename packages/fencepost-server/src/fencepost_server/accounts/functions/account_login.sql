-- Logins: by password, by one-time link, and by single sign-on. VOLATILE throughout, as in account.sql.

-- Begin a login by password: the attempt is counted before the password is checked. Returns the hash, or how long to wait. Ten
-- attempts for a name, fifty for an address, in p_window, whatever the service. The row lock serializes the attempts of one account,
-- so that each is counted; the read-only role cannot take it, as it could an advisory lock. An unknown name, and one without a role in
-- the service, has no password to guess.
create or replace function fencepost.account_login_begin(p_service text, p_name text, p_address text, p_window interval)
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
  perform from fencepost.account a where a.name = p_name for no key update;
  v_now := fencepost.clock();
  delete from fencepost.account_attempt a where a.attempt_id = any (array(
    select o.attempt_id from fencepost.account_attempt o where o.at < v_now - p_window order by o.at limit 1000
    for update skip locked));
  select a.at into v_tenth from fencepost.account_attempt a
  where a.name = p_name and a.at > v_now - p_window order by a.at desc offset 9 limit 1;
  select a.at into v_fiftieth from fencepost.account_attempt a
  where a.address = p_address and a.at > v_now - p_window order by a.at desc offset 49 limit 1;
  wait_seconds := extract(epoch from greatest(v_tenth, v_fiftieth) + p_window - v_now);
  if wait_seconds is null then
    insert into fencepost.account_attempt (at, name, address) values (v_now, p_name, p_address);
    password := fencepost._account_hash(p_service, p_name);
  end if;
  return next;
end $$;

-- Begin a login from a browser that has logged in as p_name before. Wrong passwords from other clients do not count against it: each
-- of its own, from the third on, doubles its wait, to a minute at most. So no other client can lock the user out.
create or replace function fencepost.account_login_begin_known(p_service text, p_name text, p_known text, p_window interval)
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
  perform from fencepost.account a where a.name = p_name for no key update;
  v_now := fencepost.clock();
  select count(*), max(a.at) into v_tries, v_last from fencepost.account_attempt a
  where a.address = 'known:' || p_known and a.at > v_now - p_window;
  if v_tries >= 3 and v_last + make_interval(secs => least(60, 2 ^ (v_tries - 2))) > v_now then
    wait_seconds := extract(epoch from v_last + make_interval(secs => least(60, 2 ^ (v_tries - 2))) - v_now);
  else
    insert into fencepost.account_attempt (at, name, address) values (v_now, p_name, 'known:' || p_known);
    password := fencepost._account_hash(p_service, p_name);
  end if;
  return next;
end $$;

create or replace function fencepost._account_hash(p_service text, p_name text) returns text
language sql stable
as $$
  select a.password from fencepost.account a join fencepost.account_role r on r.name = a.name
  where a.name = p_name and r.service = p_service and r.disabled_at is null
$$;

-- The password was right: its attempts are deleted, and a better hash is stored when one was made. Or it was wrong.
create or replace function fencepost.account_login_end(
  p_service text, p_name text, p_address text, p_right boolean, p_rehashed text
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  if p_right then
    delete from fencepost.account_attempt a where a.name = p_name;
    update fencepost.account a set password = p_rehashed where a.name = p_name and p_rehashed is not null;
  end if;
  perform fencepost._account_note(p_service, p_name, '', 'login', p_name,
    case when p_right then 'done' else 'wrong password' end, '{}', p_address);
end $$;

-- A link that logs its bearer in once, as p_name. A name that is new becomes an account with p_role and without a password. An account
-- of other services is refused: its password, which others may have set, would open this service too.
create or replace function fencepost.account_ticket_make(
  p_digest bytea, p_service text, p_name text, p_role text, p_lifetime interval
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz := fencepost.clock();
begin
  perform fencepost._require_read_committed();
  perform fencepost._account_check_name(p_name);
  perform fencepost._check_duration('lifetime', p_lifetime, interval '1 day');
  perform fencepost._account_check_role(p_service, p_role);
  insert into fencepost.account (name, made_at, made_by) values (p_name, v_now, 'login link') on conflict (name) do nothing;
  if found then
    insert into fencepost.account_role (service, name, role, made_at, made_by) values (p_service, p_name, p_role, v_now, 'login link');
  end if;
  perform from fencepost.account_role r where r.service = p_service and r.name = p_name for no key update;
  if not found then
    raise exception '% is an account without a role in the %.', p_name, p_service
      using errcode = 'ZF100', detail = '{"field": "name"}', hint = 'Give it a role first, or make a link for another name.';
  end if;
  delete from fencepost.account_ticket t where t.expires_at < v_now;
  insert into fencepost.account_ticket (digest, service, name, made_at, expires_at)
  values (p_digest, p_service, p_name, v_now, v_now + p_lifetime);
  perform fencepost._account_note(p_service, p_name, p_role, 'link.make', p_name, 'done', '{}', '');
end $$;

-- Use a link: the first use deletes it, also when two are concurrent. Returns nothing when it is not valid.
create or replace function fencepost.account_ticket_use(p_digest bytea, p_service text, p_address text)
returns table (name text, role text)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_name text;
begin
  delete from fencepost.account_ticket t where t.digest = p_digest and t.service = p_service and t.expires_at > fencepost.clock()
  returning t.name into v_name;
  select r.name, r.role into name, role from fencepost.account_role r
  where r.service = p_service and r.name = v_name and r.disabled_at is null;
  if not found then
    return;
  end if;
  perform fencepost._account_note(p_service, name, role, 'link.use', name, 'done', '{}', p_address);
  return next;
end $$;

-- Single sign-on: an identity provider has authenticated a person. The account is found by the provider's subject, never by the user
-- name, which may be reassigned there. The role is the one that the provider gives now. `refused` is null, 'disabled', or
-- 'name_taken' by another account.
create or replace function fencepost.account_sign_on(
  p_service text, p_name text, p_role text, p_issuer text, p_subject text, p_address text
) returns table (name text, role text, refused text)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now  timestamptz := fencepost.clock();
  v_name text;
begin
  perform fencepost._require_read_committed();
  perform fencepost._account_check_name(p_name);
  perform fencepost._account_check_role(p_service, p_role);
  perform fencepost._check_text('issuer', p_issuer, 512);
  perform fencepost._check_text('subject', p_subject, 256);
  perform fencepost._check_text('address', p_address, 256);
  insert into fencepost.account (name, made_at, made_by, issuer, subject)
  values (p_name, v_now, 'single sign-on', p_issuer, p_subject) on conflict do nothing;
  select a.name into v_name from fencepost.account a where a.issuer = p_issuer and a.subject = p_subject for update;
  if not found then
    refused := 'name_taken';
  else
    insert into fencepost.account_role as r (service, name, role, made_at, made_by)
    values (p_service, v_name, p_role, v_now, 'single sign-on')
    on conflict (service, name) do update set role = excluded.role where r.role <> excluded.role and r.disabled_at is null;
    select case when r.disabled_at is not null then 'disabled' end into refused
    from fencepost.account_role r where r.service = p_service and r.name = v_name;
  end if;
  name := coalesce(v_name, p_name);
  role := p_role;
  perform fencepost._account_note(p_service, name, role, 'login', name, coalesce(refused, 'done'),
    jsonb_build_object('issuer', p_issuer, 'subject', p_subject), p_address);
  return next;
end $$;
