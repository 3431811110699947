-- The signer's lease: which node may write, and what the last owner left.
--
-- The lease is the kernel's, under the name signer:<chain>:<signer>. Acquiring it settles in the same
-- transaction what the last owner left, so a new owner never has the token before the old owner's
-- reservations are settled.
--
-- Locks, in this order everywhere: the lease, the signer, its transactions, its allocations in order of nonce.

create or replace function fencepost._nonce_resource(p_chain_id bigint, p_signer text) returns text
language sql immutable parallel safe
as $$ select 'signer:' || p_chain_id || ':' || p_signer $$;

create or replace function fencepost._nonce_check_signer(p_chain_id bigint, p_signer text) returns void
language plpgsql immutable
as $$
begin
  if p_chain_id is null or p_chain_id <= 0 then
    raise exception 'chain_id is %; it must be positive.', coalesce(p_chain_id::text, 'null')
      using errcode = 'ZF100', detail = '{"field": "chain_id"}';
  end if;
  perform fencepost._check_text('signer', p_signer, 128);
  if p_signer ~* '^0x' and p_signer !~ '^0x[0-9a-f]{40}$' then
    raise exception 'signer is %; an address has 40 hexadecimal digits, here in lower case.', p_signer
      using errcode = 'ZF100', detail = '{"field": "signer"}';
  end if;
end $$;

-- The fence of every write: locks the lease's row against a takeover and compares owner and token, in one
-- statement. p_op names the attempted operation, for the record. Returns the signer's id.
create or replace function fencepost._nonce_fence(
  p_op text, p_chain_id bigint, p_signer text, p_owner text, p_token bigint
) returns bigint
language plpgsql volatile
as $$
declare
  v_resource text := fencepost._nonce_resource(p_chain_id, p_signer);
  v_held     fencepost.lease;
  v_id       bigint;
  v_highest  bigint;
  v_now      timestamptz;
  v_refusal  text;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_token('token', p_token);
  select * into v_held from fencepost.lease l
  where l.resource = v_resource and l.token = p_token and l.owner = p_owner for key share;
  v_now := fencepost.clock();
  if not found then
    select * into v_held from fencepost.lease l where l.resource = v_resource;
  end if;
  v_refusal := fencepost._lease_verdict(v_held, p_token, coalesce(p_owner, ''), v_now);
  select s.signer_id, s.fencing_token into v_id, v_highest from fencepost.nonce_signer s
  where s.chain_id = p_chain_id and s.signer = p_signer;
  if v_refusal is null and v_highest is distinct from p_token then
    -- The lease's row was deleted and made again: its token proves nothing.
    v_refusal := 'not_owner';
  end if;
  if v_refusal is not null then
    perform fencepost._refuse(v_refusal, 'lease', v_resource,
      jsonb_build_object('op', p_op, 'owner', p_owner, 'token', p_token),
      fencepost._lease_seen(v_held, v_now) || jsonb_build_object('highest_token', v_highest));
  end if;
  perform fencepost._bound_idle_time(v_held.ttl);
  return v_id;
end $$;

-- Settle what the last owner left, by its state. Reserved for managed signing and never passed to the signer:
-- it cannot have been signed, so it is a gap again. From SIGNING on it may have been signed: adopted, to be
-- sent as it is. Reserved for a caller that signs itself: left alone until the caller reports or the chain
-- proves its use.
create or replace function fencepost._nonce_settle(
  p_signer_id bigint, p_token bigint, p_now timestamptz, out released bigint, out adopted bigint
) language plpgsql volatile
as $$
begin
  perform fencepost._nonce_tx_requeue(p_signer_id, p_token, p_now);
  with gone as (
    update fencepost.nonce_allocation a
    set status = 'RELEASED', request_id = null, locked_until = null, fencing_token = p_token, updated_at = p_now
    where a.signer_id = p_signer_id and a.status in ('HELD', 'SIGNING', 'SIGNED', 'BROADCAST') and a.status = 'HELD'
      and not a.caller_signs and a.fencing_token < p_token
    returning 1
  )
  select count(*) into released from gone;
  with kept as (
    update fencepost.nonce_allocation a set fencing_token = p_token
    where a.signer_id = p_signer_id and a.status in ('HELD', 'SIGNING', 'SIGNED', 'BROADCAST') and a.status <> 'HELD'
      and a.fencing_token < p_token
    returning 1
  )
  select count(*) into adopted from kept;
end $$;

