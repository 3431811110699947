-- Leases: one owner at a time for a resource, judged by the database's clock.
--
-- The token grows with every acquisition, also by the same owner after expiry, and stays for a renewal. The
-- row is never deleted and a release does not lower the token, so a token never comes back.
--
-- Locks. A fence takes FOR KEY SHARE on the row. A takeover changes the token, which is part of a unique key,
-- and so waits until every fenced transaction has ended. A renewal changes no key column and passes. FOR SHARE
-- would block the holder's own heartbeat; comparing tokens without the lock lets the takeover slip between the
-- check and the write.

-- One row as JSON, for refusals: the row that was seen, with the time at which it was judged.
create or replace function fencepost._lease_seen(p_lease fencepost.lease, p_now timestamptz) returns jsonb
language sql immutable
as $$
  select case when p_lease.resource is null then '{}'::jsonb else
    jsonb_build_object('owner', p_lease.owner, 'token', p_lease.token, 'acquired_at', p_lease.acquired_at,
                       'renewed_at', p_lease.renewed_at, 'expires_at', p_lease.expires_at, 'judged_at', p_now) end
$$;

create or replace function fencepost._lease_check(p_resource text, p_owner text, p_ttl interval) returns void
language plpgsql volatile
as $$
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('resource', p_resource, 512);
  perform fencepost._check_text('owner', p_owner, 256);
  perform fencepost._check_duration('ttl', p_ttl, interval '1 day');
end $$;

-- Acquire or renew, and never raise: outcome is acquired, renewed or a reason. Reads before it locks, because
-- a losing UPSERT would still lock the hot row.
create or replace function fencepost._lease_try(
  p_resource text, p_owner text, p_ttl interval, out outcome text, out held fencepost.lease
) language plpgsql volatile
as $$
declare
  v_now  timestamptz;
  v_gone fencepost.lease;
begin
  loop
    v_now := fencepost.clock();
    select * into held from fencepost.lease l where l.resource = p_resource;

    if not found then
      insert into fencepost.lease (resource, token, owner, ttl, acquired_at, renewed_at, expires_at)
      select p_resource, f.floor + 1, p_owner, p_ttl, v_now, v_now, v_now + p_ttl from fencepost.token_floor f
      -- On any key, not only the resource's: with one named, two concurrent first acquisitions end in a
      -- violation of the other.
      on conflict do nothing
      returning * into held;
      continue when not found; -- Another session inserted the row in between: read again.
      outcome := 'acquired';
      perform fencepost._event(v_now, 'lease', p_resource, 'acquired', p_owner, held.token, null);
      return;
    end if;

    if held.owner = p_owner and held.expires_at > v_now then
      -- The token in the condition: if the row was taken over since we read it, this is not a renewal.
      update fencepost.lease l set renewed_at = v_now, expires_at = v_now + p_ttl, ttl = p_ttl
      where l.resource = p_resource and l.token = held.token and l.owner = p_owner and l.expires_at > v_now
      returning * into held;
      continue when not found;
      outcome := 'renewed';
      return;
    end if;

    if held.owner is not null and held.expires_at > v_now then
      outcome := 'not_owner';
      return;
    end if;

    -- Free or expired. The lock waits for every fenced transaction of the old holder; meanwhile that holder
    -- may have renewed, or another taker may have won, so the row and the clock are read again under it.
    select * into held from fencepost.lease l where l.resource = p_resource for update;
    v_now := fencepost.clock();
    continue when held.owner is not null and held.expires_at > v_now;
    v_gone := held;
    update fencepost.lease l
    set token = greatest(l.token, (select f.floor from fencepost.token_floor f)) + 1, owner = p_owner, ttl = p_ttl,
        acquired_at = v_now, renewed_at = v_now, expires_at = v_now + p_ttl
    where l.resource = p_resource
    returning * into held;
    outcome := 'acquired';
    perform fencepost._event(v_now, 'lease', p_resource,
      case when v_gone.owner is null or v_gone.owner = p_owner then 'acquired' else 'taken_over' end, p_owner, held.token,
      jsonb_build_object('from', v_gone.owner, 'from_token', v_gone.token, 'expired_at', v_gone.expires_at));
    return;
  end loop;
