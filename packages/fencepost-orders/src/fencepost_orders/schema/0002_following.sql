-- Orders that the broker has and is not done with: asked about until it says how they ended. A row for each, so that the
-- history of what is over is never looked through for them.

create table fencepost.orders_following (
  order_id bigint not null,
  broker   text collate "C" not null,
  -- When it is asked about next. A take moves it to its own end, so what an asker leaves behind is due again by itself.
  ask_at   timestamptz not null,
  take     bigint not null default 0,
  asks     integer not null default 0,
  constraint orders_following_pkey primary key (order_id)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
create index orders_following_due on fencepost.orders_following (broker, ask_at, order_id);
