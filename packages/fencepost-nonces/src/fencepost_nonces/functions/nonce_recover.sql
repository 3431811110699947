-- After a restore from a backup: what was given out and sent in the lost time is not recorded here, and had
-- its effect outside.
--
-- So every nonce that may have been given out in the lost time is treated as the reservation of an outside
-- caller: it waits for that caller's report, or for the chain's proof, and is given to no other caller. Only
-- the chain and operators know how many there were above the end of the sequence: until they have stated it
-- (nonce_resume), the signer gives out none.
--
-- What the lost time may have done to a transaction, and what becomes of it here:
--
--   in the backup            may have been              here
--   QUEUED                   sent, with any nonce       in doubt: takes no nonce until an operator vouches that it
--                                                       was not sent
--   BOUND, HELD              sent, with any nonce       its nonce is an outside caller's; QUEUED, and in doubt
--   BOUND, SIGNING or later  sent, with this nonce;     goes on with the same nonce, which can be mined once. Counted
--                            replaced; mined            past without a known receipt: in doubt, where it would
--                                                       otherwise take another nonce

-- Every free or unsigned nonce becomes the reservation of an outside caller; transaction ids and holds of the
-- lost time match nothing. Runs before the leases jump, in their transaction; takes locks in the usual order.
create or replace function fencepost._recover_nonces(p_actor text) returns jsonb
language plpgsql volatile
as $$
declare
  v_now          timestamptz := fencepost.clock();
  v_signers      bigint;
  v_nonces       bigint;
  v_transactions bigint;
begin
  -- For update: a transaction that has fenced a write ends first.
  perform 1 from fencepost.lease l where l.resource >= 'signer:' and l.resource < 'signer;' order by l.resource for update;
  perform 1 from fencepost.nonce_signer s order by s.signer_id for update;
  insert into fencepost.nonce_recovery (opened_at, actor) values (v_now, p_actor)
  on conflict (only_one) do update set opened_at = excluded.opened_at, actor = excluded.actor;
  update fencepost.nonce_signer s set recovering_since = v_now, updated_at = v_now;
  get diagnostics v_signers = row_count;
  update fencepost.nonce_transaction t
  set in_doubt_since = v_now, updated_at = v_now,
      (state, nonce, hold) = (select case when u.unsigned then 'QUEUED' else t.state end,
                                     case when not u.unsigned then t.nonce end, case when not u.unsigned then t.hold end)
  from (select o.transaction_id, coalesce(a.status = 'HELD', false) as unsigned
        from fencepost.nonce_transaction o
        left join fencepost.nonce_allocation a on a.signer_id = o.signer_id and a.nonce = o.nonce
        where o.state in ('QUEUED', 'BOUND', 'MINED')) u
  where t.transaction_id = u.transaction_id;
  get diagnostics v_transactions = row_count;
  -- Also the reservations of callers: a nonce that one of them gave back in the lost time may belong to
  -- another since, so a report under the old hold must not give it back once more. The caller repeats the
  -- same request, and gets the same nonce under a new hold.
  update fencepost.nonce_allocation a
  set status = 'HELD', caller_signs = true, hold = a.hold + fencepost._recover_jump(), locked_until = v_now, updated_at = v_now,
      request_id = case when a.status = 'HELD' and a.caller_signs then a.request_id
                        else 'recovered:' || a.nonce || ':' || a.hold end
  where a.status in ('RELEASED', 'HELD');
  get diagnostics v_nonces = row_count;
  perform fencepost._recover_ids('fencepost.nonce_transaction', 'transaction_id');
  return jsonb_build_object('signers', v_signers, 'nonces', v_nonces, 'transactions_in_doubt', v_transactions);
end $$;

-- Whether a signer that is seen for the first time has to wait as well.
create or replace function fencepost._nonce_recovering() returns timestamptz
language sql stable
as $$ select r.opened_at from fencepost.nonce_recovery r $$;

-- The signer's next nonce is not set yet: counted and raised as not_running, with what to do.
create or replace function fencepost._nonce_refuse_recovering(p_signer fencepost.nonce_signer) returns void
language plpgsql volatile
as $$
declare
  v_resource text := fencepost._nonce_resource(p_signer.chain_id, p_signer.signer);
begin
  perform fencepost._refusal_count('not_running');
  raise exception 'signer %: not_running. It was recovered from a backup, which does not know what was given out since.', v_resource
    using errcode = 'ZF003', hint = 'Say where it goes on: fencepost nonces resume.',
          detail = jsonb_build_object('reason', 'not_running', 'noun', 'signer', 'subject', v_resource,
            'attempted', '{"op": "reserve"}'::jsonb,
            'seen', jsonb_build_object('recovering_since', p_signer.recovering_since, 'next_nonce', p_signer.next_nonce));
end $$;

-- Go on at p_next_nonce, or where the sequence is if that is higher. The nonces from the newest block's count
-- up to that were given out in the lost time: reservations of outside callers. Fenced. Returns the next
-- nonce, and how many such reservations there are.
create or replace function fencepost.nonce_resume(
  p_chain_id bigint, p_signer text, p_owner text, p_token bigint, p_latest_count bigint, p_next_nonce bigint
) returns table (next_nonce bigint, outside bigint)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_id   bigint;
  v_now  timestamptz;
  v_from bigint;
  v_next bigint;
