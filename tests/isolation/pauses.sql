-- Places at which a call can be stopped in its middle: before and after every statement that writes, and wherever it
-- reads the clock. A session that has set isolation.pause_at to n stops at the nth of them until no session holds the
-- advisory lock of the pause.

create function isolation.pause_here() returns void
language plpgsql volatile
as $$
declare
  v_left integer := nullif(current_setting('isolation.pause_at', true), '')::integer;
begin
  if v_left is null then
    return;
  end if;
  perform set_config('isolation.pause_at', case when v_left > 1 then (v_left - 1)::text else '' end, true);
  if v_left = 1 then
    perform pg_advisory_lock_shared(7, 7);
    perform pg_advisory_unlock_shared(7, 7);
  end if;
end $$;

create function isolation.pause_at_statement() returns trigger
language plpgsql volatile
as $$
begin
  perform isolation.pause_here();
  return null;
end $$;

do $$
declare
  v_table regclass;
begin
  foreach v_table in array array['fencepost.lease', 'fencepost.idempotency_key', 'fencepost.idempotency_ring', 'fencepost.outbox',
    'fencepost.outbox_unpromoted', 'fencepost.outbox_settled', 'fencepost.job', 'fencepost.job_waiting',
    'fencepost.job_running', 'fencepost.job_finished', 'fencepost.job_unique', 'fencepost.checkpoint',
    'fencepost.orders_order', 'fencepost.orders_idempotency_key', 'fencepost.orders_broker', 'fencepost.orders_halt',
    'fencepost.orders_fill_tracking']::regclass[] loop
    execute format('create trigger pause_before before insert or update or delete on %s
                    for each statement execute function isolation.pause_at_statement()', v_table);
    execute format('create trigger pause_after after insert or update or delete on %s
                    for each statement execute function isolation.pause_at_statement()', v_table);
  end loop;
end $$;

create or replace function fencepost.clock() returns timestamptz
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
  perform isolation.pause_here();
  return timestamptz '2030-01-01 00:00:00+00' + (select s.last_value from isolation.seconds s) * interval '1 second'
    + nextval('isolation.tick') * interval '1 microsecond';
end $$;
