-- Settling a request, or a query about it. Every settlement is fenced by its take, and updates the message, the order, its
-- result, its idempotency key and its audit together.
--
-- The fate says what is proved about the requests that were made:
--   unproved      nothing
--   not_this      the request of this take did not take effect: it did not leave, or it was refused
--   none          no request so far took effect: the broker was asked when none could arrive any more
-- An order is dead only when none of its requests is open. With an earlier request unaccounted for, a refusal of the last one
-- proves nothing about the first: the order becomes unknown instead, and is queried.
--
-- Locks: the messages in order of id, then their orders, then the broker's row; where the broker is halted, its row before the
-- orders. No transaction that holds that row, and not the message, waits for the orders.

create or replace function fencepost._orders_check_settle(
  p_ids bigint[], p_takes bigint[], p_owner text, p_outcomes text[], p_fates text[], p_codes text[], p_details text[],
  p_delays interval[], p_results jsonb[], p_health text[]
) returns void
language plpgsql volatile
as $$
declare
  v_count integer := cardinality(p_ids);
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('owner', p_owner, 256);
  perform fencepost._check_tokens('ids', p_ids);
  perform fencepost._check_tokens('takes', p_takes);
  perform fencepost._check_lengths('takes', v_count, cardinality(p_takes));
  perform fencepost._check_lengths('outcomes', v_count, cardinality(p_outcomes));
  perform fencepost._check_lengths('fates', v_count, cardinality(p_fates));
  perform fencepost._check_lengths('codes', v_count, cardinality(p_codes));
  perform fencepost._check_lengths('details', v_count, cardinality(p_details));
  perform fencepost._check_lengths('delays', v_count, cardinality(p_delays));
  perform fencepost._check_lengths('results', v_count, cardinality(p_results));
  perform fencepost._check_lengths('health', v_count, cardinality(p_health));
  perform fencepost._outbox_check_outcome(a.outcome, a.detail, a.result)
    from unnest(p_outcomes, p_details, p_results) a (outcome, detail, result);
  perform fencepost._check_word('fates', f, array['unproved', 'not_this', 'none']) from unnest(p_fates) f;
  perform fencepost._check_wait('delays', coalesce(d, interval '0'), interval '10 years') from unnest(p_delays) d;
  if exists (select 1 from unnest(p_outcomes, p_results) a (outcome, result) where a.outcome = 'sent' and a.result is null) then
    raise exception 'results: an order that was sent has one.' using errcode = 'ZF100', detail = '{"field": "results"}';
  end if;
end $$;

-- The broker has the order: store its answer, and the digest of its result beside the key.
create or replace function fencepost._orders_store_result(p_order fencepost.orders_order, p_result jsonb, p_now timestamptz)
returns void
language plpgsql volatile
as $$
begin
  insert into fencepost.orders_result (order_id, idempotency_key, broker_order_id, status, accepted_at, fills, body,
                                       result_digest, received_at)
  values (p_order.id, p_order.idempotency_key, p_result ->> 'broker_order_id', coalesce(p_result ->> 'status', 'accepted'),
          (p_result ->> 'accepted_at')::timestamptz, coalesce(p_result -> 'fills', '[]'), p_result -> 'body',
          p_result ->> 'digest', p_now)
  on conflict (order_id) do update
  set broker_order_id = excluded.broker_order_id, status = excluded.status, accepted_at = excluded.accepted_at,
      fills = excluded.fills, body = excluded.body, result_digest = excluded.result_digest, received_at = excluded.received_at;
  update fencepost.orders_idempotency_key l set result_digest = p_result ->> 'digest'
  where l.idempotency_key = p_order.idempotency_key;
  -- An order that the broker has and has not finished is followed.
  if p_order.final_status = 'sent' and p_result -> 'open' = 'true' then
    insert into fencepost.orders_fill_tracking (order_id, broker, ask_at)
    values (p_order.id, p_order.broker, p_now + fencepost._orders_fill_first()) on conflict (order_id) do nothing;
  end if;
end $$;

-- What stays open after a settlement.
create or replace function fencepost._orders_open_after(p_order fencepost.orders_order, p_fate text) returns timestamptz
language sql immutable
as $$
  select case when p_fate = 'none' then null
              when p_fate = 'not_this' and p_order.open_since = p_order.stamped_at then null
              else p_order.open_since end
$$;

-- Apply an outcome to a locked message and its order; returns its new state.
create or replace function fencepost._orders_apply(
  p_message fencepost.outbox, p_outcome text, p_fate text, p_code text, p_detail text, p_delay interval, p_result jsonb,
  p_actor text
) returns text
language plpgsql volatile
as $$
declare
  v_now     timestamptz := fencepost.clock();
  v_order   fencepost.orders_order;
  v_open    timestamptz;
  v_outcome text := p_outcome;
