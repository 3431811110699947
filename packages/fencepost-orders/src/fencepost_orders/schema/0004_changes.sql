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
  -- When it is taken next. A take moves it to its own end, so what a dead worker leaves is due again by itself.
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
