-- The keys of orders, and the orders whose fills are still asked for, under plain names.
alter table fencepost.orders_ledger rename to orders_idempotency_key;
alter table fencepost.orders_idempotency_key rename constraint orders_ledger_pkey to orders_idempotency_key_pkey;
alter table fencepost.orders_following rename to orders_fill_tracking;
alter table fencepost.orders_fill_tracking rename constraint orders_following_pkey to orders_fill_tracking_pkey;
alter index fencepost.orders_following_due rename to orders_fill_tracking_due;

-- Their names or arguments are others now.
drop function if exists fencepost._orders_follow_first();
drop function if exists fencepost.orders_follow_take(text, interval, integer);
drop function if exists fencepost.orders_follow_settle(
  text, text, bigint[], bigint[], jsonb[], boolean[], interval[], text[]);
drop function if exists fencepost.orders_follow_counts();
drop function if exists fencepost._orders_weather(text, text[], interval[]);
drop function if exists fencepost._orders_check_settle(
  bigint[], bigint[], text, text[], text[], text[], text[], interval[], jsonb[], text[]);
drop function if exists fencepost.orders_settle(
  text, text, bigint[], bigint[], text[], text[], text[], text[], interval[], jsonb[], text[]);
drop function if exists fencepost.orders_probe_tell(text, text);
-- Programs with a token of their own call this service's API (accounts/programs.py).
insert into fencepost.account_service_role (service, role, rank) values ('orders', 'program', 1);
