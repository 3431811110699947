-- One row for each resource, kept for ever: a deleted row would let its token start again at 1.
create table fencepost.lease (
  resource    text collate "C" not null,
  token       bigint not null,
  owner       text,
  ttl         interval not null,
  acquired_at timestamptz not null,
  renewed_at  timestamptz not null,
  expires_at  timestamptz not null,
  constraint lease_pkey primary key (resource),
  -- The fence lock: FOR KEY SHARE conflicts with an update only if the update changes a unique key. Because
  -- the token is part of one, a takeover waits for every fenced transaction, and a renewal does not.
  constraint lease_fence_key unique (resource, token),
  constraint lease_token_is_positive check (token > 0),
  constraint lease_ends_after_it_began check (expires_at >= acquired_at)
) with (fillfactor = 50);
