-- The views of signers and nonces, for operators and programs.

create or replace view fencepost.signer_lease as
  select s.signer, l.owner as owner_node, s.fencing_token, l.acquired_at, l.expires_at, l.renewed_at as updated_at, s.chain_id,
         l.owner is not null and l.expires_at > fencepost.clock() as held
  from fencepost.nonce_signer s
  join fencepost.lease l on l.resource = 'signer:' || s.chain_id || ':' || s.signer;

create or replace view fencepost.signer_nonce_allocation as
  select s.signer, a.nonce, a.status, a.locked_until, a.fencing_token, a.tx_hash, a.created_at, a.updated_at, s.chain_id,
         a.request_id, a.hold, a.caller_signs
  from fencepost.nonce_allocation a join fencepost.nonce_signer s on s.signer_id = a.signer_id;

-- One row per signer, with what is under way. The counts read only open nonces, and the gaps.
create or replace view fencepost.nonce_signers as
  select s.chain_id, s.signer, s.next_nonce, s.chain_count, s.fencing_token, l.owner as owner_node, l.expires_at,
         l.owner is not null and l.expires_at > fencepost.clock() as held, g.gaps, o.held_count, o.signing, o.signed, o.broadcast,
         o.oldest_open_at, o.lowest_open, s.created_at, s.recovering_since
  from fencepost.nonce_signer s
  left join fencepost.lease l on l.resource = 'signer:' || s.chain_id || ':' || s.signer
  cross join lateral (
    select count(*) as gaps from fencepost.nonce_allocation a where a.signer_id = s.signer_id and a.status = 'RELEASED') g
  cross join lateral (
    select count(*) filter (where a.status = 'HELD') as held_count, count(*) filter (where a.status = 'SIGNING') as signing,
           count(*) filter (where a.status = 'SIGNED') as signed, count(*) filter (where a.status = 'BROADCAST') as broadcast,
           min(a.updated_at) as oldest_open_at, min(a.nonce) as lowest_open
    from fencepost.nonce_allocation a
    where a.signer_id = s.signer_id and a.status in ('HELD', 'SIGNING', 'SIGNED', 'BROADCAST')) o;

-- The transactions under the names of their document; the signed bytes are in no view.
create or replace view fencepost.managed_transaction as
  select t.transaction_id, s.chain_id, s.signer, t.idempotency_key, t.state, a.status as nonce_status, t.nonce, t.recipient, t.value,
         t.gas_limit, t.max_fee, t.max_priority, coalesce(t.tx_hash, a.tx_hash) as tx_hash, t.block_number, t.receipt, t.error,
         a.fencing_token, t.cancel_requested_at, t.created_at, t.updated_at, t.in_doubt_since,
         t.unproved_since, t.speed, t.fee_cap, t.deadline, t.expired_at
  from fencepost.nonce_transaction t
  join fencepost.nonce_signer s on s.signer_id = t.signer_id
  left join fencepost.nonce_allocation a on a.signer_id = t.signer_id and a.nonce = t.nonce;

-- The ids of one page of a signer's transactions, newest first. p_scan is not used any more: an index covers
-- the transactions of one signer.
create or replace function fencepost.console_transaction_page(
  p_chain bigint, p_signer text, p_before bigint, p_limit integer, p_scan integer
) returns table (ids bigint[], next_before bigint)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  ids := array(select fencepost.nonce_tx_page(p_chain, p_signer, null, null, null, p_before, p_limit));
  next_before := case when cardinality(ids) = p_limit then ids[p_limit] end;
  return next;
end $$;
