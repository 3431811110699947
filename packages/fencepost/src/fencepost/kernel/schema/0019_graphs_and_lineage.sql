-- A workflow waits for any number of its batches at once: each one that it awaits wakes it when it is complete.
alter table fencepost.job_batch add column awaited boolean not null default false;

-- Lists of workflows, newest first, beside any number of plain jobs; and of those that wait for an event beside any number that sleep.
create index job_of_workflow on fencepost.job (job_id) where headers ? 'workflow';
create index workflow_wait_for_event on fencepost.workflow_wait (job_id) where event is not null;

-- Documents of jobs cost less processor time. PostgreSQL's own compression takes three quarters of what a job with 10 KB of payload and
-- result costs the server, and half of that again when they are read. lz4 takes little; a server that was built without it stores long
-- documents as they are, which takes more space and less time. Only rows that are written from now on are affected.
do $$
begin
  alter table fencepost.job alter column payload set compression lz4;
  alter table fencepost.job_finished alter column result set compression lz4;
exception when feature_not_supported then
  alter table fencepost.job alter column payload set storage external;
  alter table fencepost.job_finished alter column result set storage external;
end $$;

-- Which history this database has, so that one that lost a part of it is noticed.

insert into fencepost.refusal_reason (reason, sqlstate, meaning, remedy) values
  ('rewound', 'ZF012', 'The database lost commits that clients were answered from: tokens may be issued twice.',
                       'Run `fencepost recover`, or set DATABASE_RECOVER to auto.');
create sequence fencepost.refused_rewound;

-- One row. Marks carry a digest with the secret, so that a client can only present what this database gave it.
create table fencepost.lineage (
  only_one          boolean not null default true,
  secret            bytea not null,
  epoch             bigint not null,
  system_identifier bigint,
  timeline          integer,
  synchronous       boolean not null default false,
  rewound           jsonb,
  constraint lineage_pkey primary key (only_one),
  constraint lineage_is_one_row check (only_one)
);
insert into fencepost.lineage (secret, epoch) values (uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()), 1);

-- The marks of the last day, one a second at most.
create table fencepost.lineage_mark (
  number   bigint not null,
  nonce    uuid not null,
  at       timestamptz not null,
  timeline integer not null,
  position pg_lsn not null,
  constraint lineage_mark_pkey primary key (number)
);

-- It is told how far the tokens that clients know of have come.
drop function if exists fencepost._recover(text);
