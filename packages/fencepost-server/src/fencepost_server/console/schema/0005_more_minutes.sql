-- What the outbox did in each minute, and how late it was. Null for minutes that were counted before anybody looked.
alter table fencepost.console_minute
  add column delivered            bigint,
  add column delivery_p50_seconds double precision,
  add column delivery_p95_seconds double precision,
  add column outbox_lag_seconds   double precision;

-- Takeovers stand among the events of every job: found by their own index, however busy the jobs are.
create index event_takeovers on fencepost.event (event_id) where noun = 'lease' and event = 'taken_over';

-- They have more columns. A function's columns are part of its name, so the old ones go.
drop function if exists fencepost.console_series(timestamptz, interval);
drop function if exists fencepost.console_workers();
