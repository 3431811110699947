-- Reserves nonces: the lowest gaps first, then the end of the sequence. One request has one nonce, by a
-- unique key.

-- Reserve for all of p_request_ids under one row lock of the signer; the arrays' order is the order of the
-- nonces. A repeated request gets its nonce again. The signer is locked before anything is read, so that what
-- is found stays true. Returns the first nonce and the time if all of them are new ones at the end of the
-- sequence, one after another; else null: look each up.
create or replace function fencepost._nonce_reserve(
  p_signer_id bigint, p_token bigint, p_request_ids text[], p_locked_for interval, p_caller_signs boolean,
  out first_nonce bigint, out locked_until timestamptz
) language plpgsql volatile
as $$
declare
  v_signer fencepost.nonce_signer;
  v_next   bigint;
  v_now    timestamptz;
  v_known  text[];
  v_fresh  text[];
  v_gaps   bigint[];
  v_more   integer;
begin
  select * into strict v_signer from fencepost.nonce_signer s where s.signer_id = p_signer_id for no key update;
  v_next := v_signer.next_nonce;
  v_now := fencepost.clock();
  -- An explicit "is not null": the planner cannot infer it from an array that might be empty, and without it
  -- cannot use the index of the requests. It would scan the signer's whole history instead.
  v_known := array(select a.request_id from fencepost.nonce_allocation a
                   where a.signer_id = p_signer_id and a.request_id = any (p_request_ids) and a.request_id is not null);
  if cardinality(v_known) = 0 and cardinality(p_request_ids) = 1 then
    v_fresh := p_request_ids;
  else
    v_fresh := array(select r.id from unnest(p_request_ids) with ordinality r (id, place)
                     where r.id <> all (v_known) group by r.id order by min(r.place));
  end if;
  if cardinality(v_fresh) = 0 then
    return;
  end if;
  if v_signer.recovering_since is not null then
    perform fencepost._nonce_refuse_recovering(v_signer);
  end if;
  v_gaps := array(select a.nonce from fencepost.nonce_allocation a
                  where a.signer_id = p_signer_id and a.status = 'RELEASED'
                  order by a.nonce limit cardinality(v_fresh) for no key update);
  if cardinality(v_gaps) > 0 then
    update fencepost.nonce_allocation a
    set status = 'HELD', caller_signs = p_caller_signs, hold = a.hold + 1, tx_hash = null,
        request_id = v_fresh[array_position(v_gaps, a.nonce)], locked_until = v_now + p_locked_for, fencing_token = p_token,
        updated_at = v_now
    where a.signer_id = p_signer_id and a.nonce = any (v_gaps);
  end if;
  v_more := cardinality(v_fresh) - cardinality(v_gaps);
  if v_more = 0 then
    return;
  end if;
  insert into fencepost.nonce_allocation (signer_id, nonce, status, caller_signs, hold, request_id, locked_until,
                                          fencing_token, created_at, updated_at)
  select p_signer_id, v_next + f.place - 1, 'HELD', p_caller_signs, 1, f.id, v_now + p_locked_for, p_token, v_now, v_now
  from unnest(v_fresh[cardinality(v_gaps) + 1:]) with ordinality f (id, place);
  update fencepost.nonce_signer s set next_nonce = v_next + v_more where s.signer_id = p_signer_id;
  if v_more = cardinality(p_request_ids) then
    first_nonce := v_next;
    locked_until := v_now + p_locked_for;
  end if;
end $$;

-- Check a caller's request id. Two prefixes are reserved: a managed transaction's nonce is reserved as tx:ID,
-- and what a recovery holds for outside callers as recovered:NONCE:HOLD. Under such an id a caller would get
-- another's nonce, or another would get the caller's.
create or replace function fencepost._nonce_check_request_id(p_id text) returns void
language plpgsql immutable
as $$
begin
  perform fencepost._check_text('request_id', p_id, 200);
  if p_id ^@ 'tx:' or p_id ^@ 'recovered:' then
    raise exception 'request_id begins with "tx:" or "recovered:", which only this service''s own requests do.'
      using errcode = 'ZF100', detail = '{"field": "request_id"}';
  end if;
end $$;

-- Reserve a nonce for each request, one statement for all; returns them in the order of the requests. Fenced.
-- With p_caller_signs the nonce is signed outside: only its caller, or the chain, can settle it. Served by
-- the primary key, nonce_allocation_request and nonce_allocation_gaps.
create or replace function fencepost.nonce_reserve(
  p_chain_id bigint, p_signer text, p_owner text, p_token bigint, p_request_ids text[],
  p_locked_for interval default '60 seconds', p_caller_signs boolean default true
) returns table (request_id text, nonce bigint, hold bigint, status text, fencing_token bigint, locked_until timestamptz,
                 tx_hash text)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_id  bigint;
  v_all record;
