-- Settled orders, as many as the setting bench.size says, in every table that keeps a history.
do $$
declare
  v_size   bigint := current_setting('bench.size')::bigint;
  v_first  bigint := nextval('fencepost.outbox_id_seq');
  v_now    timestamptz := fencepost.clock() - interval '1 day';
  v_digest text := 'sha256:' || repeat('a', 64);
  v_have   bigint := (select count(*) from fencepost.orders_idempotency_key where idempotency_key like 'stock-%');
begin
  create temp table stock on commit drop as
    select v_first + n as id, 'stock-' || (v_have + n) as key from generate_series(1, greatest(0, v_size - v_have)) n;
  perform setval('fencepost.outbox_id_seq', v_first + v_size + 1);
  insert into fencepost.orders_order (id, idempotency_key, broker, account, symbol, request_json, request_digest, created_at,
                                      updated_at, stamped_at, requests, final_status, broker_order_id, settled_at)
    select s.id, s.key, 'bench', 'default', 'S' || s.id % 1000, '{"qty": "100", "symbol": "S", "intent": "BUY"}', v_digest, v_now,
           v_now, v_now, 1, 'sent', 'brk-' || s.id, v_now from stock s;
  insert into fencepost.orders_idempotency_key (idempotency_key, request_digest, result_digest, order_id, expires_at)
    select s.key, v_digest, v_digest, s.id, v_now + interval '30 days' from stock s;
  insert into fencepost.orders_result (order_id, idempotency_key, broker_order_id, status, result_digest, received_at)
    select s.id, s.key, 'brk-' || s.id, 'accepted', v_digest, v_now from stock s;
  insert into fencepost.orders_audit (at, outbox_id, idempotency_key, status_from, status_to, retry_count)
    select v_now, s.id, s.key, t.step[1], t.step[2], 0
    from stock s, (values (array[null, 'queued']), (array['queued', 'sending']), (array['sending', 'sent'])) t (step);
  insert into fencepost.outbox_settled (id, channel, key, payload, headers, state, created_at, settled_at, attempts, take)
    select s.id, 'orders:bench', 'default/S' || s.id % 1000, '{}', '{}', 'sent', v_now, v_now, 1, 1 from stock s;
end $$;
