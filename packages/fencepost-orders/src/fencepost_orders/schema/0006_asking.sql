-- Asking goes on: about parked orders, while sending is paused or halted, and as the probe of a broker that failed.

-- Since when an order's outcome is unknown: it is asked about for a while before it is parked.
alter table fencepost.orders_order add column unknown_since timestamptz;

alter table fencepost.orders_broker
  -- The end of a pause of questions. paused_until is the end of a pause of sending.
  add column ask_paused_until timestamptz,
  -- Whether its adapter can ask: then a question tries the broker after failures, and no order is risked for it.
  add column can_ask boolean not null default false,
  add column probe_at timestamptz,
  -- Why it was halted, when an answer did it and no person, and when it first answered a question since.
  add column halted_code text collate "C",
  add column answered_at timestamptz;

-- Parked orders whose next question is due. They are few.
create index outbox_parked on fencepost.outbox (channel, not_before, id) where state = 'parked';

-- Accounts for which orders were sent, so that a kill switch can refuse a name that nobody uses.
create table fencepost.orders_account (
  broker  text collate "C" not null,
  account text collate "C" not null,
  constraint orders_account_pkey primary key (broker, account)
);
insert into fencepost.orders_account (broker, account)
select distinct r.broker, r.account from fencepost.orders_order r;

-- They take and answer more now; a call as the version before makes it is answered as before.
drop function if exists fencepost.orders_take_unknown(text, text, interval, integer);
drop function if exists fencepost.orders_broker_declare(text, double precision, double precision, integer, interval,
                                                        double precision, double precision);
