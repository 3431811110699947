-- Time-ordered idempotency keys. The key carries its own time, so a key that has left the window can be
-- refused as too_old instead of being executed again, and a whole slot is deleted by one TRUNCATE.
--
-- The window: 24 hours back and one slice (six hours) of clock skew ahead. Slot = slice number modulo 8; of the eight, six are
-- live, one drains, one is spare. Correctness does not depend on the truncation: a key outside the window is refused whatever
-- the slot still holds.

-- The milliseconds inside a UUIDv7 or a ULID, or null when the key is neither.
create or replace function fencepost._key_millis(p_key text) returns bigint
language plpgsql immutable strict parallel safe
as $$
declare
  v_millis bigint := 0;
begin
  if p_key ~ '^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-7[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$' then
    return ('x' || lpad(left(replace(p_key, '-', ''), 12), 16, '0'))::bit(64)::bigint;
  elsif upper(p_key) ~ '^[0-7][0-9A-HJKMNP-TV-Z]{25}$' then
    for i in 1..10 loop
      v_millis := v_millis * 32 + strpos('0123456789ABCDEFGHJKMNPQRSTVWXYZ', substr(upper(p_key), i, 1)) - 1;
    end loop;
    return v_millis;
  end if;
  return null;
end $$;

create or replace function fencepost._slice(p_at timestamptz) returns bigint
language sql immutable strict parallel safe
as $$ select floor(extract(epoch from p_at) / 21600)::bigint $$;

