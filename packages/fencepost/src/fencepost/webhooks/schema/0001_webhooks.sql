-- Webhooks: addresses to which messages of the outbox are delivered, with a signature. A webhook delivers the outbox
-- channel of its own name. What a service publishes under a topic is put on the channel of every webhook with the topic.

create table fencepost.webhook (
  name      text collate "C" not null,
  -- Without one, a program of the user takes the messages of the channel.
  url       text,
  made_at   timestamptz not null,
  made_by   text not null,
  paused_at timestamptz,
  constraint webhook_pkey primary key (name),
  constraint webhook_name_is_plain check (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$')
);

-- The topics that services publish; each service's own schema inserts its own.
create table fencepost.webhook_known_topic (
  topic text collate "C" not null,
  about text not null,
  constraint webhook_known_topic_pkey primary key (topic)
);

create table fencepost.webhook_topic (
  topic text collate "C" not null references fencepost.webhook_known_topic,
  name  text collate "C" not null references fencepost.webhook on delete cascade,
  constraint webhook_topic_pkey primary key (topic, name)
);
create index webhook_topic_by_name on fencepost.webhook_topic (name, topic);

-- The secrets that sign, which the database makes. Signing needs them as they are, so they cannot be stored as digests: no
-- view shows them, and only a function that the application role may call returns them. Between a rotation and its end
-- there are several.
create table fencepost.webhook_secret (
  secret_id  bigint generated always as identity,
  name       text collate "C" not null references fencepost.webhook on delete cascade,
  secret     text collate "C" not null,
  made_at    timestamptz not null,
  expires_at timestamptz,
  constraint webhook_secret_pkey primary key (secret_id)
);
create index webhook_secret_by_name on fencepost.webhook_secret (name, secret_id);
