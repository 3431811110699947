-- The outbox: a message is written in the caller's transaction and delivered at least once, in order for one key.
--
-- Order. A lower id can commit later, and SKIP LOCKED alone lets a later message overtake. So a keyed put
-- takes a transaction-scoped advisory lock on (channel, key) before its id, and only the first message of a
-- key is ready. Settling it makes the next one ready. If a put for the key is in progress at that moment (its
-- lock is taken), it is unknown whether it will commit: the key is noted in outbox_unpromoted, and the next
-- take promotes it.
--
-- Two ways to deliver. hold: rows stay locked while a fast send runs, then hold and settlement are one commit. take:
-- a leased take with a token for slow sends; every later write of that delivery carries the token.

-- A channel with a colon in its name (orders:acme) belongs to a service, which keeps rows beside its
-- messages: a put, take or settlement by another caller would make the two inconsistent. Its functions call
-- the ones that begin with _outbox.

create or replace function fencepost._outbox_check_channel(p_channel text) returns void
language plpgsql volatile
as $$
begin
  perform fencepost._check_text('channel', p_channel, 128);
  if strpos(p_channel, ':') > 0 then
    raise exception 'channel % belongs to a service, as every name with a colon does.', p_channel
      using errcode = 'ZF100', detail = '{"field": "channel"}';
  end if;
end $$;

create or replace function fencepost._outbox_key_hash(p_channel text, p_key text) returns bigint
language sql immutable parallel safe
as $$ select hashtextextended(p_channel || chr(31) || p_key, 1511) $$;

create or replace function fencepost._outbox_seen(p_message fencepost.outbox) returns jsonb
language sql immutable
as $$
  select case when p_message.id is null then '{}'::jsonb else
    jsonb_build_object('state', p_message.state, 'take', p_message.take, 'owner', p_message.owner,
                       'taken_until', p_message.taken_until, 'attempts', p_message.attempts) end
$$;

-- Whether this transaction sees recent commits. A transaction that keeps its snapshot cannot know whether a
-- key has a head by now: its message is not ready, and the key is noted for the next take.
create or replace function fencepost._sees_newest() returns boolean
language sql stable
as $$ select current_setting('transaction_isolation') in ('read committed', 'read uncommitted') $$;

