-- The history of one order, for fencepost.explain('order:KEY'): by its key, or by its id when no order has that as its key. Every
-- line of its audit, and the refusals that were recorded under its other name; the caller reports those under this one anyway.
-- Served by the primary key of orders_idempotency_key, which outlives the order, and by orders_audit_by_order.
create or replace function fencepost._explain_order(p_name text)
returns table (at timestamptz, event text, actor text, token bigint, detail jsonb)
language sql stable
as $$
  with asked as (
    select l.order_id as id, l.order_id::text as other_name from fencepost.orders_idempotency_key l where l.idempotency_key = p_name
    union all
    select r.id, r.idempotency_key from fencepost.orders_order r
    where p_name ~ '^[0-9]{1,18}$' and r.id = case when p_name ~ '^[0-9]{1,18}$' then p_name::bigint end
      and not exists (select 1 from fencepost.orders_idempotency_key l where l.idempotency_key = p_name)
  )
  select life.* from asked cross join lateral (
    (select a.at, a.status_to, a.actor, a.take,
            jsonb_build_object('id', a.outbox_id, 'key', a.idempotency_key, 'from', a.status_from, 'retry_count', a.retry_count,
                               'broker_order_id', a.broker_order_id, 'error', a.last_error, 'detail', a.detail,
                               'trace_id', a.trace_id)
     from fencepost.orders_audit a where a.outbox_id = asked.id order by a.audit_id)
    union all
    select * from fencepost._explain_refusals('order', asked.other_name)
  ) life
$$;
