-- Events: how many were published about an order, and how much of it they said was filled.
alter table fencepost.orders_order
  add column events integer not null default 0,
  add column told_filled numeric;
insert into fencepost.webhook_known_topic (topic, about) values ('orders', 'orders that end, fill, are parked or halted');
