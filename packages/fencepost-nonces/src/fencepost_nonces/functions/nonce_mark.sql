-- The state changes of one nonce. This is the table of moves, which the reference and a test contain too:
--
--   event        from                                to         else
--   signing      HELD                                SIGNING
--   signed       SIGNING, SIGNED, BROADCAST          SIGNED     BROADCAST stays: a further version of the bytes
--   broadcast    SIGNED                              BROADCAST
--   used         everything but CONSUMED             CONSUMED   also RELEASED, by its last holder: used is used
--   recyclable   HELD                                RELEASED   from SIGNING on it may have been signed: refused
--
-- An event that has happened already, by the same hold and with the same hash, has the same result again.
-- When the chain has proved the nonce used before its holder reported, the hash was unknown: the holder's
-- report adds it.

-- The move, or the reason against it. Never raises a refusal; locks the allocation's row.
create or replace function fencepost._nonce_move(
  p_signer_id bigint, p_token bigint, p_nonce bigint, p_hold bigint, p_event text, p_tx_hash text,
  out refusal text, out seen jsonb
) language plpgsql volatile
as $$
declare
  v_row fencepost.nonce_allocation;
  v_to  text;
begin
  select * into v_row from fencepost.nonce_allocation a
  where a.signer_id = p_signer_id and a.nonce = p_nonce for no key update;
  if not found then
    refusal := 'not_found';
    return;
  end if;
  seen := jsonb_build_object('status', v_row.status, 'hold', v_row.hold, 'fencing_token', v_row.fencing_token,
                             'tx_hash', v_row.tx_hash, 'caller_signs', v_row.caller_signs);
  if v_row.hold is distinct from p_hold then
    refusal := 'stale_attempt';
    return;
  end if;
  v_to := case p_event when 'signing' then 'SIGNING' when 'broadcast' then 'BROADCAST' when 'used' then 'CONSUMED'
                       when 'recyclable' then 'RELEASED'
                       when 'signed' then case when v_row.status = 'BROADCAST' then 'BROADCAST' else 'SIGNED' end end;
  if p_event = 'used' and v_row.status = 'CONSUMED' and v_row.tx_hash is null and p_tx_hash is not null then
    update fencepost.nonce_allocation a set tx_hash = p_tx_hash, fencing_token = p_token, updated_at = fencepost.clock()
    where a.signer_id = p_signer_id and a.nonce = p_nonce;
    return;
  end if;
  if v_row.status = v_to and p_event <> 'signed' then
    -- A repeat; another hash is another claim.
    refusal := case when p_event = 'used' and p_tx_hash is distinct from v_row.tx_hash then 'already_finished' end;
    return;
  end if;
  refusal := case
    when v_row.status = 'CONSUMED' then 'already_finished'
    when p_event = 'signing' and v_row.status <> 'HELD' then 'mismatch'
    when p_event = 'signed' and v_row.status not in ('SIGNING', 'SIGNED', 'BROADCAST') then 'mismatch'
    when p_event = 'broadcast' and v_row.status <> 'SIGNED' then 'mismatch'
    when p_event = 'recyclable' and v_row.status <> 'HELD' then 'mismatch'
  end;
  if refusal is not null then
    return;
  end if;
  update fencepost.nonce_allocation a
  set status = v_to, fencing_token = p_token, updated_at = fencepost.clock(),
      tx_hash = case when p_event in ('signed', 'used') then coalesce(p_tx_hash, a.tx_hash) else a.tx_hash end,
      request_id = case when v_to = 'RELEASED' then null else a.request_id end,
      locked_until = case when v_to in ('RELEASED', 'CONSUMED') then null else a.locked_until end
  where a.signer_id = p_signer_id and a.nonce = p_nonce;
end $$;

-- Fence, move, and raise the reason against it.
create or replace function fencepost._nonce_mark(
  p_event text, p_chain_id bigint, p_signer text, p_owner text, p_token bigint, p_nonce bigint, p_hold bigint, p_tx_hash text
) returns bigint
language plpgsql volatile
as $$
declare
  v_id   bigint;
  v_move record;
