-- A response is kept as the text that it came as, so that a repeat is answered with the same bytes: jsonb sorts the keys of an
-- object and rewrites numbers. Rows of the versions before have theirs in the column response.
alter table fencepost.marker add column response_json json;
alter table fencepost.marker_ring add column response_json json;

-- A marker with a retention of its own says when it may go; the others go by their age. Each is in one of the two indexes.
alter table fencepost.marker add column expires_at timestamptz;
drop index fencepost.marker_by_age;
create index marker_by_age on fencepost.marker (claimed_at) where expires_at is null;
create index marker_by_expiry on fencepost.marker (expires_at) where expires_at is not null;

-- The ring of time-ordered keys covers a day: eight slots of six hours of key time instead of fifteen minutes. What is there
-- moves to its new slot. Keys from before the last slot that was emptied stay refused: their markers are gone.
alter table fencepost.marker_forgotten add column before_millis bigint not null default 0;
update fencepost.marker_forgotten
set before_millis = (slice + 1) * 900000, slice = greatest(0, (slice + 1) / 24 - 1) where slice > 0;
do $$
begin
  -- On a new database there is nothing to move, and no function yet that reads a key's time.
  if exists (select from fencepost.marker_ring) then
    with moved as (
      delete from fencepost.marker_ring r returning r.scope, r.key, r.digest, r.response, r.claimed_by, r.claimed_at
    )
    insert into fencepost.marker_ring (slot, scope, key, digest, response, claimed_by, claimed_at)
    select fencepost._key_millis(m.key) / 21600000 % 8, m.scope, m.key, m.digest, m.response, m.claimed_by, m.claimed_at
    from moved m;
  end if;
end $$;

-- Their arguments or answers are others now.
drop function if exists fencepost._claim_try(text, text, text, jsonb);
drop function if exists fencepost._marker_check(text, text, text, jsonb);
drop function if exists fencepost._marker_answer(text, text, jsonb);
