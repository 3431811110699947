-- Managed transactions: accepted on any node, advanced only by the owner of the signer.
--
--   event      from            to          what becomes of the nonce, in the same transaction
--   submit                     QUEUED
--   take       QUEUED          BOUND       reserved (HELD, we sign)
--   unbind     BOUND           QUEUED      was HELD and unsigned: given back, or used by a foreign transaction
--   mined      BOUND, MINED    MINED       stays BROADCAST: a block can be reverted
--   unmined    MINED           BOUND       a reorganisation removed the block
--   confirm    BOUND, MINED    CONFIRMED   CONSUMED; CANCELLED or REJECTED when the no-op was mined, by why it was made
--   cancel     QUEUED          CANCELLED   a bound one is only marked: the owner replaces it with a no-op
--   expire     QUEUED          CANCELLED   its deadline has passed; a bound one is marked, as by cancel
--   reject     QUEUED, BOUND   CANCELLED   given back if HELD; or REJECTED. From SIGNING on a REJECTED one is only marked, for a no-op
--   note       BOUND           BOUND       what blocks it at present
--   unproved   BOUND           BOUND       stays as it is: the chain counts it as used, and by which transaction is not proved
--   lost       BOUND           QUEUED      CONSUMED, by the foreign transaction that the caller names
--
-- Signing and sending are the allocation's moves (nonce_mark.sql), made here for the nonces of transactions.
-- A crash between any two of them leaves a state from which the next owner goes on: no other state exists.

create or replace function fencepost._nonce_tx_seen(p_tx fencepost.nonce_transaction) returns jsonb
language sql immutable
as $$
  select case when p_tx.transaction_id is null then '{}'::jsonb else
    jsonb_build_object('state', p_tx.state, 'nonce', p_tx.nonce, 'hold', p_tx.hold, 'tx_hash', p_tx.tx_hash) end
$$;

-- What was asked does not fit the transaction: counted and raised as mismatch.
create or replace function fencepost._nonce_tx_refuse(p_tx fencepost.nonce_transaction, p_attempted jsonb) returns void
language plpgsql volatile
as $$
begin
  perform fencepost._refuse('mismatch', 'transaction', p_tx.transaction_id::text, p_attempted, fencepost._nonce_tx_seen(p_tx));
end $$;

-- Back into the queue: every transaction of a former owner that had its nonce and was never signed.
create or replace function fencepost._nonce_tx_requeue(p_signer_id bigint, p_token bigint, p_now timestamptz) returns void
language sql volatile
as $$
  update fencepost.nonce_transaction t set state = 'QUEUED', nonce = null, hold = null, updated_at = p_now
  where t.signer_id = p_signer_id and t.state in ('BOUND', 'MINED')
    and (select a.status = 'HELD' and not a.caller_signs and a.fencing_token < p_token from fencepost.nonce_allocation a
         where a.signer_id = t.signer_id and a.nonce = t.nonce)
$$;

-- The same for given nonces, whose allocations the caller is about to move.
create or replace function fencepost._nonce_tx_unbind(p_signer_id bigint, p_nonces bigint[], p_now timestamptz) returns void
language sql volatile
as $$
  update fencepost.nonce_transaction t set state = 'QUEUED', nonce = null, hold = null, updated_at = p_now
  where t.signer_id = p_signer_id and t.state in ('BOUND', 'MINED') and t.nonce = any (p_nonces)
    and (select a.status = 'HELD' and not a.caller_signs from fencepost.nonce_allocation a
         where a.signer_id = t.signer_id and a.nonce = t.nonce)
$$;

-- Check what was asked for, by the names of the HTTP API.
create or replace function fencepost._nonce_tx_check(
  p_chain_id bigint, p_signer text, p_idempotency_key text, p_digest text, p_recipient text, p_value numeric, p_gas_limit bigint,
  p_speed text, p_fee_cap numeric
) returns void
language plpgsql immutable
as $$
begin
  perform fencepost._nonce_check_signer(p_chain_id, p_signer);
  perform fencepost._check_text('idempotency_key', p_idempotency_key, 200);
  perform fencepost._check_text('digest', p_digest, 128);
  perform fencepost._check_word('speed', p_speed, '{slow, standard, fast}');
  if p_recipient is not null and p_recipient !~ '^0x[0-9a-f]{40}$' then
    raise exception 'to must be an address of 40 hexadecimal digits.' using errcode = 'ZF100', detail = '{"field": "to"}';
  end if;
  if p_value is null or p_value < 0 or p_value >= 2::numeric ^ 256 or p_value <> trunc(p_value) then
    raise exception 'value must be an integer from 0 to 2^256 - 1.' using errcode = 'ZF100', detail = '{"field": "value"}';
  end if;
  if p_gas_limit is null or p_gas_limit <= 0 then
    raise exception 'gas must be positive.' using errcode = 'ZF100', detail = '{"field": "gas"}';
  end if;
  if p_fee_cap <= 0 or p_fee_cap >= 2::numeric ^ 256 or p_fee_cap <> trunc(p_fee_cap) then
    raise exception 'fee_cap must be an integer from 1 to 2^256 - 1.' using errcode = 'ZF100', detail = '{"field": "fee_cap"}';
  end if;