begin
  perform fencepost._nonce_check_signer(p_chain_id, p_signer);
  perform fencepost._check_token('nonce', p_nonce);
  perform fencepost._check_token('hold', p_hold);
  if p_tx_hash is not null then
    perform fencepost._check_text('tx_hash', p_tx_hash, 128);
  end if;
  v_id := fencepost._nonce_fence(p_event, p_chain_id, p_signer, p_owner, p_token);
  select * into v_move from fencepost._nonce_move(v_id, p_token, p_nonce, p_hold, p_event, p_tx_hash);
  if v_move.refusal is not null then
    perform fencepost._refuse(v_move.refusal, 'nonce', p_chain_id || ':' || p_signer || ':' || p_nonce,
      jsonb_build_object('op', p_event, 'hold', p_hold, 'token', p_token, 'tx_hash', p_tx_hash), v_move.seen);
  end if;
  return v_id;
end $$;

-- Only the managed transaction that holds a nonce may sign and settle it: it is cancelled, or the chain
-- decides. If it were given back from outside, the gap could not be taken, because the transaction would
-- still be bound to it. Bytes stored from outside would be sent in its name, and would count as its own when
-- they are mined. Counted and raised as mismatch, which takes the move back. Called after the move, when the
-- allocation is locked: before it, a transaction could be bound to the nonce while the caller waits.
create or replace function fencepost._nonce_refuse_bound(p_op text, p_chain_id bigint, p_signer text, p_nonce bigint, p_hold bigint)
returns void
language plpgsql volatile
as $$
declare
  v_tx fencepost.nonce_transaction;
begin
  select t.* into v_tx from fencepost.nonce_signer s join fencepost.nonce_transaction t on t.signer_id = s.signer_id
  where s.chain_id = p_chain_id and s.signer = p_signer and t.nonce = p_nonce and t.hold = p_hold and t.state in ('BOUND', 'MINED');
  if found then
    perform fencepost._refuse('mismatch', 'nonce', p_chain_id || ':' || p_signer || ':' || p_nonce,
      jsonb_build_object('op', p_op, 'hold', p_hold),
      fencepost._nonce_tx_seen(v_tx) || jsonb_build_object('transaction_id', v_tx.transaction_id));
  end if;
end $$;

-- Mark a nonce that no managed transaction holds.
create or replace function fencepost._nonce_mark_unmanaged(
  p_op text, p_chain_id bigint, p_signer text, p_owner text, p_token bigint, p_nonce bigint, p_hold bigint, p_tx_hash text
) returns void
language plpgsql volatile
as $$
begin
  perform fencepost._nonce_mark(p_op, p_chain_id, p_signer, p_owner, p_token, p_nonce, p_hold, p_tx_hash);
  perform fencepost._nonce_refuse_bound(p_op, p_chain_id, p_signer, p_nonce, p_hold);
end $$;

