-- Idempotency keys: a request takes effect once. claim is the first statement of the mutation's transaction;
-- a rollback also removes the key's row, so a failed request can be repeated at once.
--
-- Answers, never raises for one of them:
--   claimed     continue: this transaction executes the request
--   replay      it committed before; the stored response is returned
--   duplicate   it committed before, and stored no response: read the state, do not repeat
--   mismatch    the key was used for another request (another digest)
--   in_flight   another transaction holds the key right now: ask again shortly
--   too_old     a time-ordered key outside the window (claim_ordered only)
--
-- A response is kept as its text, up to 64 KiB, and a repeat is answered with the same bytes. claim and
-- remember have two forms: with the response as text, which keeps it byte by byte, and as jsonb, which has
-- already lost the order of its keys.
--
-- Locks: a transaction-scoped advisory try-lock on (scope, key). Waiting for the other's INSERT would pin a
-- connection; lock_timeout would abort the caller's transaction. The lock is released after the commit is
-- visible, so the next holder sees what was committed. Two keys that share a hash only cost an in_flight.

create or replace function fencepost._idempotency_lock(p_scope text, p_key text) returns boolean
language sql volatile
as $$ select pg_try_advisory_xact_lock(hashtextextended(p_scope || chr(31) || p_key, 7411)) $$;

create or replace function fencepost._idempotency_check(p_scope text, p_key text, p_digest text, p_response text) returns void
language plpgsql volatile
as $$
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('scope', p_scope, 256);
  perform fencepost._check_text('key', p_key, 512);
  if p_key !~ '\S' then
    raise exception 'key is blank; a key names one request.' using errcode = 'ZF100', detail = '{"field": "key"}';
  end if;
  if p_digest is not null then
    perform fencepost._check_text('digest', p_digest, 256);
  end if;
  perform fencepost._check_response(p_response);
end $$;

-- A response as text: not past its size, and valid as jsonb, because the views show it as jsonb.
create or replace function fencepost._check_response(p_response text) returns void
language plpgsql immutable
as $$
begin
  if octet_length(p_response) > 65536 then
    raise exception 'response has % bytes; at most 65536 are allowed.', octet_length(p_response)
      using errcode = 'ZF100', detail = '{"field": "response"}';
  end if;
  perform p_response::jsonb;
end $$;

-- The answer for a key that is already known.
create or replace function fencepost._idempotency_answer(p_digest text, p_known_digest text, p_has_response boolean) returns text
language sql immutable
as $$
  select case when p_digest is distinct from p_known_digest then 'mismatch'
              when p_has_response then 'replay'
              else 'duplicate' end
$$;

-- Claim one key; counts and records every answer but claimed and replay. p_keep is the key's own retention,
-- counted from p_from or from now, whichever is later. Served by the primary key.
create or replace function fencepost._claim_try(
  p_scope text, p_key text, p_digest text, p_response text, p_keep interval, p_from timestamptz,
  out outcome text, out response json, out claimed_at timestamptz
) language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_known fencepost.idempotency_key;
begin
  if not fencepost._idempotency_lock(p_scope, p_key) then
    outcome := 'in_flight';
  else
    loop
      claimed_at := fencepost.clock();
      insert into fencepost.idempotency_key as m (scope, key, digest, response, claimed_by, claimed_at, expires_at)
      values (p_scope, p_key, p_digest, p_response::json, pg_current_xact_id(), claimed_at,
              greatest(claimed_at, p_from) + p_keep)
      on conflict (scope, key) do nothing;
      if found then
        outcome := 'claimed';
        response := p_response;
        return;
      end if;
      select * into v_known from fencepost.idempotency_key m where m.scope = p_scope and m.key = p_key;
      exit when found; -- Otherwise it was pruned in between: the key is free again.
    end loop;
    outcome := fencepost._idempotency_answer(p_digest, v_known.digest, v_known.response is not null);
    claimed_at := v_known.claimed_at;
    if outcome = 'replay' then
      response := v_known.response;
      return;
    end if;
  end if;
  perform fencepost._refusal_note(outcome, 'request', p_scope || '/' || p_key, null,
    jsonb_build_object('digest', p_digest), jsonb_build_object('digest', v_known.digest, 'claimed_at', v_known.claimed_at));
end $$;

