-- Dead letters of sinks: what a service rejected, with the body that it got and what it answered. And what stops a task.
alter table fencepost.flow_dead
  add column body   bytea,
  add column answer text;

-- These have other arguments or answers now.
drop function if exists fencepost.flow_bury(text, text, text, bigint, bytea[], text[], text[]);
drop function if exists fencepost.flow_failing(text, interval);
