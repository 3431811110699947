-- A database as a year of work leaves it, straight into its tables: the functions would take an hour, and the pages see no
-- difference. One job in fifty waits, one in a thousand runs or is dead, one order in a hundred lives.

insert into fencepost.job (queue, kind, lane, payload, tries_max, lease, submitted_at)
select 'queue-' || n % 20, 'kind-' || n % 50, 1, jsonb_build_object('n', n, 'text', repeat('x', 100)), 5, '60 s',
       clock_timestamp() - make_interval(secs => (current_setting('bench.jobs')::integer - n) * 86400.0 / current_setting('bench.jobs')::integer)
from generate_series(1, current_setting('bench.jobs')::integer) n;

insert into fencepost.job_waiting (job_id, queue, lane, run_at)
select j.job_id, j.queue, j.lane, j.submitted_at from fencepost.job j where j.job_id % 50 = 0;

insert into fencepost.job_running (job_id, attempt, tries, queue, lane, owner, lease, claimed_at, renewed_at, expires_at)
select j.job_id, 1, 1, j.queue, j.lane, 'worker-' || j.job_id % 40, j.lease, j.submitted_at, clock_timestamp(),
       clock_timestamp() + interval '1 hour'
from fencepost.job j where j.job_id % 1000 = 1;

insert into fencepost.job_finished (job_id, state, final_status, queue, attempt, tries, owner, claimed_at, finished_at, error)
select j.job_id, case when j.job_id % 1000 = 7 then 'dead' when j.job_id % 1000 = 8 then 'cancelled' else 'finished' end,
       case when j.job_id % 1000 = 7 then 'failed' else 'ok' end, j.queue, 1, 1, 'worker-' || j.job_id % 40,
       j.submitted_at + interval '20 ms', j.submitted_at + interval '70 ms',
       case when j.job_id % 1000 = 7 then 'Error' || j.job_id % 9 || ': it went wrong' end
from fencepost.job j where j.job_id % 50 <> 0 and j.job_id % 1000 <> 1;

insert into fencepost.lease (resource, token, owner, ttl, acquired_at, renewed_at, expires_at)
select 'signer:' || n, 1 + n % 9, 'node-' || n % 30, '1 hour', clock_timestamp(), clock_timestamp(),
       clock_timestamp() + interval '1 hour'
from generate_series(1, current_setting('bench.leases')::integer) n;

insert into fencepost.event (at, noun, subject, event, actor, token, detail)
select clock_timestamp(), 'lease', 'signer:' || 1 + n % current_setting('bench.leases')::integer, case when n % 10 = 0 then 'taken_over' else 'acquired' end,
       'node-' || n % 30, n, '{"from": "node-1", "from_token": 1}'
from generate_series(1, current_setting('bench.leases')::integer * 3) n;

insert into fencepost.refusal (at, reason, noun, subject, actor)
select clock_timestamp(), 'stale_attempt', 'job', 1 + n % current_setting('bench.jobs')::integer, 'worker-' || n % 40 from generate_series(1, current_setting('bench.leases')::integer) n;

insert into fencepost.outbox (id, channel, key, payload, ready, not_before, created_at, state)
select n, 'orders:paper', 'acct-' || n % 5000, '{}', true, clock_timestamp(), clock_timestamp(),
       case when n % 1000 = 0 then 'parked' else 'queued' end
from generate_series(1, current_setting('bench.orders')::integer) n where n % 100 = 0;

insert into fencepost.orders_order (id, idempotency_key, broker, account, symbol, request_json, request_digest, created_at,
                                    updated_at, final_status, settled_at)
select n, 'key-' || n, 'paper', 'acct-' || n % 5000, 'ABC', '{"side": "buy", "quantity": 1}', 'sha256:' || repeat('a', 64),
       clock_timestamp(), clock_timestamp(), case when n % 100 <> 0 then 'sent' end, case when n % 100 <> 0 then clock_timestamp() end
from generate_series(1, current_setting('bench.orders')::integer) n;

insert into fencepost.orders_broker (broker, rate_max, rate_min, rate_rise, burst, failures_max, open_for, rate, tokens, refilled_at)
values ('paper', 100, 1, 1, 10, 5, '1 minute', 100, 10, clock_timestamp());
