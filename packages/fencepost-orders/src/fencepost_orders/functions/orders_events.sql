-- Events of orders: what the webhooks with the topic orders are told, in the transaction that decides it.
-- docs/reference/orders.md#events describes the messages. Each transition is told once, under the lock of its order's message or
-- of its tracked fills.
--
--   order.sent               the broker has it
--   order.partially_filled   more of it is filled than was told before
--   order.filled             all of it is filled
--   order.replaced           another order of the broker stands for it now; what is filled is counted from here on
--   order.closed             the broker is done with it, and did not fill all of it
--   order.unfollowed         the broker no longer shows it or cannot be queried: how it ends is not known
--   order.dead               the broker does not have it, and will not get it
--   order.parked             an operator decides, or a late answer
--   order.halted             it waits, because the broker refused the credentials
--   broker.halted, broker.resumed   the kill switch of a broker or an account was turned on or off
--
-- The kill switch is one message and not one for each order that waits: it must not take longer when many do.
-- Served by the primary keys of orders_order, orders_result and webhook_topic.

-- A decimal, or null for any other text: composing an event must not make a settlement fail.
create or replace function fencepost._orders_decimal(p_text text) returns numeric
language sql immutable parallel safe
as $$ select case when p_text ~ '^[+-]?[0-9]{1,60}(\.[0-9]{1,60})?$' then p_text::numeric end $$;

-- How much the broker's report says is filled: the sum of its fills. A report without quantities that is called filled is all of
-- it.
create or replace function fencepost._orders_filled(p_order fencepost.orders_order, p_result fencepost.orders_result)
returns numeric
language sql immutable
as $$
  select coalesce(
    (select sum(abs(fencepost._orders_decimal(f ->> 'qty')))
     from jsonb_array_elements(case when jsonb_typeof(p_result.fills) = 'array' then p_result.fills else '[]' end) f),
    case when lower(p_result.status) = 'filled' then fencepost._orders_decimal(coalesce(p_order.terms, p_order.request_json) ->> 'qty') end,
    0)
$$;

-- One message about an order, which is numbered.
create or replace function fencepost._orders_tell(
  p_id bigint, p_event text, p_at timestamptz, p_state text, p_reason text, p_filled numeric
) returns void
language plpgsql volatile
as $$
declare
  v_order  fencepost.orders_order;
  v_result fencepost.orders_result;
  v_event  text;
begin
  update fencepost.orders_order r set events = r.events + 1, told_filled = greatest(r.told_filled, nullif(p_filled, 0))
  where r.id = p_id returning * into strict v_order;
  select * into v_result from fencepost.orders_result x where x.order_id = p_id;
  v_event := 'order-' || p_id || '-' || v_order.events;
  perform fencepost._webhook_publish('orders', 'order:' || p_id, v_event, jsonb_build_object(
    'version', 1, 'id', v_event, 'event', p_event, 'at', p_at, 'sequence', v_order.events, 'reason', p_reason,
    'order', jsonb_build_object(
      'id', p_id, 'idempotency_key', v_order.idempotency_key, 'broker', v_order.broker, 'account', v_order.account,
      'symbol', v_order.symbol, 'intent', v_order.request_json ->> 'intent', 'state', p_state,
      'quantity', coalesce(v_order.terms, v_order.request_json) ->> 'qty', 'filled_quantity', trim_scale(p_filled)::text,
      'broker_order_id', v_order.broker_order_id, 'broker_status', v_result.status, 'resend_of', v_order.resend_of)),
    v_order.trace_id);
end $$;

