-- What needs attention among the signers and their transactions.

-- Each need with its count. Counted up to a limit: a million is as urgent as ten thousand. Served by a small
-- table and the partial indexes nonce_allocation_open, nonce_transaction_in_doubt and nonce_transaction_unproved.
create or replace function fencepost.nonce_needs() returns table (need text, name text, things bigint)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_most integer := 10000;
begin
  return query
  select 'signers recovering', null::text, (select count(*) from fencepost.nonce_signer s where s.recovering_since is not null)
  union all
  -- Its caller signs by itself, its time is over, and it did not report whether the nonce was used: its successors wait for it.
  select 'held nonces overdue', null, (
    select count(*) from (select 1 from fencepost.nonce_allocation a
                          where a.status in ('HELD', 'SIGNING', 'SIGNED', 'BROADCAST') and a.caller_signs
                            and a.locked_until <= fencepost.clock() limit v_most) o)
  union all
  select 'transactions in doubt', null, (
    select count(*) from (select 1 from fencepost.nonce_transaction t where t.in_doubt_since is not null limit v_most) t)
  union all
  select 'transactions unproved', null, (
    select count(*) from (select 1 from fencepost.nonce_transaction t
                          where t.unproved_since is not null and t.unproved_since <= fencepost.clock() - interval '1 minute'
                          limit v_most) t);
end $$;