begin
  perform fencepost._nonce_check_signer(p_chain_id, p_signer);
  perform fencepost._check_token('latest_count', p_latest_count);
  perform fencepost._check_token('next_nonce', p_next_nonce);
  v_id := fencepost._nonce_fence('resume', p_chain_id, p_signer, p_owner, p_token);
  select greatest(s.next_nonce, p_latest_count), greatest(s.next_nonce, p_latest_count, p_next_nonce) into v_from, v_next
  from fencepost.nonce_signer s where s.signer_id = v_id for no key update;
  if v_next - v_from > 100000 then
    raise exception 'next_nonce % is more than 100000 above %.', v_next, v_from
      using errcode = 'ZF100', detail = '{"field": "next_nonce"}';
  end if;
  v_now := fencepost.clock();
  insert into fencepost.nonce_allocation (signer_id, nonce, status, caller_signs, hold, request_id, locked_until, fencing_token,
                                          created_at, updated_at)
  select v_id, n, 'HELD', true, fencepost._recover_jump(), 'recovered:' || n || ':0', v_now, p_token, v_now, v_now
  from generate_series(v_from, v_next - 1) n;
  get diagnostics outside = row_count;
  update fencepost.nonce_signer s set next_nonce = v_next, recovering_since = null, updated_at = v_now where s.signer_id = v_id;
  perform fencepost._event(v_now, 'lease', fencepost._nonce_resource(p_chain_id, p_signer), 'resumed', p_owner, p_token,
    jsonb_build_object('next_nonce', v_next, 'outside', outside));
  next_nonce := v_next;
  return next;
end $$;

-- End the recovery: a signer that is seen for the first time from now on is a new one. Refused while a known
-- one still waits.
create or replace function fencepost.nonce_recovery_close() returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_waiting fencepost.nonce_signer;
begin
  perform fencepost._require_read_committed();
  select * into v_waiting from fencepost.nonce_signer s where s.recovering_since is not null order by s.signer_id limit 1;
  if found then
    perform fencepost._nonce_refuse_recovering(v_waiting);
  end if;
  delete from fencepost.nonce_recovery;
end $$;

-- An operator states that nothing of it was mined except what is recorded here: it may take a nonce again. A
-- transaction whose nonce is counted as used, without a proof of what used it, gives that nonce up and takes
-- another; only when the chain's final count is past it. Fenced.
create or replace function fencepost.nonce_tx_vouch(
  p_chain_id bigint, p_signer text, p_owner text, p_token bigint, p_transaction_id bigint
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_tx fencepost.nonce_transaction;
begin
  v_tx := fencepost._nonce_tx_own('vouch', p_chain_id, p_signer, p_owner, p_token, p_transaction_id, '{QUEUED,BOUND,MINED}');
  if v_tx.unproved_since is not null then
    if not exists (select from fencepost.nonce_signer s where s.signer_id = v_tx.signer_id and s.chain_count > v_tx.nonce) then
      perform fencepost._nonce_tx_refuse(v_tx, jsonb_build_object('op', 'vouch'));
    end if;
    perform fencepost._nonce_tx_give_up(v_tx, p_token, null, 'lost: a person vouches that none of its versions was mined. It takes another nonce.');
    perform fencepost._event(fencepost.clock(), 'lease', fencepost._nonce_resource(p_chain_id, p_signer), 'nonce_vouched', p_owner,
      p_token, jsonb_build_object('transaction_id', p_transaction_id, 'nonce', v_tx.nonce));
  end if;
  update fencepost.nonce_transaction t set in_doubt_since = null, updated_at = fencepost.clock()
  where t.transaction_id = p_transaction_id;
  perform fencepost._wake('nonces.transactions');
end $$;

-- It was mined as p_tx_hash, in the lost time or as a version that was signed elsewhere: it ends, with a
-- message in the outbox. Only for a transaction that is in doubt or unproved; and if it has a nonce, only
-- when the chain's final count is past that. Fenced.
create or replace function fencepost.nonce_tx_close(
  p_chain_id bigint, p_signer text, p_owner text, p_token bigint, p_transaction_id bigint, p_tx_hash text, p_receipt jsonb
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_tx fencepost.nonce_transaction;
begin
  perform fencepost._check_text('tx_hash', p_tx_hash, 128);
  perform fencepost._check_json('receipt', p_receipt, 65536);
  v_tx := fencepost._nonce_tx_own('close', p_chain_id, p_signer, p_owner, p_token, p_transaction_id, '{QUEUED,BOUND}');
  if (v_tx.in_doubt_since is null and v_tx.unproved_since is null) or exists (
    select from fencepost.nonce_signer s where s.signer_id = v_tx.signer_id and s.chain_count <= v_tx.nonce) then
    perform fencepost._nonce_tx_refuse(v_tx, jsonb_build_object('op', 'close'));
  end if;
  if v_tx.nonce is not null then
    perform fencepost._nonce_mark('used', p_chain_id, p_signer, p_owner, p_token, v_tx.nonce, v_tx.hold, p_tx_hash);
  end if;
  update fencepost.nonce_transaction t
  set state = 'CONFIRMED', tx_hash = p_tx_hash, receipt = p_receipt, in_doubt_since = null, unproved_since = null, error = null,
      block_number = (p_receipt ->> 'block_number')::bigint, updated_at = fencepost.clock()
  where t.transaction_id = p_transaction_id
  returning * into v_tx;
  perform fencepost._nonce_tx_tell(v_tx);
end $$;
