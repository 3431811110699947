-- How the executing function of every mutation begins, and how it refuses.
--
-- A mutation is executed by one call of one function. Its body is: _mutation_claim, unconditionally and
-- first; then the entity's row FOR UPDATE; then what the plan rests on, compared with the locked row; then
-- the writes; then the audit. Any error rolls back the idempotency key too, so that the request can be sent
-- again at once.
--
-- A plan that rests on nothing but the version is applied to whatever version the locked row has: its
-- response contains "version":null, and _mutation_response replaces it with the version.
--
-- Three SQLSTATEs of Fencepost's own class, beside the refusals:
--   ZF110   the version is not the one that the plan was made for: execute the same plan again with the present one
--   ZF111   the plan cannot be applied to the row as it is: too little of something, or too much
--   ZF112   the plan was made from facts that have changed since: it is made again, on locked rows

-- Claim the request. A null key is a request without an id that the request id policy let pass: nothing
-- protects it. p_keep is how long its idempotency key is kept; null: the library's default. p_is_ordered says
-- that keys are UUIDv7 or ULID: one that is older than p_keep raises too_old, because its record may be gone.
create or replace function fencepost._mutation_claim(
  p_scope text, p_key text, p_digest text, p_response text, p_keep interval, p_is_ordered boolean,
  out outcome text, out response json
) language plpgsql volatile
as $$
declare
  v_key_time timestamptz;
begin
  if p_key is null then
    perform fencepost._require_read_committed();
    outcome := 'claimed';
    response := p_response;
    return;
  end if;
  perform fencepost._idempotency_check(p_scope, p_key, p_digest, p_response);
  if p_is_ordered then
    v_key_time := fencepost._mutation_key_time(p_key);
  end if;
  select c.outcome, c.response into outcome, response
  from fencepost._claim_try(p_scope, p_key, p_digest, p_response, p_keep, v_key_time) c;
  if p_is_ordered and outcome = 'claimed' then
    perform fencepost._mutation_refuse_old(p_scope, p_key, v_key_time, p_keep);
  end if;
end $$;

create or replace function fencepost._mutation_claim(
  p_scope text, p_key text, p_digest text, p_response jsonb, out outcome text, out response jsonb
) language plpgsql volatile
as $$
begin
  select c.outcome, c.response::jsonb into outcome, response
  from fencepost._mutation_claim(p_scope, p_key, p_digest, p_response::text, null, false) c;
end $$;

-- The time inside a time-ordered key.
create or replace function fencepost._mutation_key_time(p_key text) returns timestamptz
language plpgsql volatile
as $$
declare
  v_millis bigint := fencepost._key_millis(p_key);
begin
  if v_millis is null then
    raise exception 'The request id % is no UUIDv7 and no ULID, which this service asks for.', quote_literal(p_key)
      using errcode = 'ZF100', detail = '{"field": "request_id"}';
  end if;
  return to_timestamp(v_millis / 1000.0);
end $$;

-- Refuse a time-ordered key that was made longer ago than keys are kept, or that lies in the future. Checked
-- after the key was inserted: an existing record is kept until its key is too old, so a missing one never
-- existed.
create or replace function fencepost._mutation_refuse_old(p_scope text, p_key text, p_key_time timestamptz, p_keep interval)
returns void
language plpgsql volatile
as $$
declare
  v_now timestamptz := fencepost.clock();
begin
  if p_key_time < v_now - p_keep or p_key_time > v_now + interval '15 minutes' then
    perform fencepost._refuse('too_old', 'request', p_scope || '/' || p_key, jsonb_build_object('key_time', p_key_time),
      jsonb_build_object('judged_at', v_now, 'keep', p_keep));
  end if;
end $$;

-- The response with the version inserted.
create or replace function fencepost._mutation_response(p_response text, p_version bigint) returns text
language sql immutable
as $$
  select case when strpos(p_response, '"version":null') > 0
    then overlay(p_response placing '"version":' || p_version from strpos(p_response, '"version":null') for 14)
    else p_response end