-- claim for a scope whose keys are UUIDv7 or ULID. Upper and lower case are one key.
create or replace function fencepost.claim_ordered(p_scope text, p_key text, p_digest text, p_response text)
returns table (outcome text, response json, claimed_at timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_key     text := lower(p_key);
  v_millis  bigint := fencepost._key_millis(p_key);
  v_now     timestamptz;
  v_slice   bigint;
  v_known   fencepost.idempotency_ring;
  v_outcome text;
  v_fresh   boolean;
begin
  perform fencepost._idempotency_check(p_scope, p_key, p_digest, p_response);
  if v_millis is null then
    raise exception 'key % is no UUIDv7 and no ULID; use claim() for keys without a time.', quote_literal(p_key)
      using errcode = 'ZF100', detail = '{"field": "key"}';
  end if;
  v_now := fencepost.clock();
  v_slice := v_millis / 21600000;
  if v_slice < fencepost._slice(v_now) - 4 or v_slice > fencepost._slice(v_now) + 1 then
    v_outcome := 'too_old';
  elsif not fencepost._idempotency_lock(p_scope, v_key) then
    v_outcome := 'in_flight';
  else
    insert into fencepost.idempotency_ring (slot, scope, key, digest, response, claimed_by, claimed_at)
    values (v_slice % 8, p_scope, v_key, p_digest, p_response::json, pg_current_xact_id(), v_now)
    on conflict (slot, scope, key) do nothing;
    v_fresh := found;
    -- Checked after the insert: its lock on the slot prevents the truncation from here on.
    if (select v_slice <= f.slice from fencepost.idempotency_forgotten f) then
      delete from fencepost.idempotency_ring m where m.slot = v_slice % 8 and m.scope = p_scope and m.key = v_key and v_fresh;
      v_outcome := 'too_old';
    elsif v_fresh then
      return query select 'claimed', p_response::json, v_now;
      return;
    else
      select * into strict v_known from fencepost.idempotency_ring m
      where m.slot = v_slice % 8 and m.scope = p_scope and m.key = v_key;
      v_outcome := fencepost._idempotency_answer(p_digest, v_known.digest, v_known.response is not null);
    end if;
  end if;
  if v_outcome <> 'replay' then
    perform fencepost._refusal_note(v_outcome, 'request', p_scope || '/' || p_key, null,
      jsonb_build_object('digest', p_digest, 'key_time', to_timestamp(v_millis / 1000.0)),
      jsonb_build_object('digest', v_known.digest, 'claimed_at', v_known.claimed_at, 'judged_at', v_now));
  end if;
  return query select v_outcome, case when v_outcome = 'replay'
    then v_known.response end, v_known.claimed_at;
end $$;

-- The same with the response as jsonb.
create or replace function fencepost.claim_ordered(
  p_scope text, p_key text, p_digest text default null, p_response jsonb default null
) returns table (outcome text, response jsonb, claimed_at timestamptz)
language sql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select c.outcome, c.response::jsonb, c.claimed_at from fencepost.claim_ordered(p_scope, p_key, p_digest, p_response::text) c
$$;

-- remember for claim_ordered.
create or replace function fencepost.remember_ordered(p_scope text, p_key text, p_response text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_slot  smallint := (fencepost._key_millis(p_key) / 21600000) % 8;
  v_known fencepost.idempotency_ring;
begin
  perform fencepost._idempotency_check(p_scope, p_key, null, p_response);
  update fencepost.idempotency_ring m set response = p_response::json
  where m.slot = v_slot and m.scope = p_scope and m.key = lower(p_key) and m.claimed_by = pg_current_xact_id();
  if not found then
    select * into v_known from fencepost.idempotency_ring m
    where m.slot = v_slot and m.scope = p_scope and m.key = lower(p_key);
    perform fencepost._refuse(case when found then 'duplicate' else 'not_found' end, 'request', p_scope || '/' || p_key,
      '{}', jsonb_build_object('claimed_at', v_known.claimed_at));
  end if;
end $$;

-- The same with the response as jsonb.
create or replace function fencepost.remember_ordered(p_scope text, p_key text, p_response jsonb) returns void
language sql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$ select fencepost.remember_ordered(p_scope, p_key, p_response::text) $$;

-- Empty the slots that have left the window; returns how many. TRUNCATE takes an exclusive lock on that one
-- slot, which no claim uses any more; the short lock_timeout is for a transaction that began when it was
-- live. Whether the slice is outside the window is judged under the lock: a backend that was paused between
-- the two would otherwise empty a slot that is in use again. Written out, because a loop would need dynamic
-- SQL.
create or replace function fencepost.idempotency_ring_clean() returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, fencepost, pg_temp set lock_timeout = '100ms'
as $$
declare
  v_now_slice bigint := fencepost._slice(fencepost.clock());
  v_count     integer := 0;
  v_slice     bigint;
begin
  foreach v_slice in array array[v_now_slice - 6, v_now_slice - 5] loop
    continue when not exists (select 1 from fencepost.idempotency_ring m where m.slot = v_slice % 8);
    begin
      case v_slice % 8
        when 0 then lock table fencepost.idempotency_ring_0 in access exclusive mode;
        when 1 then lock table fencepost.idempotency_ring_1 in access exclusive mode;
        when 2 then lock table fencepost.idempotency_ring_2 in access exclusive mode;
        when 3 then lock table fencepost.idempotency_ring_3 in access exclusive mode;
        when 4 then lock table fencepost.idempotency_ring_4 in access exclusive mode;
        when 5 then lock table fencepost.idempotency_ring_5 in access exclusive mode;
        when 6 then lock table fencepost.idempotency_ring_6 in access exclusive mode;
        when 7 then lock table fencepost.idempotency_ring_7 in access exclusive mode;
      end case;
      continue when v_slice < fencepost._slice(fencepost.clock()) - 6;
      case v_slice % 8
        when 0 then truncate fencepost.idempotency_ring_0;
        when 1 then truncate fencepost.idempotency_ring_1;
        when 2 then truncate fencepost.idempotency_ring_2;
        when 3 then truncate fencepost.idempotency_ring_3;
        when 4 then truncate fencepost.idempotency_ring_4;
        when 5 then truncate fencepost.idempotency_ring_5;
        when 6 then truncate fencepost.idempotency_ring_6;
        when 7 then truncate fencepost.idempotency_ring_7;
      end case;
      update fencepost.idempotency_forgotten f set slice = greatest(f.slice, v_slice);
      v_count := v_count + 1;
    exception when lock_not_available then
      null; -- The next tick tries again; only disk space depends on it.
    end;
  end loop;
  return v_count;
end $$;
