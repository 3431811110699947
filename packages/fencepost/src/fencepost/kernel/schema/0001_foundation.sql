-- The ground that every noun stands on: reasons, refusals, events, sleepers and the token floor.
--
-- State lives in tables that only the functions of this schema may write. Named constraints say which
-- states cannot be stored at all.

-- One row a reason. The SQLSTATE class ZF is our own: drivers take F... for an operational error.
create table fencepost.refusal_reason (
  reason   text collate "C" primary key,
  sqlstate text collate "C" not null,
  meaning  text not null,
  remedy   text not null,
  constraint refusal_reason_sqlstate_key unique (sqlstate),
  constraint refusal_reason_sqlstate_is_ours check (sqlstate ~ '^ZF0[0-9]{2}$')
);

insert into fencepost.refusal_reason (reason, sqlstate, meaning, remedy) values
  ('stale_attempt',    'ZF001', 'A later attempt exists: this holder is a zombie.',
                                'Stop. What this holder computed belongs to nobody.'),
  ('already_finished', 'ZF002', 'The one finishing write has happened.',
                                'Read the result instead of writing another.'),
  ('not_running',      'ZF003', 'The job waits; nobody holds it.',
                                'Claim it before you write.'),
  ('lease_expired',    'ZF004', 'The lease ran out before the write.',
                                'Renew more often, or take a longer lease.'),
  ('not_owner',        'ZF005', 'Somebody else, or a later acquisition, holds it.',
                                'Wait for its expiry, or ask the owner that the row names.'),
  ('not_found',        'ZF006', 'There is no such thing: it never existed, or it was pruned.',
                                'Check the id; for old things look at the retention.'),
  ('cancelled',        'ZF007', 'An operator cancelled it.',
                                'Stop working on it; release it so that it ends as cancelled.'),
  ('duplicate',        'ZF008', 'It happened already, and no response was kept.',
                                'Read the present state. Do not repeat the effect.'),
  ('mismatch',         'ZF009', 'The key was used with another content, or the state is not the one the caller saw.',
                                'Use a new key for a new request; look at the state again.'),
  ('in_flight',        'ZF010', 'Another transaction is doing it right now.',
                                'Ask again shortly.'),
  ('too_old',          'ZF011', 'The key''s own time lies before what is remembered, or too far ahead.',
                                'Make a new key with the present time; check the caller''s clock.');

-- Counts survive the rollback that a refusal causes because nextval is never rolled back. After a crash of
-- the server a count may be up to 32 too high: that is how PostgreSQL logs sequences.
create sequence fencepost.refused_stale_attempt;
create sequence fencepost.refused_already_finished;
create sequence fencepost.refused_not_running;
create sequence fencepost.refused_lease_expired;
create sequence fencepost.refused_not_owner;
create sequence fencepost.refused_not_found;
create sequence fencepost.refused_cancelled;
create sequence fencepost.refused_duplicate;
create sequence fencepost.refused_mismatch;
create sequence fencepost.refused_in_flight;
create sequence fencepost.refused_too_old;

-- The record of single refusals: a bounded sample, written beside the counts.
create table fencepost.refusal (
  refusal_id bigint generated always as identity primary key,
  at         timestamptz not null,
  reason     text collate "C" not null references fencepost.refusal_reason,
  noun       text collate "C" not null,
  subject    text collate "C" not null,
  actor      text,
  attempted  jsonb not null default '{}',
  seen       jsonb not null default '{}'
);
create index refusal_by_subject on fencepost.refusal (noun, subject, refusal_id);
create index refusal_by_time on fencepost.refusal (at);

-- The rare transitions: acquisitions, attempts that did not finish, what operators did. The common path of a
-- job or a message writes nothing here; its own rows tell its life.
create table fencepost.event (
  event_id bigint generated always as identity primary key,
  at       timestamptz not null,
  noun     text collate "C" not null,
  subject  text collate "C" not null,
  event    text collate "C" not null,
  actor    text,
  token    bigint,
  detail   jsonb not null default '{}'
);
create index event_by_subject on fencepost.event (noun, subject, event_id);
create index event_by_time on fencepost.event (at);

-- A loop that found nothing writes its topic here before it waits. Only then does a writer pay for NOTIFY.
create table fencepost.sleeper (
  topic text collate "C" primary key,
  since timestamptz not null
);

-- After a restore from a backup the tokens handed out since are unknown: recovery lifts this floor above them.
create table fencepost.token_floor (
  only_row boolean primary key default true,
  floor    bigint not null default 0,
  constraint token_floor_has_one_row check (only_row),
  constraint token_floor_is_not_negative check (floor >= 0)
);
insert into fencepost.token_floor default values;
