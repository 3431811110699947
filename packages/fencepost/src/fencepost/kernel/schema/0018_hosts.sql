-- Workers and hosts that are out of service, and what others are restricted to. A target is a host (HOST), the workers of one
-- name on it (NAME@HOST), or one process (NAME@HOST:PID:BOOT), as the owners of leases are named.

-- draining: a process that claims nothing more. disabled: claims nothing until it is enabled, also after a restart.
create table fencepost.worker_hold (
  target  text collate "C" not null,
  state   text not null,
  reason  text not null,
  actor   text not null,
  held_at timestamptz not null,
  constraint worker_hold_pkey primary key (target),
  constraint worker_hold_state_is_known check (state in ('draining', 'disabled'))
);

-- Null: not restricted in this respect.
create table fencepost.worker_pin (
  target    text collate "C" not null,
  queues    text[],
  kinds     text[],
  abilities text[],
  reason    text not null,
  actor     text not null,
  pinned_at timestamptz not null,
  constraint worker_pin_pkey primary key (target),
  constraint worker_pin_restricts check (queues is not null or kinds is not null or abilities is not null)
);

-- It is told which worker claims now.
drop function if exists fencepost._job_claim_room(text, integer, timestamptz);
