-- Which history this database has, so that one that lost a part of it is noticed.

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