begin
  select * into strict v_order from fencepost.orders_order r where r.id = p_message.id for update;
  v_open := case when p_outcome = 'sent' then null else fencepost._orders_open_after(v_order, p_fate) end;
  if v_outcome = 'dead' and v_open is not null then
    v_outcome := 'unknown';
  end if;
  if p_message.state = 'parked' and v_outcome = 'parked' and p_code is not distinct from v_order.last_error then
    -- A query without a new result: it is repeated for as long as the order is parked, and writes no audit line.
    update fencepost.outbox o
    set not_before = v_now + coalesce(p_delay, interval '0'), owner = null, taken_until = null where o.id = p_message.id;
    return v_outcome;
  end if;
  perform fencepost._outbox_apply(p_message, v_outcome, coalesce(p_detail, p_code), p_delay, null);
  update fencepost.orders_order r
  set open_since = v_open, updated_at = v_now, last_error = p_code,
      unknown_since = case when v_outcome <> 'unknown' then null
                           when p_message.state = 'unknown' then coalesce(r.unknown_since, v_now) else v_now end,
      -- An attempt that the outbox does not count (a 429) does not count here either.
      retry_count = coalesce((select greatest(0, o.attempts - 1) from fencepost.outbox o where o.id = r.id), r.retry_count),
      broker_order_id = coalesce(p_result ->> 'broker_order_id', r.broker_order_id),
      final_status = case when v_outcome in ('sent', 'dead') then v_outcome end,
      settled_at = case when v_outcome in ('sent', 'dead') then v_now end
  where r.id = v_order.id returning * into v_order;
  if p_result is not null then
    perform fencepost._orders_store_result(v_order, p_result, v_now);
  end if;
  perform fencepost._orders_audit(v_now, v_order, p_message.state, v_outcome, p_code, p_actor, p_message.take, p_detail);
  perform fencepost._orders_tell_transition(v_order.id, p_message.state, v_outcome, p_code, v_now,
                                            case when p_result -> 'open' = 'false' then true end);
  return v_outcome;
end $$;

-- The common case in one statement: orders that the broker has accepted. Returns their ids.
create or replace function fencepost._orders_settle_sent(
  p_channel text, p_ids bigint[], p_takes bigint[], p_owner text, p_outcomes text[], p_codes text[], p_details text[],
  p_results jsonb[]
) returns bigint[]
language plpgsql volatile
as $$
declare
  v_now   timestamptz := fencepost.clock();
  v_sent  bigint[];
  v_keys  text[];
  v_codes text[];
  v_overs boolean[];
  v_held  text[];
  v_key   text;
  v_heard boolean := fencepost._webhook_is_heard('orders');
begin
  with asked as materialized (
    select a.id, a.take, a.code, a.detail, a.result
    from unnest(p_ids, p_takes, p_outcomes, p_codes, p_details, p_results) a (id, take, outcome, code, detail, result)
    where a.outcome = 'sent' order by a.id
  ), gone as (
    delete from fencepost.outbox o using asked a
    where o.id = a.id and o.take = a.take and o.owner = p_owner and o.channel = p_channel
    returning o.*, a.code, a.detail, a.result
  ), kept as (
    insert into fencepost.outbox_settled (id, channel, key, payload, headers, state, created_at, settled_at, attempts, take,
                                          owner, result, last_error)
    select g.id, g.channel, g.key, g.payload, g.headers, 'sent', g.created_at, v_now, g.attempts, g.take, g.owner, null, null
    from gone g
  ), ordered as (
    update fencepost.orders_order r
    set final_status = 'sent', settled_at = v_now, updated_at = v_now, open_since = null, unknown_since = null, last_error = g.code,
        broker_order_id = coalesce(g.result ->> 'broker_order_id', r.broker_order_id)
    from gone g where r.id = g.id
    returning r.id, r.broker, r.idempotency_key, r.trace_id, r.broker_order_id, r.retry_count, g.state as status_from, g.take, g.code,
              g.detail, g.result
  ), keyed as (
    update fencepost.orders_idempotency_key l set result_digest = o.result ->> 'digest'
    from ordered o where l.idempotency_key = o.idempotency_key
  ), resulted as (
    insert into fencepost.orders_result (order_id, idempotency_key, broker_order_id, status, accepted_at, fills, body,
                                         result_digest, received_at)
    select o.id, o.idempotency_key, o.result ->> 'broker_order_id', coalesce(o.result ->> 'status', 'accepted'),
           (o.result ->> 'accepted_at')::timestamptz, coalesce(o.result -> 'fills', '[]'), o.result -> 'body',
           o.result ->> 'digest', v_now
    from ordered o
    on conflict (order_id) do nothing
  ), followed as (
    insert into fencepost.orders_fill_tracking (order_id, broker, ask_at)
    select o.id, o.broker, v_now + fencepost._orders_fill_first() from ordered o where o.result -> 'open' = 'true'
    on conflict (order_id) do nothing
  ), audited as (
    insert into fencepost.orders_audit (at, outbox_id, idempotency_key, trace_id, broker_order_id, status_from, status_to,
                                        retry_count, last_error, actor, take, detail)
    select v_now, o.id, o.idempotency_key, o.trace_id, o.broker_order_id, o.status_from, 'sent', o.retry_count, o.code,
           p_owner, o.take, o.detail
    from ordered o
  )
  select coalesce(array_agg(g.id order by g.id), '{}'), array_agg(distinct g.key) filter (where g.key is not null),
         array_agg(g.code order by g.id), array_agg(g.result -> 'open' = 'false' order by g.id)
  into v_sent, v_keys, v_codes, v_overs from gone g;
  -- Each key's next order. Most keys have none: they are locked in one statement and read in the next, which sees whatever was
  -- inserted before the lock was free. The kernel handles the others, in order of the key.
  v_held := array(select k from unnest(v_keys) k
                  where not pg_try_advisory_xact_lock(fencepost._outbox_key_hash(p_channel, k)));
  for v_key in
    select k.key from unnest(v_keys) k (key)
    where k.key = any (v_held) or not coalesce((
      select n.ready from fencepost.outbox n
      where n.channel = p_channel and n.key >= k.key and n.key <= k.key order by n.key, n.id limit 1), true)
    order by k.key collate "C"
  loop
    perform fencepost._outbox_promote(p_channel, v_key);
  end loop;
  -- Of what was settled and not of what was asked: a batch may hold an old delivery of the same order.
  perform fencepost._orders_tell_transition(a.id, 'sending', 'sent', a.code, v_now, case when a.is_over then true end)
  from unnest(v_sent, v_codes, v_overs) a (id, code, is_over)
  where v_heard or exists (select 1 from fencepost.orders_order r
                           where r.id = a.id and fencepost._orders_workflow_event(r) is not null)
  order by a.id;
  return v_sent;
