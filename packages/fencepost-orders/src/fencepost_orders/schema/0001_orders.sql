-- An order is a message of the kernel's outbox (channel orders:BROKER, one key for what must not overtake) and a row
-- here under the same id. The outbox row has the worker that may send it, and its state while it is live; this row has what it is,
-- what is still open about the requests that were made for it, and how it ended.
--
-- An order is written three times: accepted, stamped, settled. Each time the database checks every constraint of the row again and,
-- where the page is full, writes the row elsewhere and all its indexes anew. So constraints are cheap, indexes few, and a page has
-- room for the stamp.

-- Programs with a token of their own call this service's API (accounts/programs.py).
insert into fencepost.account_service_role (service, role, rank) values ('orders', 'program', 1);
insert into fencepost.webhook_known_topic (topic, about) values ('orders', 'orders that end, fill, are parked or halted');

create table fencepost.orders_order (
  id              bigint not null,
  idempotency_key text collate "C" not null,
  broker          text collate "C" not null,
  account         text collate "C" not null,
  symbol          text collate "C" not null,
  request_json    jsonb not null,
  request_digest  text collate "C" not null,
  trace_id        text,
  expires_at      timestamptz,
  created_at      timestamptz not null,
  updated_at      timestamptz not null,
  -- A request is stamped when its order is taken, before it can leave. open_since is the stamp of the first request
  -- whose outcome is not proved: while it is set the order may be live at the broker, whatever the last answer said.
  stamped_at      timestamptz,
  open_since      timestamptz,
  requests        integer not null default 0,
  asks            integer not null default 0,
  retry_count     integer not null default 0,
  final_status    text collate "C",
  last_error      text collate "C",
  broker_order_id text,
  settled_at      timestamptz,
  resend_of       bigint,
  -- Since when its outcome is unknown: it is asked about for a while before it is parked.
  unknown_since   timestamptz,
  -- How many events were published about it, and how much of it they said was filled.
  events          integer not null default 0,
  told_filled     numeric,
  -- The client id and the document under which the broker has it, once it was replaced.
  client_id       text collate "C",
  terms           jsonb,
  constraint orders_order_pkey primary key (id),
  constraint orders_order_idempotency_key_key unique (idempotency_key),
  constraint orders_order_final_status_is_final check (final_status in ('sent', 'dead')),
  constraint orders_order_settled_is_dated check ((final_status is null) = (settled_at is null)),
  constraint orders_order_dead_is_proved check (final_status is distinct from 'dead' or open_since is null),
  constraint orders_order_open_was_stamped check (open_since is null or open_since <= stamped_at),
  -- A regular expression would take a third of the processor time of taking and settling an order.
  constraint orders_order_digest_is_sha256 check (
    octet_length(request_digest) = 71 and left(request_digest, 7) = 'sha256:'
    and ltrim(substr(request_digest, 8), '0123456789abcdef') = '')
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
create index orders_order_live on fencepost.orders_order (broker, account, id) where final_status is null;
create index orders_order_expiring on fencepost.orders_order (expires_at) where final_status is null and expires_at is not null;
create index orders_order_dead on fencepost.orders_order (id) where final_status = 'dead';
create index orders_order_settled on fencepost.orders_order (settled_at) where final_status is not null;
create index orders_order_resent on fencepost.orders_order (resend_of) where resend_of is not null;

-- The idempotency keys that were used, and their digests. Until expires_at a repeat gets its first answer; after it the key is refused.
-- A row is never deleted: without it the order could be placed again.
create table fencepost.orders_idempotency_key (
  idempotency_key text collate "C" not null,
  request_digest  text collate "C" not null,
  result_digest   text collate "C",
  order_id        bigint not null,
  expires_at      timestamptz not null,
  constraint orders_idempotency_key_pkey primary key (idempotency_key)
);

-- What the broker answered about an order that it has.
create table fencepost.orders_result (
  order_id        bigint not null,
  idempotency_key text collate "C" not null,
  broker_order_id text,
  status          text not null,
  accepted_at     timestamptz,
  fills           jsonb not null default '[]',
  body            jsonb,
  result_digest   text collate "C" not null,
  received_at     timestamptz not null,
  constraint orders_result_pkey primary key (order_id)
);

-- Every transition of every order.
create table fencepost.orders_audit (
  audit_id        bigint generated always as identity,
  at              timestamptz not null,
  outbox_id       bigint not null,
  idempotency_key text collate "C" not null,
  trace_id        text,
  broker_order_id text,
  status_from     text collate "C",
  status_to       text collate "C" not null,
  retry_count     integer not null,
  last_error      text collate "C",
  actor           text,
  take            bigint,
  detail          text,
  constraint orders_audit_pkey primary key (audit_id)
);
create index orders_audit_by_order on fencepost.orders_audit (outbox_id, audit_id);

-- One row for each broker: its throttle, its circuit breaker and its kill switch, shared by all workers.
create table fencepost.orders_broker (
  broker          text collate "C" not null,
  rate_max        double precision not null,
  rate_min        double precision not null,
  rate_rise       double precision not null,
  burst           double precision not null,
  failures_max    integer not null,
  open_for        interval not null,
  rate            double precision not null,
  tokens          double precision not null,
  refilled_at     timestamptz not null,
  lowered_at      timestamptz,
  paused_until    timestamptz,
  failures        integer not null default 0,
  opened_until    timestamptz,
  halted_at       timestamptz,
  halted_by       text,
  halted_reason   text,
  -- The end of a pause of questions. paused_until is the end of a pause of sending.
  ask_paused_until timestamptz,
  -- Whether its adapter can ask: then a question tries the broker after failures, and no order is risked for it.
  can_ask         boolean not null default false,
  probe_at        timestamptz,
  -- The code of the answer that halted it, if no person did, and when it first answered a question since.
  halted_code     text collate "C",
  answered_at     timestamptz,
  can_cancel      boolean not null default false,
  can_replace     boolean not null default false,
  constraint orders_broker_pkey primary key (broker),
  constraint orders_broker_rate_has_bounds check (0 < rate_min and rate_min <= rate and rate <= rate_max),
  constraint orders_broker_burst_is_one_or_more check (burst >= 1)
) with (fillfactor = 50);

-- Accounts whose kill switch is on.
create table fencepost.orders_halt (
  broker    text collate "C" not null,
  account   text collate "C" not null,
  halted_at timestamptz not null,
  halted_by text not null,
  reason    text not null,
  constraint orders_halt_pkey primary key (broker, account)
);

-- Accounts for which orders were sent, so that a kill switch can refuse an unknown name.
create table fencepost.orders_account (
  broker  text collate "C" not null,
  account text collate "C" not null,
  constraint orders_account_pkey primary key (broker, account)
);

-- Parked orders whose next question is due. They are few.
create index outbox_parked on fencepost.outbox (channel, not_before, id) where state = 'parked';
