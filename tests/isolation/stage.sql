-- What an interleaving needs of its database: a clock that only the test moves, somewhere to write under a fence,
-- and a way back to the beginning. Installed by the superuser into a database of the test's own.

create schema isolation;
grant usage on schema isolation to public;

-- Sequences, because they are seen at once by everybody, whatever transaction moves them.
create sequence isolation.seconds minvalue 0 start 0;
create sequence isolation.tick;
grant all on all sequences in schema isolation to public;

-- Time stands still but for a tick at each look: no two readings are equal, and nothing expires by itself.
create or replace function fencepost.clock() returns timestamptz
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
  return timestamptz '2030-01-01 00:00:00+00' + (select s.last_value from isolation.seconds s) * interval '1 second'
    + nextval('isolation.tick') * interval '1 microsecond';
end $$;

-- Move the clock to so many seconds after the beginning.
create function isolation.at(p_seconds bigint) returns text
language sql volatile
as $$ select 'at ' || setval('isolation.seconds', p_seconds) $$;

-- What a caller writes in the transaction that it has fenced.
create table isolation.effect (writer text not null);
grant select, insert on isolation.effect to public;

-- Deliver a channel until nothing is due: one row a take, with what it took. What may not be taken is named last.
create function isolation.drain(p_channel text) returns setof text
language plpgsql volatile
as $$
declare
  v_taken text;
begin
  loop
    select string_agg(t.payload #>> '{}', ', ' order by t.id) into v_taken from (
      select o.id, o.payload, fencepost.outbox_settle(o.id, o.take, 'drain', 'sent')
      from fencepost.outbox_take(p_channel, 'drain', '1 hour', 10) o) t;
    exit when v_taken is null;
    return next v_taken;
  end loop;
  return query select (o.payload #>> '{}') || ' is ' || o.state || coalesce(' by ' || o.owner, '')
               from fencepost.outbox o where o.channel = p_channel order by o.id;
end $$;

-- Back to an empty kernel whose ids begin at 1. Written from the catalog, so that no new table is forgotten.
-- Most tables have never had a row: to see that their files are empty takes less than a delete of nothing.
do $$
declare
  v_deletes text := (
    select string_agg(format('if pg_relation_size(%L::regclass) > 0 then delete from %s; end if;',
                             c.oid::regclass, c.oid::regclass), E'\n  ' order by c.relname) from pg_class c
    where c.relnamespace = 'fencepost'::regnamespace and c.relkind = 'r'
      and c.relname not in ('refusal_reason', 'migration', 'token_floor', 'idempotency_forgotten'));
begin
  execute format($body$
    create function isolation.reset() returns void language plpgsql volatile as $reset$
    begin
      delete from isolation.effect;
      %s
      update fencepost.idempotency_forgotten set slice = 0;
      perform setval('isolation.seconds', 0), setval('fencepost.job_job_id_seq', 1, false),
              setval('fencepost.outbox_id_seq', 1, false), setval('fencepost.job_batch_batch_id_seq', 1, false);
    end $reset$
  $body$, v_deletes);
end $$;
