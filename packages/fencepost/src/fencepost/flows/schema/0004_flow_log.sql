-- Sources whose records have no offset to return to: files that appear in a folder, answers of an HTTP service, the first copy of a
-- table. What such a source finds is appended to a log, together with where it is to look next, and is read by number.
create table fencepost.flow_log (
  flow   text collate "C" not null,
  source text collate "C" not null,
  -- The highest number that was ever used: it never goes back, also when everything below it was removed.
  last   bigint not null default 0,
  -- Where the source looks next, in its own form.
  cursor jsonb,
  constraint flow_log_pkey primary key (flow, source),
  constraint flow_log_is_counted check (last >= 0)
);

create table fencepost.flow_log_entry (
  flow   text collate "C" not null,
  source text collate "C" not null,
  number bigint not null,
  -- By which the source recognises an entry that comes twice; null where it cannot.
  id     text collate "C",
  entry  jsonb not null,
  constraint flow_log_entry_pkey primary key (flow, source, number),
  constraint flow_log_entry_once unique (flow, source, id)
);
