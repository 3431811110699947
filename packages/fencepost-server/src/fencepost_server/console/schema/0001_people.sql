-- Who may use the console, what they carry, and what they did. No view shows any of it: passwords and sessions are
-- read by functions that only the application role may call.

create table fencepost.console_user (
  name        text collate "C" primary key,
  role        text collate "C" not null,
  -- An argon2 hash. Without one nobody logs in by password; a one-time link still works.
  password    text collate "C",
  made_at     timestamptz not null,
  made_by     text not null,
  disabled_at timestamptz,
  constraint console_user_role_is_known check (role in ('viewer', 'operator', 'admin'))
);

-- Sessions, links and tokens are kept as SHA-256 digests: who reads the table can use none of them.
create table fencepost.console_session (
  digest     bytea primary key,
  name       text collate "C" not null references fencepost.console_user,
  made_at    timestamptz not null,
  seen_at    timestamptz not null,
  expires_at timestamptz not null,
  address    text not null,
  agent      text not null
);
create index console_session_by_name on fencepost.console_session (name);
create index console_session_by_expiry on fencepost.console_session (expires_at);

create table fencepost.console_ticket (
  digest     bytea primary key,
  name       text collate "C" not null references fencepost.console_user,
  made_at    timestamptz not null,
  expires_at timestamptz not null
);

create table fencepost.console_token (
  token_id   bigint generated always as identity primary key,
  digest     bytea not null,
  name       text collate "C" not null references fencepost.console_user,
  label      text not null,
  role       text collate "C" not null,
  made_at    timestamptz not null,
  expires_at timestamptz not null,
  used_at    timestamptz,
  revoked_at timestamptz,
  constraint console_token_digest_key unique (digest),
  constraint console_token_role_is_known check (role in ('viewer', 'operator', 'admin'))
);
create index console_token_by_name on fencepost.console_token (name, token_id);

-- An attempt is written before the password is looked at, so that a thousand at once are a thousand.
create table fencepost.console_attempt (
  attempt_id bigint generated always as identity primary key,
  at         timestamptz not null,
  name       text collate "C" not null,
  address    text collate "C" not null
);
create index console_attempt_by_name on fencepost.console_attempt (name, at);
create index console_attempt_by_address on fencepost.console_attempt (address, at);
create index console_attempt_by_time on fencepost.console_attempt (at);

-- Written before an action with the outcome 'begun', and settled after it.
create table fencepost.console_audit (
  audit_id bigint generated always as identity primary key,
  at       timestamptz not null,
  actor    text collate "C" not null,
  role     text collate "C" not null,
  action   text collate "C" not null,
  subject  text collate "C" not null,
  outcome  text collate "C" not null,
  detail   jsonb not null,
  address  text not null
);
create index console_audit_by_actor on fencepost.console_audit (actor, audit_id);

-- What cookies are signed with. Made by the database, so that every console on it agrees and none invents one.
create table fencepost.console_key (
  only_row boolean primary key default true,
  key      bytea not null,
  constraint console_key_has_one_row check (only_row)
);
insert into fencepost.console_key (key)
values (sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())));
