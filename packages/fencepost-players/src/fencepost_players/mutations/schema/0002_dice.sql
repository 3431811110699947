-- The dice of a request that failed and will be sent again: the repeat throws the same ones. Kept no longer than its marker would be,
-- so that an id which is used again after the retention is a new request with new dice.
create table fencepost.mutation_dice (
  scope      text collate "C" not null,
  key        text collate "C" not null,
  digest     text collate "C" not null,
  seed       text collate "C" not null,
  expires_at timestamptz not null,
  constraint mutation_dice_pkey primary key (scope, key, digest)
);
create index mutation_dice_by_expiry on fencepost.mutation_dice (expires_at);

-- It answers the stored text of a response now, which jsonb is not.
drop function if exists fencepost._mutation_known(text, text, text);
