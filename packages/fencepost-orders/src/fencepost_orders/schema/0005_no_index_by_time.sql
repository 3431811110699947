-- Nothing looks for orders by the time of their acceptance: lists go by id, cleaning by settled_at, expiry by expires_at. The index
-- was only written to, with every order.
drop index if exists fencepost.orders_order_by_time;
