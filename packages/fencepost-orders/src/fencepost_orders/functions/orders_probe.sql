-- Probing a broker that failed or was halted, by a query and never by an order: a query places nothing.
--
-- Locks: the broker's row. Served by the primary key of orders_broker and by orders_order_live.

-- The order to query, if a probe of the broker is due and any order waits for it: one row, or none. No other worker probes it
-- until the pause is over again.
create or replace function fencepost.orders_probe_take(p_broker text)
returns table (request jsonb, idempotency_key text, account text, broker_order_id text, created_at timestamptz,
               stamped_at timestamptz, open_since timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now   timestamptz := fencepost.clock();
  v_order fencepost.orders_order;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('broker', p_broker, 64);
  -- Checked first without a lock: all workers share the broker's row, and most of the time nothing is wrong.
  if not exists (select 1 from fencepost.orders_broker b where b.broker = p_broker and fencepost._orders_probe_is_due(b, v_now)) then
    return;
  end if;
  select r.* into v_order from fencepost.orders_order r
  where r.broker = p_broker and r.final_status is null order by r.account, r.id limit 1;
  if not found then
    return;
  end if;
  update fencepost.orders_broker b
  set probe_at = v_now + b.open_for,
      opened_until = case when b.opened_until is not null then greatest(b.opened_until, v_now + b.open_for) end
  where b.broker = p_broker and fencepost._orders_probe_is_due(b, v_now);
  if found then
    return query select v_order.request_json, v_order.idempotency_key, v_order.account, v_order.broker_order_id, v_order.created_at,
                        coalesce(v_order.stamped_at, v_order.created_at), v_order.open_since;
  end if;
end $$;

create or replace function fencepost._orders_probe_is_due(p_broker fencepost.orders_broker, p_now timestamptz) returns boolean
language sql immutable
as $$
  select p_broker.can_ask
    and (p_broker.opened_until <= p_now
         or (p_broker.halted_code is not null and coalesce(p_broker.probe_at <= p_now, true)))
$$;

-- What the answer says about the broker: ok closes the breaker, and shows an operator that the broker answers and can be resumed.
create or replace function fencepost.orders_probe_tell(p_broker text, p_health text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('broker', p_broker, 64);
  perform fencepost._orders_note_health(p_broker, array[p_health], array[null::interval]);
end $$;