-- The nonce was used: CONSUMED, by the transaction of this hash if it is known. Not for managed transactions.
create or replace function fencepost.nonce_mark_used(
  p_chain_id bigint, p_signer text, p_owner text, p_token bigint, p_nonce bigint, p_hold bigint, p_tx_hash text default null
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._nonce_mark_unmanaged('used', p_chain_id, p_signer, p_owner, p_token, p_nonce, p_hold, p_tx_hash);
end $$;

-- The nonce was not used and not signed: RELEASED, a gap that the next reservation takes. Not for managed
-- transactions.
create or replace function fencepost.nonce_mark_recyclable(
  p_chain_id bigint, p_signer text, p_owner text, p_token bigint, p_nonce bigint, p_hold bigint
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._nonce_mark_unmanaged('recyclable', p_chain_id, p_signer, p_owner, p_token, p_nonce, p_hold, null);
end $$;

-- Signing is about to begin: from here on the nonce may have been signed, and is never given back. Not for
-- managed transactions.
create or replace function fencepost.nonce_mark_signing(
  p_chain_id bigint, p_signer text, p_owner text, p_token bigint, p_nonce bigint, p_hold bigint
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._nonce_mark_unmanaged('signing', p_chain_id, p_signer, p_owner, p_token, p_nonce, p_hold, null);
end $$;

-- Fence, mark as signed, and store the bytes. The same hash again changes nothing; another hash is a
-- replacement, stored as its own version.
create or replace function fencepost._nonce_store(
  p_chain_id bigint, p_signer text, p_owner text, p_token bigint, p_nonce bigint, p_hold bigint, p_tx_hash text, p_raw bytea,
  p_purpose text
) returns void
language plpgsql volatile
as $$
declare
  v_id bigint;
begin
  perform fencepost._check_text('tx_hash', p_tx_hash, 128);
  perform fencepost._check_word('purpose', p_purpose, '{send, cancel}');
  if p_raw is null or octet_length(p_raw) not between 1 and 262144 then
    raise exception 'raw must have between 1 and 262144 bytes.' using errcode = 'ZF100', detail = '{"field": "raw"}';
  end if;
  v_id := fencepost._nonce_mark('signed', p_chain_id, p_signer, p_owner, p_token, p_nonce, p_hold, p_tx_hash);
  insert into fencepost.nonce_signature (signer_id, nonce, version, hold, tx_hash, raw, purpose, fencing_token,
                                         created_at)
  select v_id, p_nonce, coalesce(max(s.version), 0) + 1, p_hold, p_tx_hash, p_raw, p_purpose, p_token, fencepost.clock()
  from fencepost.nonce_signature s where s.signer_id = v_id and s.nonce = p_nonce
  on conflict (signer_id, nonce, tx_hash) do nothing;
end $$;

-- Store the signed bytes under the fence before they are sent. Not for managed transactions
-- (nonce_tx_signed).
create or replace function fencepost.nonce_mark_signed(
  p_chain_id bigint, p_signer text, p_owner text, p_token bigint, p_nonce bigint, p_hold bigint, p_tx_hash text, p_raw bytea,
  p_purpose text default 'send'
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._nonce_store(p_chain_id, p_signer, p_owner, p_token, p_nonce, p_hold, p_tx_hash, p_raw, p_purpose);
  perform fencepost._nonce_refuse_bound('signed', p_chain_id, p_signer, p_nonce, p_hold);
end $$;

-- The bytes were handed to a node of the chain. Not for managed transactions (nonce_tx_broadcast).
create or replace function fencepost.nonce_mark_broadcast(
  p_chain_id bigint, p_signer text, p_owner text, p_token bigint, p_nonce bigint, p_hold bigint
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._nonce_mark_unmanaged('broadcast', p_chain_id, p_signer, p_owner, p_token, p_nonce, p_hold, null);
end $$;

-- Mark many nonces at once, used or recyclable, in order of nonce; returns a result for each. A fence that
-- fails is raised: it applies to all of them.
create or replace function fencepost.nonce_mark_many(
  p_chain_id bigint, p_signer text, p_owner text, p_token bigint, p_nonces bigint[], p_holds bigint[], p_events text[],
  p_tx_hashes text[] default null
) returns table (nonce bigint, refusal text)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_id    bigint;
  v_bound bigint[];
  v_asked record;
  v_move  record;
begin
  perform fencepost._nonce_check_signer(p_chain_id, p_signer);
  perform fencepost._check_tokens('nonces', p_nonces);
  perform fencepost._check_tokens('holds', p_holds);
  perform fencepost._check_lengths('holds', cardinality(p_nonces), cardinality(p_holds));
  perform fencepost._check_lengths('events', cardinality(p_nonces), cardinality(p_events));
  perform fencepost._check_lengths('tx_hashes', cardinality(p_nonces), coalesce(cardinality(p_tx_hashes), cardinality(p_nonces)));
  perform fencepost._check_word('events', e.event, '{used, recyclable}') from unnest(p_events) e (event);
  perform fencepost._check_texts('tx_hash', p_tx_hashes, 128, true);
  v_id := fencepost._nonce_fence('mark', p_chain_id, p_signer, p_owner, p_token);
  -- Locked first: no transaction is bound to one of them between the look and the move.
  perform 1 from fencepost.nonce_allocation a where a.signer_id = v_id and a.nonce = any (p_nonces) order by a.nonce for no key update;
  v_bound := array(select t.nonce from fencepost.nonce_transaction t
                   where t.signer_id = v_id and t.state in ('BOUND', 'MINED') and t.nonce = any (p_nonces));
  for v_asked in select a.* from unnest(p_nonces, p_holds, p_events, p_tx_hashes) a (nonce, hold, event, tx_hash)
                 order by a.nonce loop
    if v_asked.nonce = any (v_bound) then
      select 'mismatch' as refusal, '{"managed": true}'::jsonb as seen into v_move;
    else
      select * into v_move from fencepost._nonce_move(
        v_id, p_token, v_asked.nonce, v_asked.hold, v_asked.event, v_asked.tx_hash);
    end if;
    if v_move.refusal is not null then
      perform fencepost._refusal_note(v_move.refusal, 'nonce', p_chain_id || ':' || p_signer || ':' || v_asked.nonce, p_owner,
        jsonb_build_object('op', v_asked.event, 'hold', v_asked.hold, 'token', p_token), v_move.seen);
    end if;
    return query select v_asked.nonce, v_move.refusal;
  end loop;
end $$;
