-- The lists beside jobs, orders and workflows: refusals, settled messages, batches, schedules, webhooks, accounts, the audit, and
-- the history of one player.

insert into fencepost.refusal (at, reason, noun, subject, actor)
select clock_timestamp() - make_interval(secs => (current_setting('bench.jobs')::integer - n) * 0.05),
       (array['stale_attempt', 'already_finished'])[1 + n % 2], 'job', 'subject-' || n % 1000, 'worker-' || n % 40
from generate_series(1, current_setting('bench.jobs')::integer) n;

select count(fencepost.schedule_declare('schedule-' || n, '0 3 * * *', 'UTC', 'once', '1 minute', clock_timestamp() + interval '1 day', 'queue-1', 'kind-1',
                                        '{}', 1, 5, '60 s', null, null, null, '{}'))
from generate_series(1, current_setting('bench.leases')::integer / 2) n;

insert into fencepost.job_batch (name, size, made_at, completed_at)
select 'batch-' || n % 100, 10, clock_timestamp(), case when n % 100 <> 0 then clock_timestamp() end
from generate_series(1, current_setting('bench.orders')::integer) n;
insert into fencepost.job_batch_part (batch_id, part, remaining, finished)
select b.batch_id, 0, case when b.completed_at is null then 3 else 0 end, 7 from fencepost.job_batch b;
insert into fencepost.job_batch_member (job_id, batch_id, part)
select j.job_id, (select max(batch_id) from fencepost.job_batch), 0 from fencepost.job j
where j.job_id <= current_setting('bench.orders')::integer;

insert into fencepost.webhook (name, url, made_at, made_by)
select 'hook-' || n, 'https://hook-' || n || '.example/in', clock_timestamp(), 'anna' from generate_series(1, 500) n;

insert into fencepost.account (name, made_at, made_by)
select 'user-' || n, clock_timestamp(), 'bench' from generate_series(1, current_setting('bench.leases')::integer) n;
insert into fencepost.account_role (service, name, role, made_at, made_by)
select 'console', 'user-' || n, 'viewer', clock_timestamp(), 'bench' from generate_series(1, current_setting('bench.leases')::integer) n;
insert into fencepost.account_audit (at, service, actor, role, action, subject, outcome, detail, address)
select clock_timestamp(), 'console', 'user-' || n % 100, 'operator', 'job.cancel', n::text, 'done', '{}', '10.0.0.1'
from generate_series(1, current_setting('bench.jobs')::integer) n;

insert into fencepost.player_audit (player_id, version, at, method, request_id, source, actor, changes)
select 'player-77', n, clock_timestamp(), case when n % 2 = 0 then 'grant' else 'draw' end, 'r-' || n, 'bench', 'anna', '{"gold": 1}'
from generate_series(1, current_setting('bench.orders')::integer) n;
update fencepost.player set version = current_setting('bench.orders')::integer where player_id = 'player-77';
