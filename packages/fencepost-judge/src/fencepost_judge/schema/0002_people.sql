-- Who may use the judge: users with one role each, their tokens, and how fast they may submit.

create table fencepost.judge_user (
  name        text collate "C" not null,
  role        text collate "C" not null,
  made_at     timestamptz not null,
  made_by     text not null,
  disabled_at timestamptz,
  constraint judge_user_pkey primary key (name),
  constraint judge_user_role_is_known check (role in ('contestant', 'jury', 'admin')),
  constraint judge_user_name_is_plain check (name ~ '^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$')
);

-- A token is kept as its SHA-256 digest: who reads the table can use none of them.
create table fencepost.judge_token (
  token_id   bigint generated always as identity,
  digest     bytea not null,
  name       text collate "C" not null references fencepost.judge_user,
  label      text not null,
  made_at    timestamptz not null,
  expires_at timestamptz not null,
  used_at    timestamptz,
  revoked_at timestamptz,
  constraint judge_token_pkey primary key (token_id),
  constraint judge_token_digest_key unique (digest)
);
create index judge_token_by_name on fencepost.judge_token (name, token_id);

-- What a user may still submit: a bucket that fills by the clock.
create table fencepost.judge_allowance (
  name        text collate "C" not null references fencepost.judge_user,
  tokens      double precision not null,
  refilled_at timestamptz not null,
  constraint judge_allowance_pkey primary key (name),
  constraint judge_allowance_is_not_overdrawn check (tokens >= 0)
);
