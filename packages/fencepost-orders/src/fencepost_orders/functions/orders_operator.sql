-- What an operator, or the caller that placed the order, may do: cancel an order that was not sent, decide about one that waits
-- for a decision, resend it as a new order, and delete settled orders.

-- The message of a live order, locked; raises not_found or already_finished.
create or replace function fencepost._orders_lock_live(p_id bigint, p_attempted jsonb) returns fencepost.outbox
language plpgsql volatile
as $$
declare
  v_message fencepost.outbox;
  v_order   fencepost.orders_order;
begin
  select * into v_message from fencepost.outbox o where o.id = p_id for update;
  select * into v_order from fencepost.orders_order r where r.id = p_id;
  if v_order.id is null then
    perform fencepost._refuse('not_found', 'order', coalesce(p_id::text, 'null'), p_attempted, null);
  end if;
  if v_order.final_status is not null then
    perform fencepost._refuse('already_finished', 'order', p_id::text, p_attempted,
      jsonb_build_object('status', v_order.final_status, 'last_error', v_order.last_error, 'settled_at', v_order.settled_at));
  end if;
  return v_message;
end $$;

-- Cancel an order that has not been sent. One that is being sent, or may have arrived, is in_flight: it can only be cancelled at
-- the broker.
create or replace function fencepost.orders_cancel(p_id bigint, p_actor text, p_reason text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_attempted jsonb := jsonb_build_object('cancel', p_reason);
  v_message   fencepost.outbox;
  v_open      timestamptz;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('actor', p_actor, 256);
  perform fencepost._check_text('reason', p_reason, 1024);
  v_message := fencepost._orders_lock_live(p_id, v_attempted);
  select r.open_since into v_open from fencepost.orders_order r where r.id = p_id;
  if v_message.state not in ('queued', 'failed') or v_open is not null then
    perform fencepost._refuse('in_flight', 'order', p_id::text, v_attempted,
      fencepost._outbox_seen(v_message) || jsonb_build_object('open_since', v_open));
  end if;
  v_message.attempts := greatest(0, v_message.attempts - 1);
  perform fencepost._orders_apply(v_message, 'dead', 'unproved', 'CANCELLED', p_reason, null, null, p_actor);
end $$;

-- An operator decides about an order, guarded by the state that the operator saw:
--   sent      the broker has it
--   dead      the broker does not have it, and must not get it
--   unknown   query the broker again
--   queued    send it again under the same key
create or replace function fencepost.orders_resolve(
  p_id bigint, p_expected text, p_outcome text, p_actor text, p_reason text, p_result jsonb default null
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_attempted jsonb := jsonb_build_object('expected', p_expected, 'outcome', p_outcome);
  v_message   fencepost.outbox;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('actor', p_actor, 256);
  perform fencepost._check_text('reason', p_reason, 1024);
  perform fencepost._check_word('expected', p_expected, array['queued', 'failed', 'unknown', 'parked']);
  perform fencepost._check_word('outcome', p_outcome, array['sent', 'dead', 'unknown', 'queued']);
  perform fencepost._check_json('result', p_result, 65536);
  v_message := fencepost._orders_lock_live(p_id, v_attempted);
  if v_message.state <> p_expected then
    perform fencepost._refuse('mismatch', 'order', p_id::text, v_attempted, fencepost._outbox_seen(v_message));
  end if;
  -- The take is incremented: a reconciler that still works on it is refused.
  update fencepost.outbox o set take = o.take + 1, owner = null, taken_until = null where o.id = p_id returning * into v_message;
  -- The operator's decision is the proof.
  perform fencepost._orders_apply(v_message, p_outcome, case when p_outcome in ('dead', 'queued') then 'none' else 'unproved' end,
    'RESOLVED', p_reason, null, p_result, p_actor);
  if p_outcome = 'sent' then
    -- The operator saw it at the broker: it is followed like every other order.
    insert into fencepost.orders_fill_tracking (order_id, broker, ask_at)
    select r.id, r.broker, fencepost.clock() + fencepost._orders_fill_first() from fencepost.orders_order r where r.id = p_id
    on conflict (order_id) do nothing;
  end if;
  perform fencepost._wake('outbox:' || v_message.channel);
end $$;

-- Send a dead or parked order again: a new order with a key of its own, linked to the old one. An order is resent once: two
-- concurrent resends make one order, and the new order can itself be resent.
create or replace function fencepost.orders_resend(
  p_id bigint, p_expected text, p_actor text, p_reason text, p_digest text, p_request jsonb, p_order_key text,
  p_expires timestamptz default null, p_keep interval default '30 days'
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_attempted jsonb := jsonb_build_object('resend', p_reason, 'expected', p_expected);
  v_order     fencepost.orders_order;
  v_message   fencepost.outbox;
  v_key       text;
  v_over      jsonb;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('actor', p_actor, 256);
  perform fencepost._check_text('reason', p_reason, 1024);
  perform fencepost._check_word('expected', p_expected, array['dead', 'parked']);
  select * into v_message from fencepost.outbox o where o.id = p_id for update;
  select * into v_order from fencepost.orders_order r where r.id = p_id for update;
  if v_order.id is null then
    perform fencepost._refuse('not_found', 'order', coalesce(p_id::text, 'null'), v_attempted, null);
  end if;
  if coalesce(v_order.final_status, v_message.state) <> p_expected then
    perform fencepost._refuse('mismatch', 'order', p_id::text, v_attempted,
      jsonb_build_object('state', coalesce(v_order.final_status, v_message.state)));
  end if;
  if exists (select 1 from fencepost.orders_order r where r.resend_of = p_id) then
    perform fencepost._refuse('duplicate', 'order', p_id::text, v_attempted,
      (select jsonb_build_object('resent_as', r.id) from fencepost.orders_order r where r.resend_of = p_id));
  end if;
  v_key := p_request ->> 'idempotency_key';
  perform fencepost._orders_check_accept(v_key, p_request, p_digest, v_order.broker, v_order.account, v_order.symbol,
                                         p_order_key, v_order.trace_id, p_expires, p_keep);
  if v_key = v_order.idempotency_key then
    raise exception 'idempotency_key must be a new one.' using errcode = 'ZF100', detail = '{"field": "idempotency_key"}';
  end if;
  -- The transaction that held the order until now may hold the key a moment longer: PostgreSQL releases rows first.
  for v_try in 1..20 loop
    exit when fencepost._idempotency_lock('orders', v_key);
    if v_try = 20 then
      perform fencepost._refuse('in_flight', 'order', v_key, v_attempted, null);
    end if;
    perform pg_sleep(0.01);
  end loop;
  if exists (select 1 from fencepost.orders_idempotency_key l where l.idempotency_key = v_key) then
    perform fencepost._refuse('duplicate', 'order', v_key, v_attempted, null);
  end if;
  v_over := fencepost._orders_over_limit(v_order.broker, v_order.account, v_order.symbol, p_request);
  if v_over is not null then
    raise exception 'the order passes a limit of its account: %', v_over
      using errcode = 'ZF100', detail = jsonb_build_object('field', v_over ->> 'limit');
  end if;
  if v_order.final_status is null then
    update fencepost.outbox o set take = o.take + 1, owner = null, taken_until = null where o.id = p_id
    returning * into v_message;
    perform fencepost._orders_apply(v_message, 'dead', 'none', 'RESENT', p_reason, null, null, p_actor);
  else
    perform fencepost._orders_audit(fencepost.clock(), v_order, v_order.final_status, v_order.final_status, 'RESENT', p_actor,
                                    null, p_reason);
  end if;
  return fencepost._orders_create(v_key, p_request, p_digest, v_order.broker, v_order.account, v_order.symbol, p_order_key,
                                  v_order.trace_id, p_expires, p_keep, p_id, p_actor,
                                  coalesce(v_message.headers, (select s.headers from fencepost.outbox_settled s where s.id = p_id)));
end $$;

-- After a restore from a backup, or a failover that lost commits: what was being sent may have been sent, and what is queued may
-- have been sent since. Every live order is queried before anything is sent.
create or replace function fencepost.orders_recover(p_broker text, p_actor text) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now   timestamptz := fencepost.clock();
  v_count bigint := 0;
  v_id    bigint;
  v_state text;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('actor', p_actor, 256);
  for v_id, v_state in
    select o.id, o.state from fencepost.orders_order r join fencepost.outbox o on o.id = r.id
    where r.final_status is null and r.broker = p_broker and o.state <> 'parked' order by o.id for update of o
  loop
    update fencepost.outbox o set state = 'unknown', take = o.take + 1, owner = null, taken_until = null, not_before = v_now
    where o.id = v_id;
    update fencepost.orders_order r
    set stamped_at = v_now, open_since = coalesce(r.open_since, v_now), unknown_since = v_now, updated_at = v_now,
        last_error = 'UNKNOWN'
    where r.id = v_id;
    perform fencepost._orders_audit(v_now, r, v_state, 'unknown', 'UNKNOWN', p_actor, null, 'recovered from a backup')
    from fencepost.orders_order r where r.id = v_id;
    v_count := v_count + 1;
  end loop;
  perform fencepost._orders_change_recover(p_broker);
  return v_count;
end $$;

-- Delete orders that were settled longer ago than p_keep, with their results and audits, at most p_limit. Their keys stay in the
-- table of keys for ever. An order that the broker has not finished is kept until it has. Served by orders_order_settled.
create or replace function fencepost.orders_prune(p_keep interval, p_limit integer) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_before timestamptz := fencepost._prune_before(p_keep, p_limit);
  v_ids    bigint[];
begin
  v_ids := array(select r.id from fencepost.orders_order r join fencepost.orders_idempotency_key l on l.idempotency_key = r.idempotency_key
    where r.final_status is not null and r.settled_at < v_before and l.expires_at < fencepost.clock()
      and not exists (select 1 from fencepost.orders_fill_tracking f where f.order_id = r.id)
      and not exists (select 1 from fencepost.orders_change c where c.order_id = r.id and c.settled_at is null)
    order by r.settled_at limit p_limit for update of r skip locked);
  delete from fencepost.orders_audit a where a.outbox_id = any (v_ids);
  delete from fencepost.orders_change c where c.order_id = any (v_ids);
  delete from fencepost.orders_result x where x.order_id = any (v_ids);
  delete from fencepost.orders_order r where r.id = any (v_ids);
  return cardinality(v_ids);
end $$;
