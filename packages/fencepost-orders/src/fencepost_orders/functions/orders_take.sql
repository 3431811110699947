-- Taking orders, to send them or to query them. A take is leased and fenced like every take of the outbox, and it stamps the
-- request that it allows: from here on, until its fate is proved, the request may have reached the broker.
--
-- Locks: the broker's row, then the due messages in the order of the index, skipping locked ones. It waits for no message, so it
-- cannot deadlock with a transaction that holds messages and waits for the broker's row (a settlement).
-- Served by outbox_due, outbox_unsure and outbox_taken.

-- How long an order of a halted account, or one that waits for its end, is set aside before a take looks at it again.
create or replace function fencepost._orders_halt_pause() returns interval
language sql immutable parallel safe
as $$ select interval '30 seconds' $$;

-- An expired order is not sent. One that was never sent is dead; one that may have arrived is queried first.
create or replace function fencepost._orders_expire_one(p_id bigint, p_now timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_message fencepost.outbox;
  v_order   fencepost.orders_order;
begin
  select * into strict v_message from fencepost.outbox o where o.id = p_id;
  select * into strict v_order from fencepost.orders_order r where r.id = p_id;
  if v_order.open_since is null then
    -- Nothing was sent for this end, so it is not an attempt.
    v_message.attempts := greatest(0, v_message.attempts - 1);
    perform fencepost._outbox_apply(v_message, 'dead', 'EXPIRED', null, null);
    update fencepost.orders_order r
    set final_status = 'dead', settled_at = p_now, updated_at = p_now, last_error = 'EXPIRED' where r.id = p_id;
    perform fencepost._orders_audit(p_now, v_order, v_message.state, 'dead', 'EXPIRED', null, v_message.take, null);
    perform fencepost._orders_tell_transition(p_id, v_message.state, 'dead', 'EXPIRED', p_now, null);
  else
    update fencepost.outbox o set state = 'unknown', not_before = p_now, last_error = 'EXPIRED' where o.id = p_id;
    update fencepost.orders_order r set updated_at = p_now, unknown_since = p_now, last_error = 'EXPIRED' where r.id = p_id;
    perform fencepost._orders_audit(p_now, v_order, v_message.state, 'unknown', 'EXPIRED', null, v_message.take, null);
  end if;
end $$;

-- The due messages that may be sent, at most p_limit, locked. Orders that have expired or belong to a halted account are set
-- aside and the next ones are examined, a few times: a long list of them must not starve the others. Orders that have expired and
-- were never sent are left to orders_expire_due: a take's result has no place for them, and they would not be counted.
create or replace function fencepost._orders_due(p_channel text, p_broker text, p_limit integer, p_now timestamptz)
returns bigint[]
language plpgsql volatile
as $$
declare
  v_due   bigint[];
  v_fit   bigint[] := '{}';
  v_new   bigint[];
  v_over  bigint[];
  v_aside bigint[];
begin
  for v_round in 1 .. 8 loop
    v_due := array(select o.id from fencepost.outbox o
      where o.channel = p_channel and o.ready and o.state in ('queued', 'failed') and o.not_before <= p_now
        and o.id <> all (v_fit)
      order by o.not_before, o.id limit p_limit - cardinality(v_fit) for update skip locked);
    exit when cardinality(v_due) = 0;
    select array_agg(d.id) filter (where d.is_over and d.is_open),
           array_agg(d.id) filter (where d.is_over and not d.is_open or not d.is_over and d.is_halted),
           array_agg(d.id) filter (where not d.is_over and not d.is_halted)
    into v_over, v_aside, v_new
    from (select r.id, coalesce(r.expires_at <= p_now, false) as is_over, r.open_since is not null as is_open,
                 exists (select 1 from fencepost.orders_halt h where h.broker = p_broker and h.account = r.account) as is_halted
          from fencepost.orders_order r where r.id = any (v_due)) d;
    v_fit := v_fit || v_new;
    exit when cardinality(v_fit) >= p_limit;
    perform fencepost._orders_expire_one(o, p_now) from unnest(v_over) o;
    update fencepost.outbox o set not_before = p_now + fencepost._orders_halt_pause() where o.id = any (v_aside);
  end loop;
  return v_fit;
end $$;

-- Lease due orders to p_owner, as many as the throttle allows, and stamp the requests that this allows.
create or replace function fencepost.orders_take(p_broker text, p_owner text, p_lease interval, p_limit integer)
returns table (id bigint, take bigint, order_key text, request jsonb, idempotency_key text, account text, trace_id text,
               retry_count integer, asks integer, created_at timestamptz, expires_at timestamptz, stamped_at timestamptz,
               open_since timestamptz, taken_until timestamptz, last_error text, headers jsonb)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_channel text := fencepost._orders_channel(p_broker);
  v_allowed integer;
  v_now     timestamptz;
  v_ids     bigint[];
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('owner', p_owner, 256);
  perform fencepost._check_duration('lease', p_lease, interval '1 day');
  perform fencepost._check_limit(p_limit);
  v_allowed := fencepost._orders_allowance(p_broker, p_limit, false);
  if v_allowed = 0 then
    return;
  end if;
  perform fencepost._outbox_promote_noted(v_channel);
  v_now := fencepost.clock();
  v_ids := fencepost._orders_due(v_channel, p_broker, v_allowed, v_now);
  perform fencepost._orders_spend(p_broker, cardinality(v_ids), false);
  return query
  with before as materialized (
    select o.id, o.state from fencepost.outbox o where o.id = any (v_ids)
  ), taken as (
    update fencepost.outbox o
    set state = 'sending', take = o.take + 1, owner = p_owner, taken_until = v_now + p_lease, attempts = o.attempts + 1
    where o.id = any (v_ids)
    returning o.id, o.take, o.key, o.taken_until, o.attempts, o.headers
  ), stamped as (
    update fencepost.orders_order r
    set stamped_at = v_now, open_since = coalesce(r.open_since, v_now), requests = r.requests + 1, updated_at = v_now,
        retry_count = t.attempts - 1
    from taken t where r.id = t.id
    returning r.*, t.take, t.key, t.taken_until, t.headers
  ), audited as (
    insert into fencepost.orders_audit (at, outbox_id, idempotency_key, trace_id, broker_order_id, status_from, status_to,
                                        retry_count, last_error, actor, take)
    select v_now, s.id, s.idempotency_key, s.trace_id, s.broker_order_id, b.state, 'sending', s.retry_count, s.last_error,
           p_owner, s.take
    from stamped s join before b on b.id = s.id
  ), known as (
    insert into fencepost.orders_account (broker, account)
    select distinct s.broker, s.account from stamped s
    where not exists (select 1 from fencepost.orders_account a where a.broker = s.broker and a.account = s.account)
    on conflict do nothing
  )
  select s.id, s.take, s.key, s.request_json, s.idempotency_key, s.account, s.trace_id, s.retry_count, s.asks, s.created_at,
         s.expires_at, s.stamped_at, s.open_since, s.taken_until, s.last_error, s.headers
  from stamped s order by s.id;
end $$;

-- Orders whose outcome is unknown, leased to the worker that queries them; with p_parked also parked ones whose next query is
-- due, with at most half of what is allowed. They keep their state, also if the worker dies. Served by outbox_unsure and
-- outbox_parked.
create or replace function fencepost.orders_take_unknown(
  p_broker text, p_owner text, p_lease interval, p_limit integer, p_parked boolean default false
)
returns table (id bigint, take bigint, order_key text, request jsonb, idempotency_key text, account text, trace_id text,
               retry_count integer, asks integer, created_at timestamptz, expires_at timestamptz, stamped_at timestamptz,
               open_since timestamptz, taken_until timestamptz, last_error text, headers jsonb, unknown_since timestamptz,
               state text)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_channel text := fencepost._orders_channel(p_broker);
  v_allowed integer;
  v_count   integer;
  v_now     timestamptz;
  v_parked  bigint[] := '{}';
begin
  perform fencepost._check_limit(p_limit);
  v_allowed := fencepost._orders_allowance(p_broker, p_limit, true);
  if p_parked and v_allowed > 0 then
    v_now := fencepost.clock();
    v_parked := array(select o.id from fencepost.outbox o
      where o.channel = v_channel and o.state = 'parked' and o.not_before <= v_now and o.ready
        and (o.taken_until is null or o.taken_until <= v_now)
      order by o.not_before, o.id limit (v_allowed + 1) / 2 for update skip locked);
  end if;
  return query
  with taken as materialized (
    select t.id, t.take, t.key, t.taken_until, t.headers, 'unknown' as state
    from fencepost._outbox_take(v_channel, p_owner, p_lease, v_allowed - cardinality(v_parked), true) t
  ), parked as (
    update fencepost.outbox o set take = o.take + 1, owner = p_owner, taken_until = v_now + p_lease
    where o.id = any (v_parked)
    returning o.id, o.take, o.key, o.taken_until, o.headers, o.state
  ), asked as (
    update fencepost.orders_order r set asks = r.asks + 1
    from (select t.* from taken t union all select p.* from parked p) t where r.id = t.id
    returning r.*, t.take, t.key, t.taken_until, t.headers, t.state
  )
  select a.id, a.take, a.key, a.request_json, a.idempotency_key, a.account, a.trace_id, a.retry_count, a.asks, a.created_at,
         a.expires_at, a.stamped_at, a.open_since, a.taken_until, a.last_error, a.headers, a.unknown_since, a.state
  from asked a order by a.id;
  get diagnostics v_count = row_count;
  perform fencepost._orders_spend(p_broker, v_count, true);
end $$;

-- Takes whose sender stopped renewing. It may have sent, or be about to: the outcome is unknown, and the order is never simply
-- sent again. The take is incremented, so that its late settlement is refused.
create or replace function fencepost.orders_expire_takes(p_broker text, p_limit integer, p_grace interval default '0')
returns setof bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_ids bigint[] := array(select fencepost._outbox_expire(fencepost._orders_channel(p_broker), 'unknown', p_limit, p_grace));
  v_now timestamptz := fencepost.clock();
begin
  update fencepost.orders_order r set updated_at = v_now, unknown_since = v_now, last_error = 'UNKNOWN' where r.id = any (v_ids);
  perform fencepost._orders_audit(v_now, r, 'sending', 'unknown', 'UNKNOWN', null, null, 'the sender went silent')
  from fencepost.orders_order r where r.id = any (v_ids);
  return query select unnest(v_ids);
end $$;

-- End the orders that have expired and were never sent, wherever they wait: at the head of their key, behind a held head, in
-- backoff, or under a kill switch; returns their ids. Served by orders_order_expiring.
create or replace function fencepost.orders_expire_due(p_limit integer) returns setof bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz := fencepost.clock();
  v_id  bigint;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_limit(p_limit);
  for v_id in select o.id from fencepost.orders_order r join fencepost.outbox o on o.id = r.id
              where r.final_status is null and r.expires_at is not null and r.expires_at <= v_now and r.open_since is null
                and o.state in ('queued', 'failed')
              order by r.expires_at limit p_limit for update of o skip locked loop
    perform fencepost._orders_expire_one(v_id, v_now);
    return next v_id;
  end loop;
end $$;
