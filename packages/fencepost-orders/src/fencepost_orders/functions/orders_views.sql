-- What people and programs may read of orders, under the names that operators of order outboxes know.

create or replace view fencepost.outbox_orders as
  select r.id, r.idempotency_key, r.request_json, r.request_digest, coalesce(r.final_status, o.state) as status, r.retry_count,
         coalesce(o.not_before, r.settled_at) as next_attempt_at, r.last_error, r.created_at, r.updated_at, r.broker, r.account,
         r.symbol, r.trace_id, r.broker_order_id, r.expires_at, r.stamped_at, r.open_since, r.requests, r.asks, r.settled_at,
         r.resend_of, o.key as order_key, o.ready, o.owner, o.taken_until
  from fencepost.orders_order r left join fencepost.outbox o on o.id = r.id and r.final_status is null;

create or replace view fencepost.idempo_ledger as
  select l.idempotency_key, l.request_digest, l.result_digest, l.expires_at, l.order_id from fencepost.orders_idempotency_key l;

create or replace view fencepost.exec_result as
  select x.order_id as outbox_id, x.idempotency_key, x.broker_order_id, x.status, x.accepted_at, x.fills, x.body, x.result_digest,
         x.received_at, exists (select 1 from fencepost.orders_fill_tracking f where f.order_id = x.order_id) as is_followed
  from fencepost.orders_result x;

create or replace view fencepost.outbox_audit as
  select a.audit_id, a.at, a.outbox_id, a.idempotency_key, a.trace_id, a.broker_order_id, a.status_from, a.status_to,
         a.retry_count, a.last_error, a.actor, a.take, a.detail
  from fencepost.orders_audit a;

create or replace view fencepost.orders_brokers as
  select b.broker, b.rate, b.rate_max, b.tokens,
         case when b.paused_until > fencepost.clock() then b.paused_until end as paused_until, b.failures, b.failures_max, b.opened_until,
         case when b.opened_until is null then 'closed' when b.opened_until > fencepost.clock() then 'open' else 'half_open' end
           as breaker,
         b.halted_at, b.halted_by, b.halted_reason,
         coalesce((select jsonb_agg(jsonb_build_object('account', h.account, 'by', h.halted_by, 'reason', h.reason, 'at', h.halted_at)
                                    order by h.account) from fencepost.orders_halt h where h.broker = b.broker), '[]')
           as halted_accounts,
         case when b.ask_paused_until > fencepost.clock() then b.ask_paused_until end as ask_paused_until,
         b.halted_code, b.can_ask, b.answered_at, b.can_cancel, b.can_replace
  from fencepost.orders_broker b;

-- One order by its id or by its key, with the broker's result. Served by the primary and the unique key, and by
-- orders_audit_by_order.
create or replace function fencepost.orders_get(p_id bigint, p_key text) returns setof jsonb
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select to_jsonb(v) || jsonb_build_object('result', (select to_jsonb(x) from fencepost.exec_result x where x.outbox_id = v.id),
           'terms', (select r.terms from fencepost.orders_order r where r.id = v.id),
           'changes', coalesce((select jsonb_agg(to_jsonb(c) order by c.change_id)
                                from fencepost.orders_changes c where c.order_id = v.id), '[]'),
           'resent_as', (select n.id from fencepost.orders_order n where n.resend_of = v.id limit 1),
           -- What an operator looks for first: the broker's last answer that was not simply a success.
           'last_answer', (select a.detail from fencepost.orders_audit a where a.outbox_id = v.id and a.detail ~ '^[1-5][0-9][0-9]: '
                           order by a.audit_id desc limit 1))
  from fencepost.outbox_orders v
  where v.id = coalesce(p_id, (select r.id from fencepost.orders_order r where r.idempotency_key = p_key))
$$;

-- Every transition of one order, oldest first. Served by orders_audit_by_order.
create or replace function fencepost.orders_history(p_id bigint) returns setof jsonb
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$ select to_jsonb(a) from fencepost.outbox_audit a where a.outbox_id = p_id order by a.audit_id $$;

-- Orders, newest first, before p_before (an id), of one status, broker or account when given. Dead and live orders are few and
-- have indexes of their own; without a status, or for sent orders, the primary key is walked backwards.
create or replace function fencepost.orders_list(p_status text, p_broker text, p_account text, p_before bigint, p_limit integer)
returns setof jsonb
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._check_limit(p_limit);
  if p_status is null or p_status = 'sent' then
    return query
    select to_jsonb(v) from fencepost.outbox_orders v
    where v.id < coalesce(p_before, 9223372036854775807) and (p_status is null or v.status = p_status)
      and (p_broker is null or v.broker = p_broker) and (p_account is null or v.account = p_account)
    order by v.id desc limit p_limit;
  elsif p_status = 'dead' then
    return query
    select to_jsonb(v) from fencepost.orders_order r join fencepost.outbox_orders v on v.id = r.id
    where r.final_status = 'dead' and r.id < coalesce(p_before, 9223372036854775807)
      and (p_broker is null or r.broker = p_broker) and (p_account is null or r.account = p_account)
    order by r.id desc limit p_limit;
  else
    perform fencepost._check_word('status', p_status, array['queued', 'sending', 'failed', 'unknown', 'parked', 'sent', 'dead']);
    return query
    select to_jsonb(v) from fencepost.orders_broker b
      join fencepost.orders_order r on r.broker = b.broker and r.final_status is null
      join fencepost.outbox_orders v on v.id = r.id
    where (p_broker is null or b.broker = p_broker) and (p_account is null or r.account = p_account)
      and v.status = p_status and r.id < coalesce(p_before, 9223372036854775807)
    order by r.id desc limit p_limit;
  end if;
end $$;

-- How many live orders there are in each state, and the age of the oldest: since its acceptance while it waits, since its first
-- request that is not accounted for once it was sent. For metrics. Served by orders_order_live.
create or replace function fencepost.orders_counts() returns table (broker text, status text, orders bigint, oldest_seconds double precision)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select r.broker, o.state, count(*), extract(epoch from fencepost.clock() - min(
    case when o.state in ('sending', 'unknown') then coalesce(r.open_since, r.stamped_at, r.created_at) else r.created_at end
  ))::double precision
  from fencepost.orders_broker b
    join fencepost.orders_order r on r.broker = b.broker and r.final_status is null
    join fencepost.outbox o on o.id = r.id
  group by r.broker, o.state
$$;
