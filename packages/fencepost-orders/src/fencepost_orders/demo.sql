-- Removes the orders of the broker demo, and the broker.
create temporary table demo_order on commit drop as select o.id, o.idempotency_key from fencepost.orders_order o where o.broker = 'demo';
delete from fencepost.orders_audit t using demo_order d where t.outbox_id = d.id;
delete from fencepost.orders_result t using demo_order d where t.order_id = d.id;
delete from fencepost.orders_fill_tracking t using demo_order d where t.order_id = d.id;
delete from fencepost.orders_idempotency_key t using demo_order d where t.order_id = d.id;
delete from fencepost.outbox t using demo_order d where t.id = d.id;
delete from fencepost.outbox_settled t using demo_order d where t.id = d.id;
delete from fencepost.outbox_unpromoted where channel = 'orders:demo';
delete from fencepost.orders_order t using demo_order d where t.id = d.id;
delete from fencepost.orders_halt where broker = 'demo';
delete from fencepost.orders_account where broker = 'demo';
delete from fencepost.orders_broker where broker = 'demo';
delete from fencepost.event t using demo_order d where t.noun = 'outbox' and t.subject = d.id::text;
delete from fencepost.refusal t using demo_order d
where (t.noun = 'outbox' and t.subject = d.id::text) or (t.noun = 'order' and t.subject in (d.id::text, d.idempotency_key));
