-- Parts of large states: bytes that are named by their hash, beside the checkpoints and savepoints that name them.
create table fencepost.flow_part (
  resource text collate "C" not null,
  hash     bytea not null,
  content  bytea not null,
  constraint flow_part_pkey primary key (resource, hash),
  constraint flow_part_is_a_sha256 check (octet_length(hash) = 32)
);
-- State is packed already: to compress it again costs more than it saves.
alter table fencepost.flow_part alter column content set storage external;

-- A checkpoint whose state has parts, or continues one that has. `since` is the first checkpoint that a restore of it reads: what lies
-- before has been stored again in it or after it.
create table fencepost.flow_state (
  resource text collate "C" not null,
  number   bigint not null,
  since    bigint not null,
  parts    bytea[] not null,
  bytes    bigint not null,
  constraint flow_state_pkey primary key (resource, number),
  constraint flow_state_goes_on check (since > 0 and since <= number)
);
