-- A database as after a year of work, written straight into its tables: the functions would take an hour, and the pages see no
-- difference. One job in fifty waits, one in a thousand runs or is dead, one order in a hundred is open.

insert into fencepost.job (queue, kind, priority, payload, tries_max, lease, submitted_at)
select 'queue-' || n % 20, 'kind-' || n % 50, 1, jsonb_build_object('n', n, 'text', repeat('x', 100)), 5, '60 s',
       clock_timestamp() - make_interval(secs => (current_setting('bench.jobs')::integer - n) * 86400.0 / current_setting('bench.jobs')::integer)
from generate_series(1, current_setting('bench.jobs')::integer) n;

insert into fencepost.job_waiting (job_id, queue, priority, run_at)
select j.job_id, j.queue, j.priority, j.submitted_at from fencepost.job j where j.job_id % 50 = 0;

insert into fencepost.job_running (job_id, attempt, tries, queue, priority, owner, lease, claimed_at, renewed_at, expires_at)
select j.job_id, 1, 1, j.queue, j.priority, 'worker-' || j.job_id % 40, j.lease, j.submitted_at, clock_timestamp(),
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
select n, 'key-' || n, 'paper', 'acct-' || n % 5000, 'ABC', '{"intent": "BUY", "qty": "1", "symbol": "ABC"}', 'sha256:' || repeat('a', 64),
       clock_timestamp(), clock_timestamp(), case when n % 100 <> 0 then 'sent' end, case when n % 100 <> 0 then clock_timestamp() end
from generate_series(1, current_setting('bench.orders')::integer) n;

insert into fencepost.orders_broker (broker, rate_max, rate_min, rate_rise, burst, failures_max, open_for, rate, tokens, refilled_at)
values ('paper', 100, 1, 1, 10, 5, '1 minute', 100, 10, clock_timestamp());

-- A tenth of the leases are signers, each with two hundred consecutive nonces and as many transactions; one in a hundred recovers.
insert into fencepost.nonce_signer (chain_id, signer, next_nonce, fencing_token, created_at, updated_at, recovering_since)
select 1, 'signer-' || lpad(n::text, 5, '0'), 200, 1, clock_timestamp(), clock_timestamp(), case when n % 100 = 0 then clock_timestamp() end
from generate_series(1, current_setting('bench.leases')::integer / 10) n;

insert into fencepost.nonce_allocation (signer_id, nonce, status, caller_signs, hold, request_id, locked_until, fencing_token, tx_hash,
                                        created_at, updated_at)
select s.signer_id, n, case when n > 190 then 'HELD' else 'CONSUMED' end, true, 1, 'request-' || s.signer_id || '-' || n,
       clock_timestamp() + interval '1 hour', 1, '0x' || md5(s.signer_id || '-' || n), clock_timestamp(), clock_timestamp()
from fencepost.nonce_signer s, generate_series(0, 199) n;

insert into fencepost.nonce_transaction (signer_id, idempotency_key, digest, state, recipient, value, data, gas_limit, created_at, updated_at,
                                         in_doubt_since)
select s.signer_id, 'tx-' || s.signer_id || '-' || n, 'digest', 'QUEUED', '0x' || repeat('cd', 20), n, '', 21000,
       clock_timestamp() - make_interval(secs => n), clock_timestamp(), case when n = 7 then clock_timestamp() end
from fencepost.nonce_signer s, generate_series(0, 199) n;

insert into fencepost.player (player_id, version, bumped_by, created_at, updated_at)
select 'player-' || n, 1, pg_current_xact_id(), clock_timestamp(), clock_timestamp()
from generate_series(1, current_setting('bench.orders')::integer) n;
insert into fencepost.player_stack (player_id, item, count)
select p.player_id, 'item-' || n, n from fencepost.player p, generate_series(1, 5) n;

-- Twenty flows of sixty-four tasks, with twenty checkpoints each; one task in sixty-four fails.
insert into fencepost.flow (name, plan, registered_at, registered_by)
select 'flow-' || lpad(n::text, 2, '0'), '{"nodes": [{"name": "values", "kind": "source", "section": "head"}, {"name": "rows", "kind": "sink",
  "section": "body"}], "edges": [[0, 1]]}', clock_timestamp(), 'worker-1' from generate_series(1, 20) n;
insert into fencepost.lease (resource, token, owner, ttl, acquired_at, renewed_at, expires_at)
select 'flow:' || f.name || '/part/values:' || n, 1, 'worker-' || n % 4, '1 hour', clock_timestamp(), clock_timestamp(),
       clock_timestamp() + interval '1 hour' from fencepost.flow f, generate_series(0, 63) n;
insert into fencepost.flow_activity (resource, token, reported_at, activity)
select l.resource, l.token, clock_timestamp(), case when l.resource like '%:63' then '{"error": "ConnectionError: away", "failures": 3}'::jsonb
  else '{"edges": {"0-1": 100}, "lag": {"values:0": 7}, "busy": 0.1, "blocked": null, "reads": ["values"]}' end
from fencepost.lease l where l.resource like 'flow:%';
insert into fencepost.checkpoint (resource, number, token, status, frontier, state, begun_at, stored_at, committed_at)
select l.resource, n, 1, 'committed', '{"values:0": {"at": 7, "watermark": null, "ended": false, "count": 7}}', repeat('s', 1000)::bytea,
       clock_timestamp(), clock_timestamp(), clock_timestamp()
from fencepost.lease l, generate_series(1, 20) n where l.resource like 'flow:%';
insert into fencepost.flow_dead (flow, step, resource, record, preview, error, died_at)
select f.name, 'map-1', 'flow:' || f.name || '/part/values:0', '', 'x', 'ValueError: no number', clock_timestamp()
from fencepost.flow f, generate_series(1, current_setting('bench.orders')::integer / 20) n;
