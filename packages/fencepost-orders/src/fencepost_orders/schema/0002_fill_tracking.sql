-- Orders that are live at the broker: asked about until it says how they ended. One row for each, so that no query reads the history
-- of ended orders.
create table fencepost.orders_fill_tracking (
  order_id bigint not null,
  broker   text collate "C" not null,
  -- When it is asked about next. A take moves it to its own end, so what a dead worker leaves is due again by itself.
  ask_at   timestamptz not null,
  take     bigint not null default 0,
  asks     integer not null default 0,
  constraint orders_fill_tracking_pkey primary key (order_id)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
create index orders_fill_tracking_due on fencepost.orders_fill_tracking (broker, ask_at, order_id);