begin
  perform fencepost._nonce_check_signer(p_chain_id, p_signer);
  perform fencepost._check_duration('locked_for', p_locked_for, interval '30 days');
  if p_request_ids is null or p_caller_signs is null then
    raise exception 'request_ids and caller_signs must not be null.' using errcode = 'ZF100', detail = '{"field": "request_ids"}';
  end if;
  -- Only for ids that will be refused: calling it for each of five hundred takes a sixth of the whole
  -- statement.
  perform fencepost._nonce_check_request_id(r.id) from unnest(p_request_ids) r (id)
  where r.id is null or r.id = '' or octet_length(r.id) > 200 or r.id ^@ 'tx:' or r.id ^@ 'recovered:';
  v_id := fencepost._nonce_fence('reserve', p_chain_id, p_signer, p_owner, p_token);
  select * into v_all from fencepost._nonce_reserve(v_id, p_token, p_request_ids, p_locked_for, p_caller_signs);
  if v_all.first_nonce is not null then
    -- Rows that were just written need not be read again.
    return query
    select r.id, v_all.first_nonce + r.place - 1, 1::bigint, 'HELD', p_token, v_all.locked_until, null::text
    from unnest(p_request_ids) with ordinality r (id, place) order by r.place;
    return;
  end if;
  return query
  select a.request_id, a.nonce, a.hold, a.status, a.fencing_token, a.locked_until, a.tx_hash
  from unnest(p_request_ids) with ordinality r (id, place)
  -- With a limit, so that each is looked up by its key: a plain join, planned while the tables are almost
  -- empty, compares each request with the signer's whole history.
  cross join lateral (select * from fencepost.nonce_allocation o where o.signer_id = v_id and o.request_id = r.id limit 1) a
  order by r.place;
end $$;

-- Give back nonces that were reserved for managed signing and not signed in time. Fenced: only the owner does
-- this. A nonce that a caller signs itself is never given back by time. Served by nonce_allocation_open.
create or replace function fencepost.nonce_recycle(
  p_chain_id bigint, p_signer text, p_owner text, p_token bigint, p_limit integer default 1000
) returns setof bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_id     bigint;
  v_now    timestamptz;
  v_nonces bigint[];
begin
  perform fencepost._nonce_check_signer(p_chain_id, p_signer);
  perform fencepost._check_limit(p_limit);
  v_id := fencepost._nonce_fence('recycle', p_chain_id, p_signer, p_owner, p_token);
  perform 1 from fencepost.nonce_signer s where s.signer_id = v_id for no key update;
  v_now := fencepost.clock();
  v_nonces := array(select a.nonce from fencepost.nonce_allocation a
                    where a.signer_id = v_id and a.status in ('HELD', 'SIGNING', 'SIGNED', 'BROADCAST')
                      and a.status = 'HELD' and not a.caller_signs and a.locked_until <= v_now
                    order by a.nonce limit p_limit);
  perform fencepost._nonce_tx_unbind(v_id, v_nonces, v_now);
  return query
  update fencepost.nonce_allocation a
  set status = 'RELEASED', request_id = null, locked_until = null, fencing_token = p_token, updated_at = v_now
  where a.signer_id = v_id and a.nonce = any (v_nonces) and a.status = 'HELD' and not a.caller_signs
  returning a.nonce;
end $$;

-- The chain's final count is a floor, never a ceiling: the sequence is raised to it and never lowered. Below
-- it a gap, and any nonce that a caller signs itself, is used: by that caller or by another holder of the
-- key. Nonces of managed transactions are left to the node that follows them: it knows which version was
-- mined. p_latest_count is the count at the newest block: that block may be reverted, so it raises the
-- sequence and consumes nothing. Fenced.
create or replace function fencepost.nonce_floor(
  p_chain_id bigint, p_signer text, p_owner text, p_token bigint, p_chain_count bigint,
  p_latest_count bigint default 0
) returns table (next_nonce bigint, consumed bigint)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_id     bigint;
  v_now    timestamptz;
  v_next   bigint;
  v_nonces bigint[];
begin
  perform fencepost._nonce_check_signer(p_chain_id, p_signer);
  if p_chain_count is null or p_chain_count < 0 then
    raise exception 'chain_count is %; it must be 0 or more.', coalesce(p_chain_count::text, 'null')
      using errcode = 'ZF100', detail = '{"field": "chain_count"}';
  end if;
  v_id := fencepost._nonce_fence('floor', p_chain_id, p_signer, p_owner, p_token);
  select greatest(s.next_nonce, p_chain_count, p_latest_count) into v_next from fencepost.nonce_signer s
  where s.signer_id = v_id for no key update;
  v_now := fencepost.clock();
  v_nonces := array(
    select a.nonce from fencepost.nonce_allocation a
    where a.signer_id = v_id and a.status = 'RELEASED' and a.nonce < p_chain_count
    union all
    select a.nonce from fencepost.nonce_allocation a
    where a.signer_id = v_id and a.status in ('HELD', 'SIGNING', 'SIGNED', 'BROADCAST') and a.nonce < p_chain_count
      and (a.caller_signs or a.status = 'HELD')
    order by 1);
  -- A managed transaction that had only reserved has lost its nonce to a foreign transaction with the same
  -- key: it takes another.
  perform fencepost._nonce_tx_unbind(v_id, v_nonces, v_now);
  update fencepost.nonce_allocation a
  set status = 'CONSUMED', locked_until = null, fencing_token = p_token, updated_at = v_now,
      request_id = case when a.caller_signs then a.request_id end
  where a.signer_id = v_id and a.nonce = any (v_nonces);
  get diagnostics consumed = row_count;
  update fencepost.nonce_signer s
  set next_nonce = v_next, chain_count = greatest(s.chain_count, p_chain_count), updated_at = v_now
  where s.signer_id = v_id and (s.next_nonce < v_next or s.chain_count < p_chain_count);
  next_nonce := v_next;
  return next;
end $$;
