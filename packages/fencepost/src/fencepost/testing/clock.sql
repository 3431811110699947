-- The settable clock of a test's database: real time or a fixed time, and an offset.
--
-- Every session sees a change from its next reading on, because a volatile function reads with its own
-- snapshot. (In a REPEATABLE READ transaction, which has one snapshot, the clock stays as it was at its
-- start.)

create schema fencepost_testing;
grant usage on schema fencepost_testing to public;

create table fencepost_testing.clock (
  only_row boolean primary key default true,
  fixed_at timestamptz,
  ahead    interval not null default '0',
  -- The definition that restore() puts back.
  original text not null,
  constraint clock_has_one_row check (only_row)
);
grant select on fencepost_testing.clock to public;

insert into fencepost_testing.clock (original)
select pg_get_functiondef('fencepost.clock()'::regprocedure);

-- Replacing keeps the owner and the grants.
create or replace function fencepost.clock() returns timestamptz
language sql volatile parallel safe
as $$ select coalesce(c.fixed_at, clock_timestamp()) + c.ahead from fencepost_testing.clock c $$;