-- Put one message. Writes only its own rows, so it works at any isolation level. Blocks while another
-- transaction with an open put for the same key is in progress: ordering requires it.
create or replace function fencepost.outbox_put(
  p_channel text, p_key text, p_payload jsonb, p_headers jsonb default '{}', p_not_before timestamptz default null
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._outbox_check_channel(p_channel);
  return fencepost._outbox_put(p_channel, p_key, p_payload, p_headers, p_not_before);
end $$;

create or replace function fencepost._outbox_put(
  p_channel text, p_key text, p_payload jsonb, p_headers jsonb, p_not_before timestamptz
) returns bigint
language plpgsql volatile
as $$
declare
  v_now timestamptz;
  v_id  bigint;
begin
  perform fencepost._check_json('payload', p_payload, 1048576);
  perform fencepost._check_json('headers', p_headers, 16384);
  perform fencepost._check_moment('not_before', p_not_before);
  if p_payload is null then
    raise exception 'payload must not be null.' using errcode = 'ZF100', detail = '{"field": "payload"}';
  end if;
  if p_key is not null then
    perform fencepost._check_text('key', p_key, 512);
    perform pg_advisory_xact_lock(fencepost._outbox_key_hash(p_channel, p_key));
  end if;
  v_now := fencepost.clock();
  insert into fencepost.outbox (channel, key, payload, headers, ready, not_before, created_at)
  values (p_channel, p_key, p_payload, coalesce(p_headers, '{}'),
          p_key is null or (fencepost._sees_newest() and not exists (
            select 1 from fencepost.outbox o where o.channel = p_channel and o.key = p_key)),
          greatest(coalesce(p_not_before, v_now), v_now), v_now)
  returning id into v_id;
  if p_key is not null and not fencepost._sees_newest() then
    insert into fencepost.outbox_unpromoted (channel, key) values (p_channel, p_key) on conflict do nothing;
  end if;
  perform fencepost._wake('outbox:' || p_channel);
  return v_id;
end $$;

-- Put many, in the order of the arrays for each key; locks the keys in order of their hash. One statement.
create or replace function fencepost.outbox_put_many(
  p_channel text, p_keys text[], p_payloads jsonb[], p_headers jsonb[] default null, p_not_before timestamptz default null
) returns setof bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz;
begin
  perform fencepost._outbox_check_channel(p_channel);
  perform fencepost._check_lengths('keys', cardinality(p_payloads), coalesce(cardinality(p_keys), cardinality(p_payloads)));
  perform fencepost._check_lengths('headers', cardinality(p_payloads), coalesce(cardinality(p_headers), cardinality(p_payloads)));
  perform fencepost._check_documents('payloads', p_payloads, 1048576);
  perform fencepost._check_documents('headers', p_headers, 16384);
  perform fencepost._check_moment('not_before', p_not_before);
  if p_payloads is null or array_position(p_payloads, null) is not null then
    raise exception 'payloads must not be null, nor hold a null.' using errcode = 'ZF100', detail = '{"field": "payloads"}';
  end if;
  perform fencepost._check_texts('keys', p_keys, 512, true);
  perform pg_advisory_xact_lock(h.hash) from (
    select distinct fencepost._outbox_key_hash(p_channel, k.key) as hash from unnest(p_keys) k (key)
    where k.key is not null order by 1) h;
  v_now := fencepost.clock();
  return query
  with put as materialized (
    select nextval('fencepost.outbox_id_seq') as id, a.key, a.payload, a.headers,
           row_number() over (partition by a.key order by a.place) as place_in_key
    from unnest(p_keys, p_payloads, p_headers) with ordinality a (key, payload, headers, place)
    order by a.place
  )
  insert into fencepost.outbox (id, channel, key, payload, headers, ready, not_before, created_at)
  select p.id, p_channel, p.key, p.payload, coalesce(p.headers, '{}'),
         -- No "not exists": the planner may answer that from a hash over the whole channel.
         p.key is null or (p.place_in_key = 1 and fencepost._sees_newest() and (
           select true from fencepost.outbox o where o.channel = p_channel and o.key = p.key limit 1) is null),
         greatest(coalesce(p_not_before, v_now), v_now), v_now
  from put p order by p.id
  returning id;
  if not fencepost._sees_newest() then
    insert into fencepost.outbox_unpromoted (channel, key)
    select distinct p_channel, k.key from unnest(p_keys) k (key) where k.key is not null order by 2
    on conflict do nothing;
  end if;
  perform fencepost._wake('outbox:' || p_channel);
end $$;

-- Make the first message of a key ready, if the key's lock and the message are free; otherwise note the key
-- for the next take, and return false. An existing note is locked too: a take that is about to remove it has
-- also locked it, does not see what this transaction has done, and would strand the messages behind it.
create or replace function fencepost._outbox_promote(p_channel text, p_key text) returns boolean
language plpgsql volatile
as $$
declare
  v_first bigint;
  v_ready boolean;
begin
  if pg_try_advisory_xact_lock(fencepost._outbox_key_hash(p_channel, p_key)) then
    -- The key as a range, and in the order: with an equality the planner may walk the primary key to the
    -- first match.
    select n.id, n.ready into v_first, v_ready from fencepost.outbox n
    where n.channel = p_channel and n.key >= p_key and n.key <= p_key order by n.key, n.id limit 1;
    if v_ready is not false then
      return true;
    end if;
    -- Not waited for: the session that has the message locked may be waiting for the note.
    update fencepost.outbox o set ready = true
    where o.id = (select l.id from fencepost.outbox l where l.id = v_first for update skip locked);
    if found then
      return true;
    end if;
  end if;
  insert into fencepost.outbox_unpromoted (channel, key) values (p_channel, p_key)
  on conflict (channel, key) do update set key = excluded.key;
  return false;
end $$;

-- Promote the noted keys whose locks are free by now.
create or replace function fencepost._outbox_promote_noted(p_channel text) returns void
language plpgsql volatile
as $$
declare
  v_key text;
begin
  for v_key in select u.key from fencepost.outbox_unpromoted u where u.channel = p_channel
               limit 100 for update skip locked loop
    if pg_try_advisory_xact_lock(fencepost._outbox_key_hash(p_channel, v_key)) then
      if fencepost._outbox_promote(p_channel, v_key) then
        delete from fencepost.outbox_unpromoted u where u.channel = p_channel and u.key = v_key;
      end if;
    end if;
  end loop;
end $$;

-- Hold: the due messages of a channel, locked for this transaction. Settle them in it; a crash gives them
-- back. Served by outbox_due. An idle holder is terminated after half of p_patience.
create or replace function fencepost.outbox_hold(p_channel text, p_limit integer, p_patience interval default '30 seconds')
returns table (id bigint, key text, payload jsonb, headers jsonb, attempts integer, take bigint, created_at timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz;
begin
  perform fencepost._require_read_committed();
  perform fencepost._outbox_check_channel(p_channel);
  perform fencepost._check_limit(p_limit);
  perform fencepost._check_duration('patience', p_patience, interval '1 day');
  perform fencepost._bound_idle_time(p_patience);
  perform fencepost._outbox_promote_noted(p_channel);
  v_now := fencepost.clock();
  return query
  select o.id, o.key, o.payload, o.headers, o.attempts, o.take, o.created_at from fencepost.outbox o
  where o.channel = p_channel and o.ready and o.state in ('queued', 'failed') and o.not_before <= v_now
  order by o.not_before, o.id limit p_limit for update skip locked;
end $$;

-- Take: lease the due messages to p_owner; each gets a new take token. With p_unknown, takes those whose outcome
-- is unknown instead, to reconcile them: they stay unknown, also if the reconciler dies.
-- Served by outbox_due and outbox_unsure.
create or replace function fencepost.outbox_take(
  p_channel text, p_owner text, p_lease interval, p_limit integer, p_unknown boolean default false
) returns table (id bigint, key text, payload jsonb, headers jsonb, attempts integer, take bigint,
                 created_at timestamptz, taken_until timestamptz, last_error text)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._outbox_check_channel(p_channel);
  return query select * from fencepost._outbox_take(p_channel, p_owner, p_lease, p_limit, p_unknown);
end $$;

create or replace function fencepost._outbox_take(
  p_channel text, p_owner text, p_lease interval, p_limit integer, p_unknown boolean
) returns table (id bigint, key text, payload jsonb, headers jsonb, attempts integer, take bigint,
                 created_at timestamptz, taken_until timestamptz, last_error text)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_now timestamptz;
  v_ids bigint[];
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('owner', p_owner, 256);
  perform fencepost._check_duration('lease', p_lease, interval '1 day');
  perform fencepost._check_limit(p_limit);
  v_now := fencepost.clock();
  if p_unknown then
    v_ids := array(select o.id from fencepost.outbox o
      -- Ready: an operator may have set a message to unknown that is behind the head of its key.
      where o.channel = p_channel and o.state = 'unknown' and o.not_before <= v_now and o.ready
        and (o.taken_until is null or o.taken_until <= v_now)
      order by o.not_before, o.id limit p_limit for update skip locked);
  else
    perform fencepost._outbox_promote_noted(p_channel);
    v_ids := array(select o.id from fencepost.outbox o
      where o.channel = p_channel and o.ready and o.state in ('queued', 'failed') and o.not_before <= v_now
      order by o.not_before, o.id limit p_limit for update skip locked);
  end if;
  return query
  with taken as (
    update fencepost.outbox o
    set state = case when p_unknown then 'unknown' else 'sending' end, take = o.take + 1, owner = p_owner,
        taken_until = v_now + p_lease, attempts = o.attempts + case when p_unknown then 0 else 1 end
    where o.id = any (v_ids)
    returning o.*
  )
  select t.id, t.key, t.payload, t.headers, t.attempts, t.take, t.created_at, t.taken_until, t.last_error
  from taken t order by t.id;
end $$;

-- Why p_owner with p_take may not settle the message, or null when it may. A take that has expired but was
-- not replaced may still be settled: a known delivery outcome is worth more than the clock. A null owner (a
-- hold) settles only what can be held: not a message that waits for an operator, a reconciler or its turn.
create or replace function fencepost._outbox_verdict(p_message fencepost.outbox, p_take bigint, p_owner text) returns text
language sql immutable
as $$
  select case
    when p_message.take is distinct from p_take then 'stale_attempt'
    when p_message.owner is distinct from p_owner then 'not_owner'
    when p_owner is null and not (p_message.ready and p_message.state in ('queued', 'failed')) then 'not_owner'
  end
$$;

-- Renew the takes of a slow delivery, in order of id; answers for each.
create or replace function fencepost.outbox_renew(p_ids bigint[], p_takes bigint[], p_owner text, p_lease interval)
returns table (id bigint, taken_until timestamptz, refusal text)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_asked   record;
  v_message fencepost.outbox;
  v_refusal text;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('owner', p_owner, 256);
  perform fencepost._check_tokens('ids', p_ids);
  perform fencepost._check_tokens('takes', p_takes);
  perform fencepost._check_lengths('takes', cardinality(p_ids), cardinality(p_takes));
  perform fencepost._check_duration('lease', p_lease, interval '1 day');
  for v_asked in select a.id, a.take from unnest(p_ids, p_takes) a (id, take) order by a.id loop
    select * into v_message from fencepost.outbox o where o.id = v_asked.id for no key update;
    v_refusal := case when not found then 'not_found'
                      else fencepost._outbox_verdict(v_message, v_asked.take, p_owner) end;
    if v_refusal is null then
      update fencepost.outbox o set taken_until = fencepost.clock() + p_lease where o.id = v_asked.id
      returning * into v_message;
    else
      perform fencepost._refusal_note(v_refusal, 'outbox', v_asked.id::text, p_owner,
        jsonb_build_object('take', v_asked.take, 'owner', p_owner), fencepost._outbox_seen(v_message));
    end if;
    return query select v_asked.id, case when v_refusal is null then v_message.taken_until end, v_refusal;
  end loop;
end $$;
