-- What every noun uses: the reasons of refusals, refusals, events, sleepers and the token floor.
--
-- State lives in tables that only the functions of this schema may write. Named constraints say which
-- states cannot be stored at all.

-- One row for each reason. The SQLSTATE class ZF is our own: drivers take F... for an operational error.
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
                                'Stop. The result of this attempt is discarded.'),
  ('already_finished', 'ZF002', 'It is already finished.',
                                'Read the stored result instead of writing another.'),
  ('not_running',      'ZF003', 'The job waits; no worker holds it.',
                                'Claim it before you write.'),
  ('lease_expired',    'ZF004', 'The lease expired before the write.',
                                'Renew more often, or take a longer lease.'),
  ('not_owner',        'ZF005', 'Another owner, or a later acquisition, holds it.',
                                'Wait for its expiry, or contact the owner that the row names.'),
  ('not_found',        'ZF006', 'It does not exist: it was never created, or it was pruned.',
                                'Check the id; for old entries check the retention.'),
  ('cancelled',        'ZF007', 'An operator cancelled it.',
                                'Stop working on it; release it so that it ends as cancelled.'),
  ('duplicate',        'ZF008', 'It happened already, and no response was kept.',
                                'Read the present state. Do not repeat the effect.'),
  ('mismatch',         'ZF009', 'The key was used with another content, or the state is not the one that the caller saw.',
                                'Use a new key for a new request, or read the state again.'),
  ('in_flight',        'ZF010', 'Another transaction is doing it right now.',
                                'Ask again shortly.'),
  ('too_old',          'ZF011', 'The key''s own time lies before what is remembered, or too far ahead.',
                                'Make a new key with the present time; check the caller''s clock.'),
  ('rewound',          'ZF012', 'The database lost commits that clients were answered from: tokens may be issued twice.',
                                'Run `fencepost recover`, or set DATABASE_RECOVER to auto.');

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
create sequence fencepost.refused_rewound;

-- The record of single refusals: a bounded sample, written beside the counts. A dead job keeps its history until the job itself
-- is pruned, however old that is. What pruning has met and spared leaves the index that pruning reads, so that the next tick does
-- not meet it again; the second index finds it when the job is pruned.
create table fencepost.refusal (
  refusal_id bigint generated always as identity primary key,
  at         timestamptz not null,
  reason     text collate "C" not null references fencepost.refusal_reason,
  noun       text collate "C" not null,
  subject    text collate "C" not null,
  actor      text,
  attempted  jsonb not null default '{}',
  seen       jsonb not null default '{}',
  spared     boolean not null default false
);
create index refusal_by_subject on fencepost.refusal (noun, subject, refusal_id);
create index refusal_by_age on fencepost.refusal (at) where not spared;
create index refusal_spared on fencepost.refusal (noun, subject) where spared;

-- The rare transitions: acquisitions, attempts that did not finish, what operators did. The common path of a
-- job or a message writes nothing here; its own rows tell its life. Spared as refusals are.
create table fencepost.event (
  event_id bigint generated always as identity primary key,
  at       timestamptz not null,
  noun     text collate "C" not null,
  subject  text collate "C" not null,
  event    text collate "C" not null,
  actor    text,
  token    bigint,
  detail   jsonb not null default '{}',
  spared   boolean not null default false
);
create index event_by_subject on fencepost.event (noun, subject, event_id);
create index event_by_age on fencepost.event (at) where not spared;
create index event_spared on fencepost.event (noun, subject) where spared;

-- A loop that found nothing writes its topic here before it waits. Only then does a writer pay for NOTIFY.
create table fencepost.sleeper (
  topic text collate "C" primary key,
  since timestamptz not null
);

-- After a restore from a backup the tokens handed out since are unknown: recovery raises this floor above them.
create table fencepost.token_floor (
  only_row boolean primary key default true,
  floor    bigint not null default 0,
  constraint token_floor_has_one_row check (only_row),
  constraint token_floor_is_not_negative check (floor >= 0)
);
insert into fencepost.token_floor default values;

-- What each component's functions and the grants were made from, so that a migration makes none again that is there already.
create table fencepost.schema_digest (
  component  text not null,
  digest     text not null,
  applied_at timestamptz not null default clock_timestamp(),
  constraint schema_digest_pkey primary key (component)
);
