-- Limits of accounts: an order that passes one of them is not accepted. A limit that is null does not apply. The account * stands for
-- every account of the broker without a row of its own.
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