-- The event that a workflow awaits for the end of an order: the order names it as `workflow_event` in its meta.
create or replace function fencepost._orders_workflow_event(p_order fencepost.orders_order) returns text
language sql immutable
as $$
  select e from (values (p_order.request_json #>> '{meta,workflow_event}')) v (e) where octet_length(e) between 1 and 512
$$;

-- Tell what a transition means. p_is_over says, of an order that is sent, that the broker is done with it (true) or is no longer
-- queried about it (false); null while it is open.
create or replace function fencepost._orders_tell_transition(
  p_id bigint, p_from text, p_to text, p_reason text, p_at timestamptz, p_is_over boolean
) returns void
language plpgsql volatile
as $$
declare
  v_order  fencepost.orders_order;
  v_result fencepost.orders_result;
  v_filled numeric;
  v_is_all boolean;
  v_heard  boolean := fencepost._webhook_is_heard('orders');
  v_end    text;
begin
  select * into strict v_order from fencepost.orders_order r where r.id = p_id;
  if not v_heard and fencepost._orders_workflow_event(v_order) is null then
    return;
  end if;
  select * into v_result from fencepost.orders_result x where x.order_id = p_id;
  v_filled := fencepost._orders_filled(v_order, v_result);
  v_is_all := p_to = 'sent' and coalesce(
    v_filled >= fencepost._orders_decimal(coalesce(v_order.terms, v_order.request_json) ->> 'qty'), false);
  -- A workflow that awaits the end of the order goes on when this commits. The first end stays.
  v_end := case when p_to = 'dead' then 'dead' when v_is_all then 'filled' when p_to = 'sent' and p_is_over then 'closed' end;
  if v_end is not null and fencepost._orders_workflow_event(v_order) is not null then
    perform fencepost.event_emit(fencepost._orders_workflow_event(v_order), jsonb_build_object(
      'order_id', p_id, 'end', v_end, 'reason', p_reason, 'filled_quantity', trim_scale(v_filled)::text,
      'broker_order_id', v_order.broker_order_id), 'orders');
  end if;
  if not v_heard then
    return;
  end if;
  if p_to = 'sent' then
    if p_from is distinct from 'sent' then
      perform fencepost._orders_tell(p_id, 'order.sent', p_at, p_to, p_reason, 0);
    end if;
    if v_filled > coalesce(v_order.told_filled, 0) then
      perform fencepost._orders_tell(p_id, case when v_is_all then 'order.filled' else 'order.partially_filled' end, p_at, p_to,
                                     p_reason, v_filled);
    end if;
    if p_is_over is not null and not v_is_all then
      perform fencepost._orders_tell(p_id, case when p_is_over then 'order.closed' else 'order.unfollowed' end, p_at, p_to,
                                     p_reason, v_filled);
    end if;
  elsif p_to in ('dead', 'parked') and p_from is distinct from p_to then
    perform fencepost._orders_tell(p_id, 'order.' || p_to, p_at, p_to, p_reason, v_filled);
  elsif p_to = 'queued' and p_reason = 'UNAUTHORIZED' then
    perform fencepost._orders_tell(p_id, 'order.halted', p_at, p_to, p_reason, v_filled);
  end if;
end $$;

-- Tell that a replacement stands for the order. Its fills are those of the new order.
create or replace function fencepost._orders_tell_replaced(p_id bigint, p_at timestamptz) returns void
language plpgsql volatile
as $$
begin
  if fencepost._webhook_is_heard('orders') then
    perform fencepost._orders_tell(p_id, 'order.replaced', p_at, 'sent', null, 0);
    update fencepost.orders_order r set told_filled = null where r.id = p_id;
  end if;
end $$;

-- Tell that a kill switch was turned. p_account is null for the whole broker.
create or replace function fencepost._orders_tell_switch(
  p_broker text, p_account text, p_event text, p_actor text, p_reason text, p_at timestamptz
) returns void
language plpgsql volatile
as $$
declare
  v_event text := 'broker-' || gen_random_uuid();
begin
  if fencepost._webhook_is_heard('orders') then
    perform fencepost._webhook_publish('orders', 'broker:' || p_broker, v_event, jsonb_build_object(
      'version', 1, 'id', v_event, 'event', p_event, 'at', p_at, 'reason', p_reason, 'actor', p_actor,
      'broker', jsonb_build_object('name', p_broker, 'account', p_account)), null);
  end if;
end $$;