end $$;

-- Settle many requests or queries of one broker; returns for each its new state, or why it was refused.
create or replace function fencepost.orders_settle(
  p_broker text, p_owner text, p_ids bigint[], p_takes bigint[], p_outcomes text[], p_fates text[], p_codes text[],
  p_details text[], p_delays interval[], p_results jsonb[], p_health text[]
) returns table (id bigint, state text, refusal text)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_channel text := fencepost._orders_channel(p_broker);
  v_asked   record;
  v_message fencepost.outbox;
  v_refusal text;
  v_outcome text;
  v_sent    bigint[];
begin
  perform fencepost._orders_check_settle(p_ids, p_takes, p_owner, p_outcomes, p_fates, p_codes, p_details, p_delays, p_results,
                                         p_health);
  perform 1 from fencepost.outbox o where o.id = any (p_ids) order by o.id for update;
  v_sent := fencepost._orders_settle_sent(v_channel, p_ids, p_takes, p_owner, p_outcomes, p_codes, p_details, p_results);
  return query select s, 'sent', null::text from unnest(v_sent) s;
  for v_asked in
    select a.* from unnest(p_ids, p_takes, p_outcomes, p_fates, p_codes, p_details, p_delays, p_results, p_health)
      a (id, take, outcome, fate, code, detail, delay, result, health)
    where cardinality(v_sent) < cardinality(p_ids) and a.id <> all (v_sent) order by a.id
  loop
    select * into v_message from fencepost.outbox o where o.id = v_asked.id;
    if found and v_message.channel = v_channel then
      v_refusal := fencepost._outbox_verdict(v_message, v_asked.take, p_owner);
    else
      v_refusal := case when exists (select 1 from fencepost.orders_order r
                                     where r.id = v_asked.id and r.final_status is not null)
                        then 'already_finished' else 'not_found' end;
    end if;
    if v_refusal is null then
      v_outcome := v_asked.outcome;
      if v_asked.health = 'unauthorized' then
        -- One order ends by refused credentials. Those that were in flight with it placed nothing either: they wait.
        if not fencepost._orders_halt_unauthorized(p_broker, v_asked.detail) and v_outcome = 'dead' then
          v_outcome := 'queued';
        end if;
      end if;
      return query select v_asked.id, fencepost._orders_apply(v_message, v_outcome, v_asked.fate, v_asked.code,
        v_asked.detail, v_asked.delay, v_asked.result, p_owner), null::text;
    else
      perform fencepost._refusal_note(v_refusal, 'order', v_asked.id::text, p_owner,
        jsonb_build_object('take', v_asked.take, 'outcome', v_asked.outcome, 'code', v_asked.code),
        fencepost._outbox_seen(v_message));
      return query select v_asked.id, null::text, v_refusal;
    end if;
  end loop;
  perform fencepost._orders_note_health(p_broker, p_health, p_delays);
end $$;
