-- Accounts, which every service with users shares: what authenticates a person or a program, the role that it has in each
-- service, and the audit. No view shows any of it: only functions that the application role may call read passwords and sessions.

create table fencepost.account (
  name     text collate "C" not null,
  -- An argon2 hash. An account without one has no login by password; links, tokens and single sign-on still work.
  password text collate "C",
  made_at  timestamptz not null,
  made_by  text not null,
  -- Of an account that an identity provider has authenticated: the provider, and the name that it never reassigns.
  issuer   text collate "C",
  subject  text collate "C",
  constraint account_pkey primary key (name),
  constraint account_name_is_plain check (name ~ '^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$'),
  constraint account_issuer_goes_with_subject check ((issuer is null) = (subject is null)),
  constraint account_subject_key unique (issuer, subject)
);

-- The roles of each service, which the service's own schema inserts. A role has every right of those with a lower rank.
create table fencepost.account_service_role (
  service text collate "C" not null,
  role    text collate "C" not null,
  rank    integer not null,
  constraint account_service_role_pkey primary key (service, role),
  constraint account_service_role_rank_key unique (service, rank),
  constraint account_service_role_rank_is_positive check (rank > 0)
);

-- The role of an account in one service, and whether it is disabled there.
create table fencepost.account_role (
  service     text collate "C" not null,
  name        text collate "C" not null references fencepost.account,
  role        text collate "C" not null,
  made_at     timestamptz not null,
  made_by     text not null,
  disabled_at timestamptz,
  constraint account_role_pkey primary key (service, name),
  constraint account_role_is_known foreign key (service, role) references fencepost.account_service_role
);
create index account_role_by_name on fencepost.account_role (name);

-- Sessions, links and tokens are stored as SHA-256 digests: the tables contain nothing that can be used. Each is of one service.
create table fencepost.account_session (
  digest     bytea not null,
  service    text collate "C" not null,
  name       text collate "C" not null,
  made_at    timestamptz not null,
  seen_at    timestamptz not null,
  expires_at timestamptz not null,
  address    text not null,
  agent      text not null,
  constraint account_session_pkey primary key (digest),
  constraint account_session_has_a_role foreign key (service, name) references fencepost.account_role
);
create index account_session_by_name on fencepost.account_session (name, service);
create index account_session_by_expiry on fencepost.account_session (expires_at);

create table fencepost.account_ticket (
  digest     bytea not null,
  service    text collate "C" not null,
  name       text collate "C" not null,
  made_at    timestamptz not null,
  expires_at timestamptz not null,
  constraint account_ticket_pkey primary key (digest),
  constraint account_ticket_has_a_role foreign key (service, name) references fencepost.account_role
);

create table fencepost.account_token (
  token_id   bigint generated always as identity,
  digest     bytea not null,
  service    text collate "C" not null,
  name       text collate "C" not null,
  label      text not null,
  role       text collate "C" not null,
  made_at    timestamptz not null,
  expires_at timestamptz not null,
  used_at    timestamptz,
  revoked_at timestamptz,
  constraint account_token_pkey primary key (token_id),
  constraint account_token_digest_key unique (digest),
  constraint account_token_has_a_role foreign key (service, name) references fencepost.account_role,
  constraint account_token_role_is_known foreign key (service, role) references fencepost.account_service_role
);
create index account_token_by_name on fencepost.account_token (name, service, token_id);

-- An attempt is written before the password is checked, so that a thousand concurrent ones count as a thousand.
create table fencepost.account_attempt (
  attempt_id bigint generated always as identity,
  name       text collate "C" not null,
  address    text collate "C" not null,
  at         timestamptz not null,
  constraint account_attempt_pkey primary key (attempt_id)
);
create index account_attempt_by_time on fencepost.account_attempt (at);
create index account_attempt_by_address on fencepost.account_attempt (address, at);
create index account_attempt_by_name on fencepost.account_attempt (name, at);

-- Written before an action with the outcome 'begun', and settled after it.
create table fencepost.account_audit (
  audit_id bigint generated always as identity,
  at       timestamptz not null,
  service  text collate "C" not null,
  actor    text collate "C" not null,
  role     text collate "C" not null,
  action   text collate "C" not null,
  subject  text collate "C" not null,
  outcome  text collate "C" not null,
  detail   jsonb not null,
  address  text not null,
  constraint account_audit_pkey primary key (audit_id)
);
create index account_audit_by_actor on fencepost.account_audit (actor, audit_id);

-- The key that signs cookies. The database makes it, so that every server on it has the same one.
create table fencepost.account_key (
  only_row boolean not null default true,
  key      bytea not null,
  constraint account_key_pkey primary key (only_row),
  constraint account_key_has_one_row check (only_row)
);
insert into fencepost.account_key (key)
values (sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())));