-- The unconditional first statement of a mutation. p_response, when it is known already, is stored with the
-- key in one write; otherwise remember() adds it in the same transaction.
create or replace function fencepost.claim(p_scope text, p_key text, p_digest text, p_response text)
returns table (outcome text, response json, claimed_at timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._idempotency_check(p_scope, p_key, p_digest, p_response);
  return query select * from fencepost._claim_try(p_scope, p_key, p_digest, p_response, null, null);
end $$;

-- The same with the response as jsonb.
create or replace function fencepost.claim(
  p_scope text, p_key text, p_digest text default null, p_response jsonb default null
) returns table (outcome text, response jsonb, claimed_at timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._idempotency_check(p_scope, p_key, p_digest, p_response::text);
  return query select c.outcome, c.response::jsonb, c.claimed_at
               from fencepost._claim_try(p_scope, p_key, p_digest, p_response::text, null, null) c;
end $$;

-- Claim many keys of one scope, in order of key so that two callers cannot deadlock; answers for each.
create or replace function fencepost._claim_many(
  p_scope text, p_keys text[], p_digests text[], p_responses text[]
) returns table (key text, outcome text, response json, claimed_at timestamptz)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_now   timestamptz;
  v_fresh text[];
  v_last  text;
  v       record;
begin
  perform fencepost._check_lengths('digests', cardinality(p_keys), coalesce(cardinality(p_digests), cardinality(p_keys)));
  perform fencepost._check_lengths('responses', cardinality(p_keys), coalesce(cardinality(p_responses), cardinality(p_keys)));
  perform fencepost._require_read_committed();
  perform fencepost._check_text('scope', p_scope, 256);
  perform fencepost._check_texts('key', p_keys, 512);
  perform fencepost._idempotency_check(p_scope, k, null, null) from unnest(p_keys) k where k !~ '\S';
  perform fencepost._check_texts('digest', p_digests, 256, true);
  perform fencepost._check_response(r) from unnest(p_responses) r;
  v_now := fencepost.clock();
  -- The common case, unused keys, in one statement.
  with free as materialized (
    select a.* from (select a.* from unnest(p_keys, p_digests, p_responses) with ordinality a (key, digest, response, place)
                     order by a.key, a.place) a
    where fencepost._idempotency_lock(p_scope, a.key)
  ), fresh as (
    insert into fencepost.idempotency_key (scope, key, digest, response, claimed_by, claimed_at)
    select p_scope, f.key, f.digest, f.response::json, pg_current_xact_id(), v_now from free f
    on conflict (scope, key) do nothing
    returning key
  )
  select coalesce(array_agg(f.key), '{}') into v_fresh from fresh f;
  if cardinality(v_fresh) = cardinality(p_keys) then
    return query select a.key, 'claimed', a.response::json, v_now from unnest(p_keys, p_responses) a (key, response) order by a.key;
    return;
  end if;
  for v in select a.key, a.digest, a.response from unnest(p_keys, p_digests, p_responses) with ordinality
             a (key, digest, response, place) order by a.key, a.place loop
    if v.key is distinct from v_last and v.key = any (v_fresh) then
      return query select v.key, 'claimed', v.response::json, v_now;
    else
      return query select v.key, c.outcome, c.response, c.claimed_at
                   from fencepost._claim_try(p_scope, v.key, v.digest, v.response, null, null) c;
    end if;
    v_last := v.key;
  end loop;
end $$;

-- The same for callers, with the responses as text.
create or replace function fencepost.claim_many(p_scope text, p_keys text[], p_digests text[], p_responses text[])
returns table (key text, outcome text, response json, claimed_at timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  return query select * from fencepost._claim_many(p_scope, p_keys, p_digests, p_responses);
end $$;

-- The same with the responses as jsonb.
create or replace function fencepost.claim_many(
  p_scope text, p_keys text[], p_digests text[] default null, p_responses jsonb[] default null
) returns table (key text, outcome text, response jsonb, claimed_at timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  return query select c.key, c.outcome, c.response::jsonb, c.claimed_at
               from fencepost._claim_many(p_scope, p_keys, p_digests, p_responses::text[]) c;
end $$;

-- Store the response beside a claim of this same transaction. Raises duplicate when the key belongs to an
-- earlier transaction (its answer is final), not_found when there is none.
create or replace function fencepost.remember(p_scope text, p_key text, p_response text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_known fencepost.idempotency_key;
begin
  perform fencepost._idempotency_check(p_scope, p_key, null, p_response);
  update fencepost.idempotency_key m set response = p_response::json
  where m.scope = p_scope and m.key = p_key and m.claimed_by = pg_current_xact_id();
  if not found then
    select * into v_known from fencepost.idempotency_key m where m.scope = p_scope and m.key = p_key;
    perform fencepost._refuse(case when found then 'duplicate' else 'not_found' end, 'request', p_scope || '/' || p_key,
      '{}', jsonb_build_object('claimed_at', v_known.claimed_at));
  end if;
end $$;

-- The same with the response as jsonb.
create or replace function fencepost.remember(p_scope text, p_key text, p_response jsonb) returns void
language sql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$ select fencepost.remember(p_scope, p_key, p_response::text) $$;

-- Delete keys that are past their own retention, and those without one that are older than p_keep; at most
-- p_limit; returns how many. Every node runs it, without an election: SKIP LOCKED divides the work. By ctid,
-- because a join would fall back to a scan. Served by idempotency_key_by_expiry and idempotency_key_by_age.
create or replace function fencepost.idempotency_clean(p_keep interval, p_limit integer) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_before  timestamptz := fencepost._prune_before(p_keep, p_limit, interval '10 years');
  v_now     timestamptz := fencepost.clock();
  v_expired bigint;
  v_aged    bigint;
begin
  delete from fencepost.idempotency_key m where m.ctid = any (array(
    select o.ctid from fencepost.idempotency_key o where o.expires_at is not null and o.expires_at < v_now
    order by o.expires_at limit p_limit for update skip locked));
  get diagnostics v_expired = row_count;
  delete from fencepost.idempotency_key m where m.ctid = any (array(
    select o.ctid from fencepost.idempotency_key o where o.expires_at is null and o.claimed_at < v_before
    order by o.claimed_at limit p_limit - v_expired for update skip locked));
  get diagnostics v_aged = row_count;
  return v_expired + v_aged;
end $$;

-- By how many seconds the most overdue key is past its retention: 0 while the pruning keeps up. Served by
-- idempotency_key_by_expiry and idempotency_key_by_age.
create or replace function fencepost.idempotency_lag(p_keep interval) returns double precision
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now     timestamptz := fencepost.clock();
  v_before  timestamptz := v_now - p_keep;
  v_oldest  timestamptz;
  v_expired timestamptz;
begin
  perform fencepost._check_duration('keep', p_keep, interval '10 years');
  select m.claimed_at into v_oldest from fencepost.idempotency_key m where m.expires_at is null and m.claimed_at < v_before
  order by m.claimed_at limit 1;
  select m.expires_at into v_expired from fencepost.idempotency_key m where m.expires_at is not null and m.expires_at < v_now
  order by m.expires_at limit 1;
  return greatest(0, extract(epoch from v_before - v_oldest), extract(epoch from v_now - v_expired));
end $$;
