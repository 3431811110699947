-- The maintenance of a node: measurements, overdue reports, and deletion of old data. For all signers,
-- whichever node holds them.

-- What needs attention, read from open rows only: no count grows with the history. Counts stop at 10,000.
--
--   gaps             RELEASED, and not reserved since
--   jamming          gaps below something that is under way: the chain mines nothing above them
--   overdue          a caller signs itself, its time is over, and it has not reported whether the nonce was used
--   recovering       signers of a restored backup whose next nonce is not set yet
--   in_doubt         transactions of a restored backup that may have been sent since
--   unproved         signed transactions whose nonce the chain has counted as used for a minute without a proof
--                    of what used it;
--                    endpoints that only lag behind have caught up by then
--   stuck_seconds    since the oldest transaction that is not mined was first signed; a replacement does not
--                    reset it
--   waiting_seconds  since the oldest transaction that was never signed was accepted
create or replace function fencepost.nonce_measures()
returns table (gaps bigint, jamming bigint, overdue bigint, recovering bigint, in_doubt bigint, stuck_seconds double precision,
               waiting_seconds double precision, unproved bigint)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := fencepost.clock();
begin
  select count(*), count(*) filter (where g.jams) into gaps, jamming
  from (select exists (select from fencepost.nonce_allocation o
                       where o.signer_id = a.signer_id and o.nonce > a.nonce
                         and o.status in ('HELD', 'SIGNING', 'SIGNED', 'BROADCAST')) as jams
        from fencepost.nonce_allocation a where a.status = 'RELEASED' limit 10000) g;
  select count(*) into overdue
  from (select from fencepost.nonce_allocation a
        where a.status in ('HELD', 'SIGNING', 'SIGNED', 'BROADCAST') and a.caller_signs and a.locked_until <= v_now limit 10000) o;
  select count(*) into recovering from fencepost.nonce_signer s where s.recovering_since is not null;
  select count(*) into unproved from fencepost.nonce_transaction t
  where t.unproved_since is not null and t.unproved_since <= v_now - interval '1 minute';
  select count(*) into in_doubt from fencepost.nonce_transaction t where t.in_doubt_since is not null;
  select coalesce(extract(epoch from v_now - min(n.created_at)), 0),
         coalesce(extract(epoch from v_now - min(t.created_at) filter (where n.created_at is null)), 0)
  into stuck_seconds, waiting_seconds
  from fencepost.nonce_transaction t
  left join fencepost.nonce_signature n on n.signer_id = t.signer_id and n.nonce = t.nonce and n.version = 1
  where t.state in ('BOUND', 'MINED') and t.state = 'BOUND';
  select greatest(waiting_seconds, coalesce(extract(epoch from v_now - min(q.created_at)), 0)) into waiting_seconds
  from fencepost.nonce_signer s
  cross join lateral (select t.created_at from fencepost.nonce_transaction t
                      where t.signer_id = s.signer_id and t.state = 'QUEUED' and t.in_doubt_since is null
                      order by t.transaction_id limit 1) q
  where s.recovering_since is null;
  return next;
end $$;

-- Signers of these chains whose callers have not reported a nonce although its time is over: the chain's
-- count may settle it. Each with its lowest such nonce. When there are more than p_limit, the choice is
-- random, so that none is left out forever. Served by nonce_allocation_open.
create or replace function fencepost.nonce_unanswered(p_chain_ids bigint[], p_limit integer)
returns table (chain_id bigint, signer text, nonce bigint)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := fencepost.clock();
begin
  perform fencepost._check_limit(p_limit);
  return query
  select s.chain_id, s.signer, min(a.nonce)
  from fencepost.nonce_allocation a join fencepost.nonce_signer s on s.signer_id = a.signer_id
  where a.status in ('HELD', 'SIGNING', 'SIGNED', 'BROADCAST') and a.caller_signs and a.locked_until <= v_now
    and s.chain_id = any (p_chain_ids) and s.signer like '0x%'
  group by s.chain_id, s.signer order by random() limit p_limit;
end $$;

-- Delete large data that has expired, at most p_limit of each: the signed bytes of nonces that were used
-- longer ago than p_keep, and the data of transactions that ended before. The nonces, their requests, and the
-- keys and digests of transactions stay forever: a repeat is recognised however late it comes. Returns how
-- many. Served by nonce_signature_old and nonce_transaction_old.
create or replace function fencepost.nonce_prune(p_keep interval, p_limit integer) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_before     timestamptz := fencepost._prune_before(p_keep, p_limit);
  v_signatures bigint;
  v_data       bigint;
begin
  -- Each nonce is looked up by its key: a join, planned while the tables are almost empty, scans the whole
  -- history of nonces. Not for a transaction that is still followed: for example one whose nonce was marked
  -- used by hand.
  delete from fencepost.nonce_signature n where n.ctid = any (array(
    select o.ctid from fencepost.nonce_signature o
    where o.created_at < v_before
      and (select a.status = 'CONSUMED' and a.updated_at < v_before from fencepost.nonce_allocation a
           where a.signer_id = o.signer_id and a.nonce = o.nonce)
      and not exists (select from fencepost.nonce_transaction t
                      where t.signer_id = o.signer_id and t.nonce = o.nonce and t.state in ('BOUND', 'MINED'))
    order by o.created_at limit p_limit for update skip locked));
  get diagnostics v_signatures = row_count;
  update fencepost.nonce_transaction t set data = ''
  where t.transaction_id = any (array(
    select o.transaction_id from fencepost.nonce_transaction o
    where o.state in ('CONFIRMED', 'CANCELLED', 'REJECTED') and o.data <> '' and o.updated_at < v_before
    order by o.updated_at limit p_limit for update skip locked));
  get diagnostics v_data = row_count;
  return greatest(v_signatures, v_data);
end $$;