end $$;

-- Acquire the resource, or renew it when p_owner holds it already. Raises not_owner while another owner holds
-- it.
-- The owner's name must carry a boot id: a restart under the same name would renew the dead process's token.
create or replace function fencepost.lease_acquire(p_resource text, p_owner text, p_ttl interval)
returns table (resource text, owner text, token bigint, acquired boolean, acquired_at timestamptz,
               renewed_at timestamptz, expires_at timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v record;
begin
  perform fencepost._lease_check(p_resource, p_owner, p_ttl);
  select * into v from fencepost._lease_try(p_resource, p_owner, p_ttl);
  if v.outcome not in ('acquired', 'renewed') then
    perform fencepost._refuse(v.outcome, 'lease', p_resource, jsonb_build_object('owner', p_owner, 'op', 'acquire'),
                              fencepost._lease_seen(v.held, fencepost.clock()));
  end if;
  return query select (v.held).resource, (v.held).owner, (v.held).token, v.outcome = 'acquired',
                      (v.held).acquired_at, (v.held).renewed_at, (v.held).expires_at;
end $$;

-- The same for many resources, in order of name; answers for each, refusal null or the reason.
create or replace function fencepost.lease_acquire_many(p_resources text[], p_owner text, p_ttl interval)
returns table (resource text, owner text, token bigint, acquired boolean, acquired_at timestamptz,
               renewed_at timestamptz, expires_at timestamptz, refusal text)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v          record;
  v_resource text;
begin
  for v_resource in select distinct r from unnest(p_resources) r order by r loop
    perform fencepost._lease_check(v_resource, p_owner, p_ttl);
    select * into v from fencepost._lease_try(v_resource, p_owner, p_ttl);
    if v.outcome not in ('acquired', 'renewed') then
      perform fencepost._refusal_note(v.outcome, 'lease', v_resource, p_owner, jsonb_build_object('owner', p_owner, 'op', 'acquire'),
                                      fencepost._lease_seen(v.held, fencepost.clock()));
    end if;
    return query select v_resource, (v.held).owner, (v.held).token, v.outcome = 'acquired', (v.held).acquired_at,
      (v.held).renewed_at, (v.held).expires_at,
      case when v.outcome in ('acquired', 'renewed') then null else v.outcome end;
  end loop;
end $$;

-- Why p_owner with p_token may not act on the row, or null when it may.
create or replace function fencepost._lease_verdict(
  p_lease fencepost.lease, p_token bigint, p_owner text, p_now timestamptz
) returns text
language sql immutable
as $$
  select case
    when p_lease.resource is null then 'not_found'
    when p_lease.token is distinct from p_token or p_lease.owner is null
      or p_lease.owner <> coalesce(p_owner, p_lease.owner) then 'not_owner'
    when p_lease.expires_at <= p_now then 'lease_expired'
  end
$$;

-- Renew under the token; never raises. FOR NO KEY UPDATE passes the holder's own fences.
create or replace function fencepost._lease_renew_try(
  p_resource text, p_owner text, p_token bigint, p_ttl interval, out refusal text, out held fencepost.lease
) language plpgsql volatile
as $$
declare
  v_now timestamptz;
begin
  select * into held from fencepost.lease l where l.resource = p_resource for no key update;
  v_now := fencepost.clock();
  refusal := fencepost._lease_verdict(held, p_token, p_owner, v_now);
  if refusal is null then
    update fencepost.lease l set renewed_at = v_now, expires_at = v_now + p_ttl, ttl = p_ttl
    where l.resource = p_resource
    returning * into held;
  end if;
end $$;

-- Renew: keeps token and acquired_at. Raises not_owner, lease_expired or not_found.
create or replace function fencepost.lease_renew(p_resource text, p_owner text, p_token bigint, p_ttl interval)
returns table (resource text, owner text, token bigint, acquired_at timestamptz, renewed_at timestamptz,
               expires_at timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v record;
begin
  perform fencepost._lease_check(p_resource, p_owner, p_ttl);
  perform fencepost._check_token('token', p_token);
  select * into v from fencepost._lease_renew_try(p_resource, p_owner, p_token, p_ttl);
  if v.refusal is not null then
    perform fencepost._refuse(v.refusal, 'lease', p_resource, jsonb_build_object('owner', p_owner, 'token', p_token, 'op', 'renew'),
                              fencepost._lease_seen(v.held, fencepost.clock()));
  end if;
  return query select (v.held).resource, (v.held).owner, (v.held).token, (v.held).acquired_at, (v.held).renewed_at,
                      (v.held).expires_at;
end $$;

-- Renew many, each under its token, in order of name; answers for each.
create or replace function fencepost.lease_renew_many(p_resources text[], p_owner text, p_tokens bigint[], p_ttl interval)
returns table (resource text, token bigint, expires_at timestamptz, refusal text)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v       record;
  v_asked record;
  v_now   timestamptz;
  v_done  text[];
begin
  perform fencepost._check_tokens('tokens', p_tokens);
  perform fencepost._check_lengths('tokens', cardinality(p_resources), cardinality(p_tokens));
  perform fencepost._require_read_committed();
  perform fencepost._check_text('owner', p_owner, 256);
  perform fencepost._check_duration('ttl', p_ttl, interval '1 day');
  perform fencepost._check_texts('resource', p_resources, 512);
  perform 1 from fencepost.lease l where l.resource = any (p_resources) order by l.resource for no key update;
  v_now := fencepost.clock();
  with renewed as (
    update fencepost.lease l set renewed_at = v_now, expires_at = v_now + p_ttl, ttl = p_ttl
    from unnest(p_resources, p_tokens) a (resource, token)
    where l.resource = a.resource and l.token = a.token and l.owner = p_owner and l.expires_at > v_now
    returning l.resource
  )
  select coalesce(array_agg(n.resource), '{}') into v_done from renewed n;
  if cardinality(v_done) = cardinality(p_resources) then
    return query select a.resource, a.token, v_now + p_ttl, null::text from unnest(p_resources, p_tokens) a (resource, token)
                 order by a.resource;
    return;
  end if;
  -- Some cannot be renewed: each is checked for its reason. Renewing the others once more does no harm.
  for v_asked in select a.resource, a.token from unnest(p_resources, p_tokens) a (resource, token)
                 order by a.resource loop
    select * into v from fencepost._lease_renew_try(v_asked.resource, p_owner, v_asked.token, p_ttl);
    if v.refusal is not null then
      perform fencepost._refusal_note(v.refusal, 'lease', v_asked.resource, p_owner,
        jsonb_build_object('owner', p_owner, 'token', v_asked.token, 'op', 'renew'), fencepost._lease_seen(v.held, fencepost.clock()));
    end if;
    return query select v_asked.resource, v_asked.token,
      case when v.refusal is null then (v.held).expires_at end, v.refusal;
  end loop;
end $$;

-- Release: fenced by the token, which stays. The next acquisition waits for fences that are still open. An
-- expired lease can be released too: that records that the holder is gone, and that no takeover happened.
create or replace function fencepost._lease_release_try(
  p_resource text, p_owner text, p_token bigint, out held fencepost.lease, out refusal text
)
language plpgsql volatile
as $$
declare
  v_now timestamptz;
begin
  select * into held from fencepost.lease l where l.resource = p_resource for no key update;
  v_now := fencepost.clock();
  refusal := fencepost._lease_verdict(held, p_token, p_owner, v_now);
  if refusal = 'lease_expired' then
    refusal := null;
  end if;
  if refusal is null then
    update fencepost.lease l set owner = null, expires_at = greatest(l.acquired_at, least(l.expires_at, v_now))
    where l.resource = p_resource;
    perform fencepost._event(v_now, 'lease', p_resource, 'released', p_owner, p_token, null);
  end if;
end $$;

-- Release a lease. Fenced by owner and token; the token stays, so the next one is higher.
create or replace function fencepost.lease_release(p_resource text, p_owner text, p_token bigint) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v record;
begin
  perform fencepost._lease_check(p_resource, p_owner, interval '1 second');
  perform fencepost._check_token('token', p_token);
  select * into v from fencepost._lease_release_try(p_resource, p_owner, p_token);
  if v.refusal is not null then
    perform fencepost._refuse(v.refusal, 'lease', p_resource, jsonb_build_object('owner', p_owner, 'token', p_token, 'op', 'release'),
                              fencepost._lease_seen(v.held, fencepost.clock()));
  end if;
end $$;

-- Release many, each under its token, in order of name; answers for each. For a holder that shuts down.
create or replace function fencepost.lease_release_many(p_resources text[], p_owner text, p_tokens bigint[])
returns table (resource text, token bigint, refusal text)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v       record;
  v_asked record;
begin
  perform fencepost._check_tokens('tokens', p_tokens);
  perform fencepost._check_lengths('tokens', cardinality(p_resources), cardinality(p_tokens));
  perform fencepost._require_read_committed();
  perform fencepost._check_text('owner', p_owner, 256);
  perform fencepost._check_texts('resource', p_resources, 512);
  perform 1 from fencepost.lease l where l.resource = any (p_resources) order by l.resource for no key update;
  for v_asked in select a.resource, a.token from unnest(p_resources, p_tokens) a (resource, token) order by a.resource loop
    select * into v from fencepost._lease_release_try(v_asked.resource, p_owner, v_asked.token);
    if v.refusal is not null then
      perform fencepost._refusal_note(v.refusal, 'lease', v_asked.resource, p_owner,
        jsonb_build_object('owner', p_owner, 'token', v_asked.token, 'op', 'release'), fencepost._lease_seen(v.held, fencepost.clock()));
    end if;
    return query select v_asked.resource, v_asked.token, v.refusal;
  end loop;
end $$;

-- The fence: from here to the end of the transaction no takeover succeeds. Checks token and expiry
-- and raises the reason otherwise. Expiry is judged after the lock was granted, at this moment; the token and
-- the lock prevent a late write, not the clock.
create or replace function fencepost.lease_fence(p_resource text, p_token bigint) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_held    fencepost.lease;
  v_now     timestamptz;
  v_refusal text;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('resource', p_resource, 512);
  perform fencepost._check_token('token', p_token);
  select * into v_held from fencepost.lease l where l.resource = p_resource and l.token = p_token for key share;
  v_now := fencepost.clock();
  if not found then
    select * into v_held from fencepost.lease l where l.resource = p_resource;
  end if;
  v_refusal := fencepost._lease_verdict(v_held, p_token, null, v_now);
  if v_refusal is not null then
    perform fencepost._refuse(v_refusal, 'lease', p_resource, jsonb_build_object('token', p_token, 'op', 'fence'),
                              fencepost._lease_seen(v_held, v_now));
  end if;
  perform fencepost._bound_idle_time(v_held.ttl);
end $$;

-- Terminate the backends that keep the backend p_waiter from taking the resource over: a holder that was
-- stopped inside COPY or with an unread result survives every timeout. Does nothing unless the lease has been
-- expired for p_grace, by the database's clock, at this moment, and p_waiter belongs to the calling role.
-- p_seen spares a backend that was no blocker yet at an earlier call; _evict says why.
create or replace function fencepost.lease_evict(
  p_resource text, p_waiter integer, p_grace interval, p_seen integer[] default null
) returns setof integer
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_held fencepost.lease;
begin
  perform fencepost._lease_check(p_resource, 'evict', interval '1 second');
  perform fencepost._check_wait('grace', p_grace, interval '1 day');
  select * into v_held from fencepost.lease l where l.resource = p_resource;
  if v_held.resource is null then
    perform fencepost._refuse('not_found', 'lease', p_resource, jsonb_build_object('waiter', p_waiter), null);
  end if;
  if v_held.owner is not null and v_held.expires_at + p_grace > fencepost.clock() then
    perform fencepost._refuse('not_owner', 'lease', p_resource, jsonb_build_object('waiter', p_waiter),
                              fencepost._lease_seen(v_held, fencepost.clock()));
  end if;
  return query select fencepost._evict('lease', p_resource, p_waiter, 'fencepost.lease', p_seen);
end $$;
