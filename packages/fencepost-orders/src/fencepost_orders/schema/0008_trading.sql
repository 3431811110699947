-- Events: how many were published about an order, and how much of it they said was filled.
alter table fencepost.orders_order
  add column events integer not null default 0,
  add column told_filled numeric;
insert into fencepost.webhook_known_topic (topic, about) values ('orders', 'orders that end, fill, are parked or halted');
-- Limits of accounts: an order that passes one of them is not accepted.

-- A limit that is null does not apply. The account * stands for every account of the broker without a row of its own.
create table fencepost.orders_limit (
  broker           text collate "C" not null,
  account          text collate "C" not null,
  qty_max          numeric,
  notional_max     numeric,
  -- How far a price may be from the reference price, as a part of it: 0.05 is five percent.
  collar           numeric,
  day_orders_max   integer,
  day_notional_max numeric,
  -- Where the account's day begins and ends.
  day_zone         text not null,
  -- How old the reference price may be.
  price_age_max    interval not null,
  set_at           timestamptz not null,
  set_by           text not null,
  reason           text not null,
  constraint orders_limit_pkey primary key (broker, account),
  constraint orders_limit_is_above_zero check (
    qty_max > 0 and notional_max > 0 and collar > 0 and day_orders_max > 0 and day_notional_max > 0)
);

-- What an account has placed on one of its days. Acceptances lock its row, so that two cannot pass a limit together.
create table fencepost.orders_day (
  broker   text collate "C" not null,
  account  text collate "C" not null,
  day      date not null,
  orders   integer not null default 0,
  notional numeric not null default 0,
  constraint orders_day_pkey primary key (broker, account, day)
) with (fillfactor = 50);

-- The reference price of a symbol, from the caller's own source of prices.
create table fencepost.orders_price (
  broker text collate "C" not null,
  symbol text collate "C" not null,
  price  numeric not null,
  at     timestamptz not null,
  source text not null,
  constraint orders_price_pkey primary key (broker, symbol),
  constraint orders_price_is_above_zero check (price > 0)
) with (fillfactor = 50);

-- Accepting says which limit an order passes.
drop function if exists fencepost.orders_accept(text, jsonb, text, text, text, text, text, text, timestamptz, interval, jsonb);

-- Changes of an order that the broker has: a cancel or a replacement. Each is an effect at the broker, taken and settled under a
-- fence of its own.

create table fencepost.orders_change (
  change_id       bigint generated always as identity,
  order_id        bigint not null,
  broker          text collate "C" not null,
  kind            text collate "C" not null,
  -- The caller's own key: the same change is made once.
  change_key      text collate "C" not null,
  -- What a replacement changes, and the whole document that it makes.
  changes         jsonb,
  terms           jsonb,
  -- The client id of the replacement at the broker.
  client_id       text collate "C",
  actor           text not null,
  reason          text not null,
  state           text collate "C" not null default 'queued',
  created_at      timestamptz not null,
  -- When it is taken next. A take moves it to its own end, so what a worker leaves behind is due again by itself.
  due_at          timestamptz not null,
  take            bigint not null default 0,
  requests        integer not null default 0,
  asks            integer not null default 0,
  stamped_at      timestamptz,
  -- The stamp of the first request whose fate is not proved: while it is set, a request may still take effect.
  open_since      timestamptz,
  -- The broker's id of the order that the last request named.
  broker_order_id text,
  last_error      text collate "C",
  detail          text,
  settled_at      timestamptz,
  -- The last report about an order that was replaced, with its fills.
  replaced_result jsonb,
  constraint orders_change_pkey primary key (change_id),
  constraint orders_change_key_is_used_once unique (order_id, change_key),
  constraint orders_change_kind_is_known check (kind in ('cancel', 'replace')),
  constraint orders_change_state_is_known check (state in ('queued', 'sending', 'unknown', 'done', 'refused')),
  constraint orders_change_end_is_dated check ((state in ('done', 'refused')) = (settled_at is not null)),
  constraint orders_change_refused_is_proved check (state <> 'refused' or open_since is null),
  constraint orders_change_replacement_has_terms check ((kind = 'replace') = (terms is not null and client_id is not null))
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
-- One cancel and one replacement of an order at a time.
create unique index orders_change_open on fencepost.orders_change (order_id, kind) where settled_at is null;
create index orders_change_due on fencepost.orders_change (broker, due_at, change_id) where settled_at is null;

alter table fencepost.orders_order
  -- The client id and the document under which the broker has it, once it was replaced.
  add column client_id text collate "C",
  add column terms jsonb;
alter table fencepost.orders_broker
  add column can_cancel boolean not null default false,
  add column can_replace boolean not null default false;
