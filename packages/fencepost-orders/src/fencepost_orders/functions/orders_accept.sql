-- Accepting an order: its row, its message, its idempotency key and its first audit line, in the caller's transaction.
--
-- Returns one of these, and raises for none of them:
--   accepted    this transaction accepted the order
--   replay      accepted before, with the same content: returns its id
--   mismatch    the key was used with different content
--   in_flight   another transaction is accepting the key right now
--   too_old     the key was used, and its replay period is over: it can never be used again
--   over_limit  the order passes a limit of its account (orders_limits.sql): detail has the limit, its maximum and what it has
--
-- Locks: the advisory try-lock of the key (as idempotency keys have), then the outbox's lock of (channel, order key), which waits
-- for another open accept of the same order key. Served by orders_idempotency_key_pkey.

create or replace function fencepost._orders_channel(p_broker text) returns text
language sql immutable parallel safe
as $$ select 'orders:' || p_broker $$;

create or replace function fencepost._orders_audit(
  p_at timestamptz, p_order fencepost.orders_order, p_from text, p_to text, p_error text, p_actor text, p_take bigint, p_detail text
) returns void
language sql volatile
as $$
  insert into fencepost.orders_audit (at, outbox_id, idempotency_key, trace_id, broker_order_id, status_from, status_to,
                                      retry_count, last_error, actor, take, detail)
  values (p_at, p_order.id, p_order.idempotency_key, p_order.trace_id, p_order.broker_order_id, p_from, p_to,
          p_order.retry_count, p_error, p_actor, p_take, p_detail)
$$;

create or replace function fencepost._orders_check_accept(
  p_key text, p_request jsonb, p_digest text, p_broker text, p_account text, p_symbol text, p_order_key text,
  p_trace text, p_expires timestamptz, p_keep interval
) returns void
language plpgsql volatile
as $$
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('idempotency_key', p_key, 128);
  perform fencepost._check_text('broker', p_broker, 64);
  perform fencepost._check_text('account', p_account, 128);
  perform fencepost._check_text('symbol', p_symbol, 64);
  perform fencepost._check_text('order_key', p_order_key, 512);
  perform fencepost._check_json('request', p_request, 65536);
  perform fencepost._check_moment('expires_at', p_expires);
  perform fencepost._check_duration('keep', p_keep, interval '100 years');
  if jsonb_typeof(p_request) is distinct from 'object' then
    raise exception 'request must be an object.' using errcode = 'ZF100', detail = '{"field": "request"}';
  end if;
  if p_digest is null or p_digest !~ '^sha256:[0-9a-f]{64}$' then
    raise exception 'request_digest must be sha256: and 64 hexadecimal digits.'
      using errcode = 'ZF100', detail = '{"field": "request_digest"}';
  end if;
  if p_trace is not null then
    perform fencepost._check_text('trace_id', p_trace, 256);
  end if;
end $$;

create or replace function fencepost._orders_create(
  p_key text, p_request jsonb, p_digest text, p_broker text, p_account text, p_symbol text, p_order_key text,
  p_trace text, p_expires timestamptz, p_keep interval, p_resend_of bigint, p_actor text, p_headers jsonb
) returns bigint
language plpgsql volatile
as $$
declare
  v_order fencepost.orders_order;
  v_now   timestamptz;
  v_id    bigint;
begin
  -- Checked for a new order only: a repeat of an order that was accepted in time returns its result.
  if p_expires <= fencepost.clock() then
    raise exception 'expires_at has passed: nothing would be sent.' using errcode = 'ZF100', detail = '{"field": "expires_at"}';
  end if;
  v_id := fencepost._outbox_put(fencepost._orders_channel(p_broker), p_order_key, '{}', coalesce(p_headers, '{}'), null);
  v_now := fencepost.clock();
  insert into fencepost.orders_order (id, idempotency_key, broker, account, symbol, request_json, request_digest, trace_id,
                                      expires_at, created_at, updated_at, resend_of)
  values (v_id, p_key, p_broker, p_account, p_symbol, p_request, p_digest, p_trace, p_expires, v_now, v_now, p_resend_of)
  returning * into v_order;
  insert into fencepost.orders_idempotency_key (idempotency_key, request_digest, order_id, expires_at)
  values (p_key, p_digest, v_id, v_now + p_keep);
  perform fencepost._orders_audit(v_now, v_order, null, 'queued', null, p_actor, null, null);
  return v_id;
end $$;

-- Accept one order, or say what its key is: see above. p_headers are the message's headers: the order's trace context.
create or replace function fencepost.orders_accept(
  p_key text, p_request jsonb, p_digest text, p_broker text, p_account text, p_symbol text, p_order_key text,
  p_trace text default null, p_expires timestamptz default null, p_keep interval default '30 days', p_headers jsonb default null
) returns table (outcome text, order_id bigint, detail jsonb)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_known fencepost.orders_idempotency_key;
begin
  perform fencepost._orders_check_accept(p_key, p_request, p_digest, p_broker, p_account, p_symbol, p_order_key, p_trace,
                                         p_expires, p_keep);
  if left(p_key, 10) = 'resend-of-' or left(p_key, 11) = 'replace-of-' then
    raise exception 'idempotency_key must not begin with resend-of- or replace-of-: our own keys begin so.'
      using errcode = 'ZF100', detail = '{"field": "idempotency_key"}';
  end if;
  if not fencepost._idempotency_lock('orders', p_key) then
    outcome := 'in_flight';
  else
    select * into v_known from fencepost.orders_idempotency_key l where l.idempotency_key = p_key;
    if not found then
      detail := fencepost._orders_over_limit(p_broker, p_account, p_symbol, p_request);
      if detail is not null then
        outcome := 'over_limit';
        perform fencepost._event(fencepost.clock(), 'broker', p_broker, 'over limit', null, null,
                                 detail || jsonb_build_object('account', p_account, 'key', p_key));
        return next;
        return;
      end if;
      outcome := 'accepted';
      order_id := fencepost._orders_create(p_key, p_request, p_digest, p_broker, p_account, p_symbol, p_order_key, p_trace,
                                           p_expires, p_keep, null, null, p_headers);
      return next;
      return;
    end if;
    order_id := v_known.order_id;
    outcome := case when v_known.request_digest <> p_digest then 'mismatch'
                    when v_known.expires_at <= fencepost.clock() then 'too_old'
                    else 'replay' end;
  end if;
  if outcome <> 'replay' then
    perform fencepost._refusal_note(outcome, 'order', p_key, null, jsonb_build_object('digest', p_digest),
      jsonb_build_object('digest', v_known.request_digest, 'order_id', v_known.order_id, 'expires_at', v_known.expires_at));
  end if;
  return next;
end $$;
