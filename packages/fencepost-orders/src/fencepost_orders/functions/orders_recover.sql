-- What orders do after a restore of the database: every live order is queried before anything is sent.
create or replace function fencepost._recover_orders(p_actor text) returns jsonb
language sql volatile
as $$
  select jsonb_build_object('asked_about', coalesce(sum(fencepost.orders_recover(b.broker, p_actor)), 0))
  from fencepost.orders_broker b
$$;