end $$;

-- Accept a transaction. Adds a row and needs no lease: any node may do it. The same key again returns the
-- existing transaction; with different content it is refused. The signer must be known: nothing is reserved
-- here.
create or replace function fencepost.nonce_tx_submit(
  p_chain_id bigint, p_signer text, p_idempotency_key text, p_digest text, p_recipient text, p_value numeric, p_data bytea,
  p_gas_limit bigint, p_webhook text default null, p_speed text default 'standard', p_fee_cap numeric default null,
  p_deadline timestamptz default null
) returns table (transaction_id bigint, state text, repeated boolean)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_signer bigint;
  v_tx     fencepost.nonce_transaction;
  v_now    timestamptz := fencepost.clock();
begin
  perform fencepost._require_read_committed();
  perform fencepost._nonce_tx_check(p_chain_id, p_signer, p_idempotency_key, p_digest, p_recipient, p_value, p_gas_limit, p_speed,
                                    p_fee_cap);
  insert into fencepost.nonce_signer (chain_id, signer, next_nonce, recovering_since, created_at, updated_at)
  select p_chain_id, p_signer, 0, fencepost._nonce_recovering(), v_now, v_now
  where not exists (select from fencepost.nonce_signer s where s.chain_id = p_chain_id and s.signer = p_signer)
  on conflict (chain_id, signer) do nothing;
  select s.signer_id into v_signer from fencepost.nonce_signer s where s.chain_id = p_chain_id and s.signer = p_signer;
  insert into fencepost.nonce_transaction (signer_id, idempotency_key, digest, state, recipient, value, data, gas_limit,
                                           webhook, speed, fee_cap, deadline, created_at, updated_at)
  values (v_signer, p_idempotency_key, p_digest, 'QUEUED', p_recipient, p_value, coalesce(p_data, ''), p_gas_limit, p_webhook,
          p_speed, p_fee_cap, p_deadline, v_now, v_now)
  on conflict (idempotency_key) do nothing
  returning * into v_tx;
  if found then
    perform fencepost._wake('nonces.transactions');
    return query select v_tx.transaction_id, v_tx.state, false;
    return;
  end if;
  select * into v_tx from fencepost.nonce_transaction t where t.idempotency_key = p_idempotency_key;
  if v_tx.digest is distinct from p_digest or v_tx.signer_id is distinct from v_signer then
    perform fencepost._refuse('mismatch', 'transaction', p_idempotency_key, jsonb_build_object('digest', p_digest),
                              fencepost._nonce_tx_seen(v_tx));
  end if;
  return query select v_tx.transaction_id, v_tx.state, true;
end $$;

-- Accept up to 500 transactions at once; returns an answer for each, in their order, which is also the order of
-- their nonces for one signer. A key that is known with another content is answered with `mismatch` and stops
-- no other. Ids are drawn in the given order and the rows are inserted in order of key: two calls with the
-- same keys wait for each other and never in a circle. Served by nonce_transaction_once and nonce_signer_key.
create or replace function fencepost.nonce_tx_submit_many(
  p_chain_ids bigint[], p_signers text[], p_idempotency_keys text[], p_digests text[], p_recipients text[], p_values numeric[],
  p_datas bytea[], p_gas_limits bigint[], p_webhooks text[], p_speeds text[], p_fee_caps numeric[], p_deadlines timestamptz[]
) returns table (idempotency_key text, transaction_id bigint, state text, repeated boolean, refusal text)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_count integer := coalesce(cardinality(p_idempotency_keys), 0);
  v_now   timestamptz := fencepost.clock();
  v_ids   bigint[];
  v_new   bigint;
  v_row   record;
