-- Names: the rows that remember a request are called idempotency keys, as users know them.
alter table fencepost.marker rename to idempotency_key;
alter table fencepost.idempotency_key rename constraint marker_pkey to idempotency_key_pkey;
alter index fencepost.marker_by_age rename to idempotency_key_by_age;
alter index fencepost.marker_by_expiry rename to idempotency_key_by_expiry;
alter table fencepost.marker_ring rename to idempotency_ring;
alter table fencepost.idempotency_ring rename constraint marker_ring_pkey to idempotency_ring_pkey;
do $$
begin
  for n in 0..7 loop
    execute format('alter table fencepost.marker_ring_%s rename to idempotency_ring_%s', n, n);
    execute format('alter index fencepost.marker_ring_%s_pkey rename to idempotency_ring_%s_pkey', n, n);
  end loop;
end $$;
alter table fencepost.marker_forgotten rename to idempotency_forgotten;
alter table fencepost.idempotency_forgotten rename constraint marker_forgotten_has_one_row to idempotency_forgotten_has_one_row;
drop view if exists fencepost.markers;
drop function if exists fencepost._marker_lock(text, text);
drop function if exists fencepost._marker_check(text, text, text, text);
drop function if exists fencepost._marker_answer(text, text, boolean);
drop function if exists fencepost._marker_response(json, jsonb);
drop function if exists fencepost.marker_clean(interval, integer);
drop function if exists fencepost.marker_lag(interval);
drop function if exists fencepost.marker_ring_clean();
drop function if exists fencepost.job_driven(text, integer, interval, timestamptz, bigint, integer);

-- Names: what the reasons of refusals mean, in plain words.
update fencepost.refusal_reason r set meaning = n.meaning, remedy = n.remedy
from (values
  ('stale_attempt', 'A later attempt exists: this holder is a zombie.', 'Stop. The result of this attempt is discarded.'),
  ('already_finished', 'It is already finished.', 'Read the stored result instead of writing another.'),
  ('not_running', 'The job waits; no worker holds it.', 'Claim it before you write.'),
  ('lease_expired', 'The lease expired before the write.', 'Renew more often, or take a longer lease.'),
  ('not_owner', 'Another owner, or a later acquisition, holds it.',
   'Wait for its expiry, or contact the owner that the row names.'),
  ('not_found', 'It does not exist: it was never created, or it was pruned.',
   'Check the id; for old entries check the retention.'),
  ('mismatch', 'The key was used with another content, or the state is not the one that the caller saw.',
   'Use a new key for a new request, or read the state again.')
) n (reason, meaning, remedy) where n.reason = r.reason;