-- Acquire the signer, or renew it, and settle what the last owner left. Does not refuse when another node
-- holds it, which is a normal case here: then the returned owner differs from p_owner. A signer that is seen
-- for the first time starts at p_first_nonce: the chain's count.
create or replace function fencepost.nonce_acquire(
  p_chain_id bigint, p_signer text, p_owner text, p_ttl interval, p_first_nonce bigint default 0
) returns table (owner text, token bigint, outcome text, acquired_at timestamptz, renewed_at timestamptz,
                 expires_at timestamptz, released bigint, adopted bigint)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_resource text := fencepost._nonce_resource(p_chain_id, p_signer);
  v_try      record;
  v_held     fencepost.lease;
  v_signer   fencepost.nonce_signer;
  v_left     record;
  v_now      timestamptz;
begin
  perform fencepost._nonce_check_signer(p_chain_id, p_signer);
  perform fencepost._lease_check(v_resource, p_owner, p_ttl);
  if p_first_nonce is null or p_first_nonce < 0 then
    raise exception 'first_nonce is %; it must be 0 or more.', coalesce(p_first_nonce::text, 'null')
      using errcode = 'ZF100', detail = '{"field": "first_nonce"}';
  end if;
  select * into v_try from fencepost._lease_try(v_resource, p_owner, p_ttl);
  v_held := v_try.held;
  if v_try.outcome <> 'acquired' then
    return query select v_held.owner, v_held.token, v_try.outcome, v_held.acquired_at, v_held.renewed_at,
                        v_held.expires_at, 0::bigint, 0::bigint;
    return;
  end if;
  v_now := fencepost.clock();
  insert into fencepost.nonce_signer (chain_id, signer, next_nonce, chain_count, recovering_since, created_at, updated_at)
  select p_chain_id, p_signer, p_first_nonce, p_first_nonce, fencepost._nonce_recovering(), v_now, v_now
  where not exists (select from fencepost.nonce_signer s where s.chain_id = p_chain_id and s.signer = p_signer)
  on conflict (chain_id, signer) do nothing;
  select * into v_signer from fencepost.nonce_signer s
  where s.chain_id = p_chain_id and s.signer = p_signer for no key update;
  if v_held.token <= v_signer.fencing_token then
    -- Only after the lease's row was deleted, which is never allowed: the token continues from its last
    -- value.
    update fencepost.lease l set token = v_signer.fencing_token + 1 where l.resource = v_resource returning * into v_held;
  end if;
  -- A transaction may have named the signer before any node held it: it starts at the chain's count as well.
  update fencepost.nonce_signer s
  set fencing_token = v_held.token, updated_at = v_now,
      next_nonce = case when s.fencing_token = 0 then greatest(s.next_nonce, p_first_nonce) else s.next_nonce end
  where s.signer_id = v_signer.signer_id;
  select * into v_left from fencepost._nonce_settle(v_signer.signer_id, v_held.token, v_now);
  if v_left.released + v_left.adopted > 0 then
    perform fencepost._event(v_now, 'lease', v_resource, 'settled', p_owner, v_held.token,
      jsonb_build_object('released', v_left.released, 'adopted', v_left.adopted));
  end if;
  return query select v_held.owner, v_held.token, v_try.outcome, v_held.acquired_at, v_held.renewed_at, v_held.expires_at,
                      v_left.released, v_left.adopted;
end $$;

-- Hand the signer over: the lease is free at once, and the nodes that wait for it are notified.
create or replace function fencepost.nonce_hand_over(p_chain_id bigint, p_signer text, p_owner text, p_token bigint)
returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._nonce_check_signer(p_chain_id, p_signer);
  perform fencepost.lease_release(fencepost._nonce_resource(p_chain_id, p_signer), p_owner, p_token);
  perform fencepost._wake('nonces.free:' || fencepost._nonce_resource(p_chain_id, p_signer));
  perform fencepost.wake_up('nonces.free:' || fencepost._nonce_resource(p_chain_id, p_signer));
end $$;

-- Ask the owner to hand over: it does so when it is idle, or when its turn is over. A request, not a right.
create or replace function fencepost.nonce_want(p_chain_id bigint, p_signer text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._nonce_check_signer(p_chain_id, p_signer);
  perform fencepost.sleep_on('nonces.free:' || fencepost._nonce_resource(p_chain_id, p_signer));
  perform pg_notify('fencepost', 'nonces.wanted:' || fencepost._nonce_resource(p_chain_id, p_signer));
end $$;

-- The nodes that are alive, by the leases they keep on their own addresses. Served by the lease's primary
-- key.
create or replace function fencepost.nonce_nodes() returns table (address text, owner text, expires_at timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := fencepost.clock();
begin
  return query
  select substr(l.resource, 13), l.owner, l.expires_at from fencepost.lease l
  where l.resource >= 'nonces:node:' and l.resource < 'nonces:node;' and l.owner is not null and l.expires_at > v_now
  order by l.resource;
end $$;