begin
  perform fencepost._require_read_committed();
  if v_count not between 1 and 500 then
    raise exception 'A batch has from 1 to 500 transactions.' using errcode = 'ZF100', detail = '{"field": "transactions"}';
  end if;
  perform fencepost._check_lengths('chain_ids', v_count, cardinality(p_chain_ids));
  perform fencepost._check_lengths('signers', v_count, cardinality(p_signers));
  perform fencepost._check_lengths('digests', v_count, cardinality(p_digests));
  perform fencepost._check_lengths('recipients', v_count, cardinality(p_recipients));
  perform fencepost._check_lengths('values', v_count, cardinality(p_values));
  perform fencepost._check_lengths('datas', v_count, cardinality(p_datas));
  perform fencepost._check_lengths('gas_limits', v_count, cardinality(p_gas_limits));
  perform fencepost._check_lengths('webhooks', v_count, cardinality(p_webhooks));
  perform fencepost._check_lengths('speeds', v_count, cardinality(p_speeds));
  perform fencepost._check_lengths('fee_caps', v_count, cardinality(p_fee_caps));
  perform fencepost._check_lengths('deadlines', v_count, cardinality(p_deadlines));
  perform fencepost._nonce_tx_check(i.chain_id, i.signer, i.key, i.digest, i.recipient, i.value, i.gas_limit, i.speed, i.fee_cap)
  from unnest(p_chain_ids, p_signers, p_idempotency_keys, p_digests, p_recipients, p_values, p_gas_limits, p_speeds, p_fee_caps)
       i (chain_id, signer, key, digest, recipient, value, gas_limit, speed, fee_cap);
  insert into fencepost.nonce_signer (chain_id, signer, next_nonce, recovering_since, created_at, updated_at)
  select i.chain_id, i.signer, 0, fencepost._nonce_recovering(), v_now, v_now
  from (select distinct u.chain_id, u.signer from unnest(p_chain_ids, p_signers) u (chain_id, signer)) i
  where not exists (select from fencepost.nonce_signer s where s.chain_id = i.chain_id and s.signer = i.signer)
  order by i.chain_id, i.signer
  on conflict (chain_id, signer) do nothing;
  v_ids := array(select nextval(pg_get_serial_sequence('fencepost.nonce_transaction', 'transaction_id'))
                 from generate_series(1, v_count));
  insert into fencepost.nonce_transaction (transaction_id, signer_id, idempotency_key, digest, state, recipient, value, data, gas_limit,
                                           webhook, speed, fee_cap, deadline, created_at, updated_at)
  overriding system value
  select v_ids[i.place], s.signer_id, i.key, i.digest, 'QUEUED', i.recipient, i.value, coalesce(i.data, ''), i.gas_limit, i.webhook,
         i.speed, i.fee_cap, i.deadline, v_now, v_now
  from unnest(p_chain_ids, p_signers, p_idempotency_keys, p_digests, p_recipients, p_values, p_datas, p_gas_limits, p_webhooks,
              p_speeds, p_fee_caps, p_deadlines)
       with ordinality i (chain_id, signer, key, digest, recipient, value, data, gas_limit, webhook, speed, fee_cap, deadline, place)
  cross join lateral (select o.signer_id from fencepost.nonce_signer o where o.chain_id = i.chain_id and o.signer = i.signer limit 1) s
  order by i.key, i.place
  on conflict (idempotency_key) do nothing;
  get diagnostics v_new = row_count;
  if v_new > 0 then
    perform fencepost._wake('nonces.transactions');
  end if;
  for v_row in
    select i.key, i.digest, i.place, t.seen, t.chain_id = i.chain_id and t.signer = i.signer and (t.seen).digest = i.digest as same
    from unnest(p_idempotency_keys, p_digests, p_chain_ids, p_signers) with ordinality i (key, digest, chain_id, signer, place)
    cross join lateral (select o as seen, s.chain_id, s.signer from fencepost.nonce_transaction o
                        join fencepost.nonce_signer s on s.signer_id = o.signer_id
                        where o.idempotency_key = i.key limit 1) t
    order by i.place
  loop
    if v_row.same then
      return query select v_row.key, (v_row.seen).transaction_id, (v_row.seen).state,
                          (v_row.seen).transaction_id <> v_ids[v_row.place], null::text;
    else
      perform fencepost._refusal_note('mismatch', 'transaction', v_row.key, null, jsonb_build_object('digest', v_row.digest),
                                      fencepost._nonce_tx_seen(v_row.seen));
      return query select v_row.key, null::bigint, null::text, null::boolean, 'mismatch'::text;
    end if;
  end loop;
end $$;