$$;

-- What is known of a request before it is planned: open, replay, duplicate or mismatch. It locks nothing, so
-- the claim decides.
create or replace function fencepost._mutation_known(
  p_scope text, p_key text, p_digest text, out outcome text, out response json
) language plpgsql stable
as $$
declare
  v_known fencepost.idempotency_key;
begin
  outcome := 'open';
  if p_key is null then
    return;
  end if;
  select * into v_known from fencepost.idempotency_key m where m.scope = p_scope and m.key = p_key;
  if found then
    outcome := fencepost._idempotency_answer(p_digest, v_known.digest, v_known.response is not null);
    if outcome = 'replay' then
      response := v_known.response;
    end if;
  end if;
end $$;

create or replace function fencepost._mutation_conflict(p_subject text, p_expected bigint, p_version bigint) returns void
language plpgsql volatile
as $$
begin
  raise exception '% has version %, and the plan was to be carried out on version %.', p_subject, p_version, p_expected
    using errcode = 'ZF110', detail = jsonb_build_object('subject', p_subject, 'version', p_version);
end $$;

create or replace function fencepost._mutation_unfit(p_message text, p_meta jsonb) returns void
language plpgsql volatile
as $$
begin
  raise exception '%', p_message using errcode = 'ZF111', detail = p_meta;
end $$;

-- A plan that was made with another seed than the one recorded for the request must be made again with the
-- recorded one.
create or replace function fencepost._mutation_check_seed(p_scope text, p_key text, p_digest text, p_seed text) returns void
language plpgsql volatile
as $$
declare
  v_now  timestamptz := fencepost.clock();
  v_seed text;
begin
  select d.seed into v_seed from fencepost.mutation_seed d
  where d.scope = p_scope and d.key = p_key and d.digest = p_digest and d.expires_at > v_now;
  if v_seed <> p_seed then
    raise exception 'The request was planned before, with another seed.'
      using errcode = 'ZF112', detail = jsonb_build_object('seed', v_seed);
  end if;
end $$;

-- Record the seed of a request that has failed without an effect. The first record stays, for as long as an
-- idempotency key would. Returns the recorded seed. Served by the primary key.
create or replace function fencepost.mutation_seed_record(
  p_scope text, p_key text, p_digest text, p_seed text, p_keep interval
) returns text
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now  timestamptz := fencepost.clock();
  v_seed text;
begin
  perform fencepost._idempotency_check(p_scope, p_key, p_digest, null);
  perform fencepost._check_text('digest', p_digest, 256);
  perform fencepost._check_text('seed', p_seed, 64);
  perform fencepost._check_duration('keep', p_keep, interval '10 years');
  insert into fencepost.mutation_seed as d (scope, key, digest, seed, expires_at)
  values (p_scope, p_key, p_digest, p_seed, v_now + p_keep)
  on conflict (scope, key, digest) do update
    set seed = case when d.expires_at > v_now then d.seed else excluded.seed end,
        expires_at = case when d.expires_at > v_now then d.expires_at else excluded.expires_at end
  returning d.seed into v_seed;
  return v_seed;
end $$;

-- Delete recorded seeds that have expired, at most p_limit; returns how many. Served by
-- mutation_seed_by_expiry.
create or replace function fencepost.mutation_seed_clean(p_limit integer) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now   timestamptz := fencepost.clock();
  v_count bigint;
begin
  perform fencepost._check_limit(p_limit);
  delete from fencepost.mutation_seed d where d.ctid = any (array(
    select o.ctid from fencepost.mutation_seed o where o.expires_at <= v_now
    order by o.expires_at limit p_limit for update skip locked));
  get diagnostics v_count = row_count;
  return v_count;
end $$;

create or replace function fencepost._mutation_stale(p_subject text) returns void
language plpgsql volatile
as $$
begin
  raise exception '% has changed since the plan was made.', p_subject
    using errcode = 'ZF112', detail = jsonb_build_object('subject', p_subject);
end $$;
