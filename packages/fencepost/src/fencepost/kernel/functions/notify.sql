-- Wake-ups, coalesced. NOTIFY takes a global lock at commit and costs two thirds of the throughput when every
-- transaction does it. So a loop registers as sleeping before it waits, and a writer notifies only then.
-- A writer that began before the loop registered may miss it: polling guarantees progress.

-- Registers that the loop found nothing and is about to wait on p_topic.
create or replace function fencepost.sleep_on(p_topic text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._check_text('topic', p_topic, 256);
  insert into fencepost.sleeper (topic, since) values (p_topic, fencepost.clock())
  on conflict (topic) do nothing;
end $$;

-- Registers that the loop is awake: writers need not notify it.
create or replace function fencepost.wake_up(p_topic text) returns void
language sql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$ delete from fencepost.sleeper s where s.topic = p_topic $$;

-- Wake the loops that sleep on p_topic when this transaction commits. One index lookup when there are none.
create or replace function fencepost._wake(p_topic text) returns void
language plpgsql volatile
as $$
begin
  if exists (select 1 from fencepost.sleeper s where s.topic = p_topic) then
    perform pg_notify('fencepost', p_topic);
  end if;
end $$;