-- Bind the transactions that wait longest to nonces. Fenced. At most p_open_max are under way at once: a pool
-- accepts only a limited number per sender. One whose deadline has passed takes no nonce. Served by nonce_transaction_queued and nonce_transaction_open.
create or replace function fencepost.nonce_tx_take(
  p_chain_id bigint, p_signer text, p_owner text, p_token bigint, p_limit integer, p_open_max integer,
  p_locked_for interval default '60 seconds'
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_id    bigint;
  v_ids   bigint[];
  v_open  integer;
  v_taken bigint;
  v_now   timestamptz := fencepost.clock();
begin
  perform fencepost._nonce_check_signer(p_chain_id, p_signer);
  perform fencepost._check_limit(p_limit);
  perform fencepost._check_limit(p_open_max);
  perform fencepost._check_duration('locked_for', p_locked_for, interval '30 days');
  v_id := fencepost._nonce_fence('take', p_chain_id, p_signer, p_owner, p_token);
  perform 1 from fencepost.nonce_signer s where s.signer_id = v_id and s.recovering_since is null for no key update;
  if not found then
    return 0;
  end if;
  select count(*) into v_open from fencepost.nonce_transaction t where t.signer_id = v_id and t.state in ('BOUND', 'MINED');
  v_ids := array(select t.transaction_id from fencepost.nonce_transaction t
                 where t.signer_id = v_id and t.state = 'QUEUED' and t.in_doubt_since is null
                   and (t.deadline is null or t.deadline > v_now) order by t.transaction_id
                 limit least(p_limit, greatest(0, p_open_max - v_open)) for no key update);
  if cardinality(v_ids) = 0 then
    return 0;
  end if;
  perform fencepost._nonce_reserve(v_id, p_token, array(select 'tx:' || i from unnest(v_ids) with ordinality u (i, n) order by n),
                                   p_locked_for, false);
  update fencepost.nonce_transaction t
  set state = 'BOUND', updated_at = fencepost.clock(),
      (nonce, hold) = (select a.nonce, a.hold from fencepost.nonce_allocation a
                       where a.signer_id = v_id and a.request_id = 'tx:' || t.transaction_id)
  where t.transaction_id = any (v_ids);
  get diagnostics v_taken = row_count;
  return v_taken;
end $$;

-- What `error` says of a transaction that its deadline has ended.
create or replace function fencepost._nonce_tx_too_late() returns text
language sql immutable
as $$ select 'deadline: it was not mined by its deadline, and was cancelled.'::text $$;

-- Act on deadlines that have passed, of at most p_limit transactions. Fenced. One that waits is CANCELLED at
-- once. One that has its nonce is marked, and the owner replaces it with a no-op: its nonce is never forgotten,
-- and whichever of the two is mined decides. One that lost its nonce again after that is ended here too. One in
-- a block, and one in doubt, is left alone. Returns how many ended. Served by nonce_transaction_deadline.
create or replace function fencepost.nonce_tx_expire(
  p_chain_id bigint, p_signer text, p_owner text, p_token bigint, p_limit integer
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_id    bigint;
  v_ids   bigint[];
  v_now   timestamptz;
  v_tx    fencepost.nonce_transaction;
  v_ended bigint := 0;
begin
  perform fencepost._nonce_check_signer(p_chain_id, p_signer);
  perform fencepost._check_limit(p_limit);
  v_id := fencepost._nonce_fence('expire', p_chain_id, p_signer, p_owner, p_token);
  v_now := fencepost.clock();
  v_ids := array(select t.transaction_id from fencepost.nonce_transaction t
                 where t.signer_id = v_id and t.deadline <= v_now and t.deadline is not null
                   and t.state in ('QUEUED', 'BOUND') and t.in_doubt_since is null
                   and (t.state = 'QUEUED' or t.cancel_requested_at is null)
                 order by t.deadline limit p_limit);
  for v_tx in
    select * from fencepost.nonce_transaction t where t.transaction_id = any (v_ids) order by t.transaction_id for no key update
  loop
    -- It may have been cancelled, or seen in a block, since it was found.
    continue when v_tx.state not in ('QUEUED', 'BOUND') or v_tx.state = 'BOUND' and v_tx.cancel_requested_at is not null;
    update fencepost.nonce_transaction t
    set state = case when t.state <> 'QUEUED' then t.state when t.rejected_at is null then 'CANCELLED' else 'REJECTED' end,
        expired_at = coalesce(t.expired_at, v_now), cancel_requested_at = coalesce(t.cancel_requested_at, v_now),
        error = case when t.state = 'QUEUED' and t.rejected_at is null then fencepost._nonce_tx_too_late() else t.error end,
        updated_at = v_now
    where t.transaction_id = v_tx.transaction_id
    returning * into v_tx;
    if v_tx.state <> 'BOUND' then
      perform fencepost._nonce_tx_tell(v_tx);
      v_ended := v_ended + 1;
    end if;
  end loop;
  return v_ended;
end $$;

-- Lock the transaction and fence the signer; raises the reason against p_event.
create or replace function fencepost._nonce_tx_own(
  p_event text, p_chain_id bigint, p_signer text, p_owner text, p_token bigint, p_transaction_id bigint, p_states text[]
) returns fencepost.nonce_transaction
language plpgsql volatile
as $$
declare
  v_id bigint;
  v_tx fencepost.nonce_transaction;
begin
  perform fencepost._nonce_check_signer(p_chain_id, p_signer);
  perform fencepost._check_token('transaction_id', p_transaction_id);
  v_id := fencepost._nonce_fence(p_event, p_chain_id, p_signer, p_owner, p_token);
  select * into v_tx from fencepost.nonce_transaction t
  where t.transaction_id = p_transaction_id and t.signer_id = v_id for no key update;
  if v_tx.transaction_id is null or v_tx.state <> all (p_states) then
    perform fencepost._refuse(
      case when v_tx.transaction_id is null then 'not_found' when v_tx.state in ('BOUND', 'QUEUED', 'MINED') then 'mismatch'
           else 'already_finished' end,
      'transaction', p_transaction_id::text, jsonb_build_object('op', p_event, 'token', p_token), fencepost._nonce_tx_seen(v_tx));
  end if;
  return v_tx;
end $$;

-- Choose the fees and mark the nonce SIGNING: every signing, now or after a takeover, uses these fees. p_hold
-- is the one that the caller saw: if the transaction has another nonce by now, the caller is late. Fees above
-- the transaction's own cap are refused as mismatch.
create or replace function fencepost.nonce_tx_signing(
  p_chain_id bigint, p_signer text, p_owner text, p_token bigint, p_transaction_id bigint, p_hold bigint,
  p_max_fee numeric, p_max_priority numeric
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_tx fencepost.nonce_transaction;
begin
  v_tx := fencepost._nonce_tx_own('signing', p_chain_id, p_signer, p_owner, p_token, p_transaction_id, '{BOUND}');
  if p_max_fee > v_tx.fee_cap then
    perform fencepost._nonce_tx_refuse(v_tx, jsonb_build_object('op', 'signing', 'max_fee', p_max_fee, 'fee_cap', v_tx.fee_cap));
  end if;
  perform fencepost._nonce_mark('signing', p_chain_id, p_signer, p_owner, p_token, v_tx.nonce, p_hold, null);
  update fencepost.nonce_transaction t
  set max_fee = p_max_fee, max_priority = p_max_priority, updated_at = fencepost.clock()
  where t.transaction_id = p_transaction_id;
end $$;

-- Store signed bytes of the transaction under the fence, before they are sent. Stores them only for the nonce that the transaction holds.
create or replace function fencepost.nonce_tx_signed(
  p_chain_id bigint, p_signer text, p_owner text, p_token bigint, p_transaction_id bigint, p_hold bigint, p_tx_hash text,
  p_raw bytea, p_purpose text default 'send'
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_tx fencepost.nonce_transaction;
begin
  v_tx := fencepost._nonce_tx_own('signed', p_chain_id, p_signer, p_owner, p_token, p_transaction_id, '{BOUND,MINED}');
  perform fencepost._nonce_store(p_chain_id, p_signer, p_owner, p_token, v_tx.nonce, p_hold, p_tx_hash, p_raw, p_purpose);
end $$;

-- The bytes of the transaction were handed to a node of the chain.
create or replace function fencepost.nonce_tx_broadcast(
  p_chain_id bigint, p_signer text, p_owner text, p_token bigint, p_transaction_id bigint, p_hold bigint
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_tx fencepost.nonce_transaction;
begin
  v_tx := fencepost._nonce_tx_own('broadcast', p_chain_id, p_signer, p_owner, p_token, p_transaction_id, '{BOUND,MINED}');
  perform fencepost._nonce_mark('broadcast', p_chain_id, p_signer, p_owner, p_token, v_tx.nonce, p_hold, null);
end $$;

-- A block contains one of its versions; null for block and hash: a reorganisation removed it.
create or replace function fencepost.nonce_tx_mined(
  p_chain_id bigint, p_signer text, p_owner text, p_token bigint, p_transaction_id bigint, p_tx_hash text,
  p_block_number bigint, p_block_hash text
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._nonce_tx_own('mined', p_chain_id, p_signer, p_owner, p_token, p_transaction_id, '{BOUND,MINED}');
  update fencepost.nonce_transaction t
  set state = case when p_block_hash is null then 'BOUND' else 'MINED' end, tx_hash = p_tx_hash, block_number = p_block_number,
      block_hash = p_block_hash, error = case when t.rejected_at is not null then t.error end, unproved_since = null,
      updated_at = fencepost.clock()
  where t.transaction_id = p_transaction_id;
end $$;

-- Send the result to the requested webhook, in the transaction that decided it: `webhook` names the channel
-- of the outbox.
create or replace function fencepost._nonce_tx_tell(p_tx fencepost.nonce_transaction) returns void
language plpgsql volatile
as $$
begin
  if p_tx.webhook is not null then
    perform fencepost.outbox_put(p_tx.webhook, 'transaction:' || p_tx.transaction_id, jsonb_build_object(
      'event', 'transaction.' || lower(p_tx.state), 'transaction_id', p_tx.transaction_id,
      'idempotency_key', p_tx.idempotency_key, 'state', p_tx.state, 'nonce', p_tx.nonce, 'tx_hash', p_tx.tx_hash,
      'block_number', p_tx.block_number, 'receipt', p_tx.receipt, 'error', p_tx.error));
  end if;
end $$;

-- Its block is deep enough: the nonce is CONSUMED and the transaction ends, with a message in the outbox in
-- the same commit. The mined version determines the end state: the transaction itself, or the no-op that
-- cancels it. Whatever blocked it before is cleared, and needs no attention any more.
create or replace function fencepost.nonce_tx_confirm(
  p_chain_id bigint, p_signer text, p_owner text, p_token bigint, p_transaction_id bigint, p_tx_hash text, p_receipt jsonb
) returns text
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_tx      fencepost.nonce_transaction;
  v_purpose text;
begin
  perform fencepost._check_json('receipt', p_receipt, 65536);
  v_tx := fencepost._nonce_tx_own('confirm', p_chain_id, p_signer, p_owner, p_token, p_transaction_id, '{BOUND,MINED}');
  select s.purpose into v_purpose from fencepost.nonce_signature s
  where s.signer_id = v_tx.signer_id and s.nonce = v_tx.nonce and s.tx_hash = p_tx_hash;
  if v_purpose is null then
    perform fencepost._nonce_tx_refuse(v_tx, jsonb_build_object('op', 'confirm', 'tx_hash', p_tx_hash));
  end if;
  perform fencepost._nonce_mark('used', p_chain_id, p_signer, p_owner, p_token, v_tx.nonce, v_tx.hold, p_tx_hash);
  update fencepost.nonce_transaction t
  set state = case when v_purpose <> 'cancel' then 'CONFIRMED' when t.rejected_at is null then 'CANCELLED' else 'REJECTED' end,
      error = case when v_purpose <> 'cancel' then null when t.rejected_at is not null then t.error
                   when t.expired_at is not null then fencepost._nonce_tx_too_late() end,
      tx_hash = p_tx_hash, receipt = p_receipt,
      block_number = coalesce((p_receipt ->> 'block_number')::bigint, t.block_number), in_doubt_since = null,
      unproved_since = null, updated_at = fencepost.clock()
  where t.transaction_id = p_transaction_id
  returning * into v_tx;
  perform fencepost._nonce_tx_tell(v_tx);
  return v_tx.state;
end $$;

-- Take the nonce away from a signed transaction: CONSUMED, by p_used_by if it is known, and the transaction
-- waits for another one. Fenced by the callers, which have locked the transaction.
create or replace function fencepost._nonce_tx_give_up(p_tx fencepost.nonce_transaction, p_token bigint, p_used_by text, p_error text)
returns void
language plpgsql volatile
as $$
begin
  update fencepost.nonce_allocation a
  set status = 'CONSUMED', request_id = null, locked_until = null, fencing_token = p_token, tx_hash = coalesce(p_used_by, a.tx_hash),
      updated_at = fencepost.clock()
  where a.signer_id = p_tx.signer_id and a.nonce = p_tx.nonce;
  update fencepost.nonce_transaction t
  set state = 'QUEUED', nonce = null, hold = null, max_fee = null, max_priority = null, unproved_since = null,
      updated_at = fencepost.clock(), error = case when t.rejected_at is not null then t.error else p_error end
  where t.transaction_id = p_tx.transaction_id;
end $$;

-- The signed bytes can never be mined: the foreign transaction p_used_by with the same key has used the
-- nonce, in a block that the caller has proved to be deep enough. The nonce is CONSUMED, and the transaction
-- waits for another one. Refused without that hash, for a hash that was ever signed here for the nonce, and
-- while the chain's final count is not past it.
create or replace function fencepost.nonce_tx_lost(
  p_chain_id bigint, p_signer text, p_owner text, p_token bigint, p_transaction_id bigint, p_used_by text default null,
  p_block_number bigint default null, p_block_hash text default null
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_tx fencepost.nonce_transaction;
begin
  v_tx := fencepost._nonce_tx_own('lost', p_chain_id, p_signer, p_owner, p_token, p_transaction_id, '{BOUND}');
  if v_tx.in_doubt_since is not null
     or p_used_by is null or p_block_number is null or p_block_hash is null
     or exists (select from fencepost.nonce_signature n
                where n.signer_id = v_tx.signer_id and n.nonce = v_tx.nonce and lower(n.tx_hash) = lower(p_used_by))
     or not exists (select from fencepost.nonce_signer s where s.signer_id = v_tx.signer_id and s.chain_count > v_tx.nonce) then
    perform fencepost._nonce_tx_refuse(v_tx, jsonb_build_object('op', 'lost', 'used_by', p_used_by));
  end if;
  perform fencepost._check_text('used_by', p_used_by, 128);
  perform fencepost._check_text('block_hash', p_block_hash, 128);
  perform fencepost._nonce_tx_give_up(v_tx, p_token, p_used_by,
    'lost: its nonce was used by ' || p_used_by || ' in block ' || p_block_number
    || ', which was signed elsewhere with the same key. It takes another nonce.');
  perform fencepost._event(fencepost.clock(), 'lease', fencepost._nonce_resource(p_chain_id, p_signer), 'nonce_lost', p_owner, p_token,
    jsonb_build_object('transaction_id', p_transaction_id, 'nonce', v_tx.nonce, 'used_by', p_used_by, 'block_number', p_block_number,
                       'block_hash', p_block_hash));
end $$;

-- The chain counts its nonce as used, and no read has proved by which transaction. No state changes: it keeps
-- its nonce, and is reported (nonce_measures) until a read proves one or the other. Fenced.
create or replace function fencepost.nonce_tx_unproved(
  p_chain_id bigint, p_signer text, p_owner text, p_token bigint, p_transaction_id bigint, p_error text
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._check_text('error', p_error, 2000);
  perform fencepost._nonce_tx_own('unproved', p_chain_id, p_signer, p_owner, p_token, p_transaction_id, '{BOUND}');
  update fencepost.nonce_transaction t
  set unproved_since = coalesce(t.unproved_since, fencepost.clock()), updated_at = fencepost.clock(),
      error = case when t.rejected_at is not null then t.error else p_error end
  where t.transaction_id = p_transaction_id;
end $$;

-- It must not be sent, and will end as p_state, with p_error. While nothing of it was signed with its nonce,
-- the nonce is given back and the transaction ends. Signed, it can only be REJECTED here, and its nonce is
-- not given back: the owner replaces it with a no-op, as for a cancellation, and it ends when that is mined.
-- An earlier request to cancel it takes precedence.
create or replace function fencepost.nonce_tx_reject(
  p_chain_id bigint, p_signer text, p_owner text, p_token bigint, p_transaction_id bigint, p_state text, p_error text
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_tx fencepost.nonce_transaction;
begin
  perform fencepost._check_word('state', p_state, '{REJECTED,CANCELLED}');
  perform fencepost._check_text('error', p_error, 2000);
  v_tx := fencepost._nonce_tx_own('reject', p_chain_id, p_signer, p_owner, p_token, p_transaction_id, '{QUEUED,BOUND}');
  if p_state = 'REJECTED' and exists (
    select from fencepost.nonce_allocation a
    where a.signer_id = v_tx.signer_id and a.nonce = v_tx.nonce and a.status in ('SIGNING', 'SIGNED', 'BROADCAST')) then
    update fencepost.nonce_transaction t
    set rejected_at = fencepost.clock(), cancel_requested_at = fencepost.clock(), error = p_error, updated_at = fencepost.clock()
    where t.transaction_id = p_transaction_id and t.cancel_requested_at is null;
    return;
  end if;
  if v_tx.nonce is not null then
    perform fencepost._nonce_mark('recyclable', p_chain_id, p_signer, p_owner, p_token, v_tx.nonce, v_tx.hold, null);
  end if;
  update fencepost.nonce_transaction t
  set state = case when t.rejected_at is null then p_state else 'REJECTED' end,
      error = case when t.rejected_at is not null then t.error when t.expired_at is not null then fencepost._nonce_tx_too_late()
                   else p_error end,
      in_doubt_since = null, unproved_since = null,
      updated_at = fencepost.clock()
  where t.transaction_id = p_transaction_id
  returning * into v_tx;
  perform fencepost._nonce_tx_tell(v_tx);
end $$;

-- Record what blocks it at present; null when nothing does.
create or replace function fencepost.nonce_tx_note(
  p_chain_id bigint, p_signer text, p_owner text, p_token bigint, p_transaction_id bigint, p_error text
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  if p_error is not null then
    perform fencepost._check_text('error', p_error, 2000);
  end if;
  perform fencepost._nonce_tx_own('note', p_chain_id, p_signer, p_owner, p_token, p_transaction_id, '{BOUND}');
  update fencepost.nonce_transaction t set error = p_error, updated_at = fencepost.clock()
  where t.transaction_id = p_transaction_id and t.rejected_at is null;
end $$;

-- Cancel on request. A queued transaction is cancelled at once; one that has its nonce is marked, and the
-- owner replaces it with a no-op: whichever of the two is mined decides. Returns the state.
create or replace function fencepost.nonce_tx_cancel(p_transaction_id bigint) returns text
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_tx fencepost.nonce_transaction;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_token('transaction_id', p_transaction_id);
  select * into v_tx from fencepost.nonce_transaction t where t.transaction_id = p_transaction_id for no key update;
  if not found then
    perform fencepost._refuse('not_found', 'transaction', p_transaction_id::text, '{"op": "cancel"}', null);
  end if;
  if v_tx.state in ('CONFIRMED', 'REJECTED') then
    perform fencepost._refuse('already_finished', 'transaction', p_transaction_id::text, '{"op": "cancel"}',
                              fencepost._nonce_tx_seen(v_tx));
  end if;
  if v_tx.state <> 'CANCELLED' then
    update fencepost.nonce_transaction t
    set state = case t.state when 'QUEUED' then 'CANCELLED' else t.state end,
        in_doubt_since = case when t.state <> 'QUEUED' then t.in_doubt_since end,
        cancel_requested_at = coalesce(t.cancel_requested_at, fencepost.clock()), updated_at = fencepost.clock()
    where t.transaction_id = p_transaction_id
    returning * into v_tx;
    if v_tx.state = 'CANCELLED' then
      perform fencepost._nonce_tx_tell(v_tx);
    end if;
    perform fencepost._wake('nonces.transactions');
  end if;
  return v_tx.state;
end $$;

-- The transactions under way for one signer, in order of nonce, with the newest signed bytes: all that a new
-- owner needs to go on.
create or replace function fencepost.nonce_tx_open(p_chain_id bigint, p_signer text, p_limit integer)
returns table (transaction_id bigint, state text, nonce bigint, hold bigint, status text, recipient text, value text, data bytea,
               gas_limit bigint, max_fee text, max_priority text, tx_hash text, block_hash text, raw bytea, version integer,
               signed_hashes text[], signed_at timestamptz, cancelling boolean, rejected boolean, purpose text,
               error text, block_number bigint, in_doubt boolean, unproved boolean, speed text, fee_cap text, has_deadline boolean)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  perform fencepost._check_limit(p_limit);
  return query
  select t.transaction_id, t.state, t.nonce, t.hold, a.status, t.recipient, t.value::text, t.data, t.gas_limit,
         t.max_fee::text, t.max_priority::text, coalesce(n.tx_hash, a.tx_hash), t.block_hash, n.raw, n.version,
         array(select o.tx_hash from fencepost.nonce_signature o where o.signer_id = t.signer_id and o.nonce = t.nonce
               order by o.version desc),
         n.created_at, t.cancel_requested_at is not null, t.rejected_at is not null, n.purpose, t.error,
         t.block_number, t.in_doubt_since is not null, t.unproved_since is not null, t.speed, t.fee_cap::text,
         t.deadline is not null
  from fencepost.nonce_signer s
  join fencepost.nonce_transaction t on t.signer_id = s.signer_id and t.state in ('BOUND', 'MINED')
  cross join lateral (select o.* from fencepost.nonce_allocation o where o.signer_id = t.signer_id and o.nonce = t.nonce
                      limit 1) a
  left join lateral (select o.* from fencepost.nonce_signature o where o.signer_id = t.signer_id and o.nonce = t.nonce
                     order by o.version desc limit 1) n on true
  where s.chain_id = p_chain_id and s.signer = p_signer
  order by t.nonce limit p_limit;
end $$;

-- The signers that have transactions to advance, and for how long no node has held them although there were
-- some: 0 for a signer that is held. Served by the partial indexes, and by the lease's primary key.
create or replace function fencepost.nonce_tx_signers() returns table (chain_id bigint, signer text, free_seconds double precision)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := fencepost.clock();
begin
  return query
  select s.chain_id, s.signer,
         case when l.owner is not null and l.expires_at > v_now then 0
              else extract(epoch from v_now - greatest(l.expires_at, least(q.created_at, o.created_at))) end::double precision
  from fencepost.nonce_signer s
  left join fencepost.lease l on l.resource = fencepost._nonce_resource(s.chain_id, s.signer)
  left join lateral (select t.created_at from fencepost.nonce_transaction t
                     where t.signer_id = s.signer_id and t.state = 'QUEUED' order by t.transaction_id limit 1) q on true
  left join lateral (select t.created_at from fencepost.nonce_transaction t
                     where t.signer_id = s.signer_id and t.state in ('BOUND', 'MINED') order by t.nonce limit 1) o on true
  where q.created_at is not null or o.created_at is not null
  order by s.signer_id;
end $$;

-- The ids of one page of transactions, newest first: of one signer or of all, in the given states or in any,
-- accepted from p_from on and before p_until, behind the transaction p_below. Each state is read from its own
-- part of an index, at most p_limit rows of it, however long the history is. Served by
-- nonce_transaction_by_signer or nonce_transaction_by_state.
create or replace function fencepost.nonce_tx_page(
  p_chain_id bigint, p_signer text, p_states text[], p_from timestamptz, p_until timestamptz, p_below bigint, p_limit integer
) returns setof bigint
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_signer bigint;
  v_states text[] := coalesce(p_states, '{QUEUED, BOUND, MINED, CONFIRMED, CANCELLED, REJECTED}');
  v_from   timestamptz := coalesce(p_from, '-infinity');
  v_at     timestamptz := 'infinity';
  v_below  bigint := coalesce(p_below, 9223372036854775807);
begin
  perform fencepost._check_limit(p_limit);
  perform fencepost._check_word('state', w, '{QUEUED, BOUND, MINED, CONFIRMED, CANCELLED, REJECTED}') from unnest(v_states) w;
  if p_below is not null then
    -- Not every id has a row: a repeated submission uses one up.
    select t.created_at into v_at from fencepost.nonce_transaction t
    where t.transaction_id <= p_below order by t.transaction_id desc limit 1;
    if not found then
      return;
    end if;
  end if;
  if p_until <= v_at then
    -- Ids begin at 1: nothing that was accepted at p_until itself lies below 0.
    v_at := p_until;
    v_below := 0;
  end if;
  if p_signer is null then
    return query
    select l.transaction_id from (select distinct w from unnest(v_states) w) s (state)
    cross join lateral (
      select t.transaction_id, t.created_at from fencepost.nonce_transaction t
      where t.state = s.state and (t.created_at, t.transaction_id) < (v_at, v_below) and t.created_at >= v_from
      order by t.created_at desc, t.transaction_id desc limit p_limit) l
    order by l.created_at desc, l.transaction_id desc limit p_limit;
    return;
  end if;
  perform fencepost._nonce_check_signer(p_chain_id, p_signer);
  select s.signer_id into v_signer from fencepost.nonce_signer s where s.chain_id = p_chain_id and s.signer = p_signer;
  return query
  select l.transaction_id from (select distinct w from unnest(v_states) w) s (state)
  cross join lateral (
    select t.transaction_id, t.created_at from fencepost.nonce_transaction t
    where t.signer_id = v_signer and t.state = s.state and (t.created_at, t.transaction_id) < (v_at, v_below)
      and t.created_at >= v_from
    order by t.created_at desc, t.transaction_id desc limit p_limit) l
  order by l.created_at desc, l.transaction_id desc limit p_limit;
end $$;
