-- Messages that are due, with ids from `first` on.
insert into fencepost.outbox (id, channel, payload, ready, not_before, created_at)
select i, 'bench', '{"n": 1}', true, clock_timestamp(), clock_timestamp()
from generate_series(%(first)s::bigint, %(first)s::bigint + %(count)s::bigint - 1) i
