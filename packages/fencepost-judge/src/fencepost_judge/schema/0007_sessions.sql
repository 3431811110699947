-- How people come to the judge's pages: passwords, sessions, and the attempts at them. No view shows any of it.

-- An argon2 hash. Without one a user logs in with a token.
alter table fencepost.judge_user add column password text collate "C";

-- A session is kept as its SHA-256 digest: who reads the table can use none of them.
create table fencepost.judge_session (
  digest     bytea not null,
  name       text collate "C" not null references fencepost.judge_user,
  made_at    timestamptz not null,
  seen_at    timestamptz not null,
  expires_at timestamptz not null,
  constraint judge_session_pkey primary key (digest)
);
create index judge_session_by_name on fencepost.judge_session (name);
create index judge_session_by_expiry on fencepost.judge_session (expires_at);

-- An attempt is written before the password is looked at, so that a thousand at once are a thousand.
create table fencepost.judge_attempt (
  attempt_id bigint generated always as identity,
  at         timestamptz not null,
  name       text collate "C" not null,
  address    text collate "C" not null,
  constraint judge_attempt_pkey primary key (attempt_id)
);
create index judge_attempt_by_name on fencepost.judge_attempt (name, at);
create index judge_attempt_by_address on fencepost.judge_attempt (address, at);
create index judge_attempt_by_time on fencepost.judge_attempt (at);

-- What cookies are signed with. Made by the database, so that every server on it agrees and none invents one.
create table fencepost.judge_key (
  only_row boolean not null default true,
  key      bytea not null,
  constraint judge_key_pkey primary key (only_row),
  constraint judge_key_has_one_row check (only_row)
);
insert into fencepost.judge_key (key)
values (sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())));
