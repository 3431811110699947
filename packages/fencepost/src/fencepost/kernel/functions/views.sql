-- The readable state. The application and the console read state through these views only.

create or replace view fencepost.jobs as
  select j.job_id, j.queue, j.kind, j.priority, s.state, s.final_status, s.attempt, s.tries, j.tries_max, s.owner, s.run_at,
         s.claimed_at, s.expires_at, s.finished_at, s.cancel_requested_at, s.progress, s.result, s.error, j.payload, j.headers,
         j.lease, j.unique_key, j.concurrency_key, j.concurrency_limit, j.submitted_at
  from fencepost.job j
  cross join lateral (
    select case when w.dispatched_at is null then 'pending' else 'dispatched' end as state, null::text as final_status,
           w.attempt, w.tries, null::text as owner, w.run_at, null::timestamptz as claimed_at, null::timestamptz as expires_at,
           null::timestamptz as finished_at, null::timestamptz as cancel_requested_at, null::jsonb as progress,
           null::jsonb as result, w.last_error as error
    from fencepost.job_waiting w where w.job_id = j.job_id
    union all
    select 'running', null, r.attempt, r.tries, r.owner, null, r.claimed_at, r.expires_at, null, r.cancel_requested_at,
           r.progress, null, null
    from fencepost.job_running r where r.job_id = j.job_id
    union all
    select f.state, f.final_status, f.attempt, f.tries, f.owner, null, f.claimed_at, null, f.finished_at, null, null, f.result,
           f.error
    from fencepost.job_finished f where f.job_id = j.job_id
  ) s;

create or replace view fencepost.queue_status as
  select q.queue,
         coalesce(w.pending, 0) as pending, coalesce(w.dispatched, 0) as dispatched, coalesce(r.running, 0) as running,
         coalesce(d.dead, 0) as dead,
         extract(epoch from fencepost.clock() - w.oldest)::double precision as oldest_waiting_seconds,
         exists (select 1 from fencepost.job_queue p where p.queue = q.queue and p.paused_at is not null) as paused
  from (select queue from fencepost.job_queue union select queue from fencepost.job_waiting
        union select queue from fencepost.job_running union select queue from fencepost.job_finished where state = 'dead') q
  left join (select queue, count(*) filter (where dispatched_at is null) as pending,
                    count(*) filter (where dispatched_at is not null) as dispatched, min(run_at) as oldest
             from fencepost.job_waiting group by queue) w on w.queue = q.queue
  left join (select queue, count(*) as running from fencepost.job_running group by queue) r on r.queue = q.queue
  left join (select queue, count(*) as dead from fencepost.job_finished where state = 'dead' group by queue) d on d.queue = q.queue;

create or replace view fencepost.lease_status as
  select l.resource, l.owner, l.token, l.ttl, l.acquired_at, l.renewed_at, l.expires_at,
         l.owner is not null and l.expires_at > fencepost.clock() as held
  from fencepost.lease l;

create or replace view fencepost.outbox_status as
  select o.channel, count(*) filter (where o.state = 'queued') as queued, count(*) filter (where o.state = 'sending') as sending,
         count(*) filter (where o.state = 'failed') as failed, count(*) filter (where o.state = 'unknown') as unknown,
         count(*) filter (where o.state = 'parked') as parked,
         extract(epoch from fencepost.clock() - min(o.created_at))::double precision as lag_seconds
  from fencepost.outbox o group by o.channel;

create or replace view fencepost.outbox_messages as
  select o.id, o.channel, o.key, o.state, o.ready, o.payload, o.headers, o.created_at, o.not_before, o.attempts, o.take, o.owner,
         o.taken_until, null::timestamptz as settled_at, null::jsonb as result, o.last_error
  from fencepost.outbox o
  union all
  select s.id, s.channel, s.key, s.state, false, s.payload, s.headers, s.created_at, null, s.attempts, s.take, s.owner, null,
         s.settled_at, s.result, s.last_error
  from fencepost.outbox_settled s;

create or replace view fencepost.idempotency_keys as
  select m.scope, m.key, m.digest, coalesce(m.response_json::jsonb, m.response) as response, m.claimed_at from fencepost.idempotency_key m
  union all
  select r.scope, r.key, r.digest, coalesce(r.response_json::jsonb, r.response), r.claimed_at from fencepost.idempotency_ring r;

create or replace view fencepost.checkpoints as
  select c.resource, c.number, c.token, c.status, c.whole, c.frontier, octet_length(c.state) as state_bytes, c.handles,
         c.begun_at, c.stored_at, c.committed_at
  from fencepost.checkpoint c;

create or replace view fencepost.refusals as
  select r.refusal_id, r.at, r.reason, r.noun, r.subject, r.actor, r.attempted, r.seen from fencepost.refusal r;

create or replace view fencepost.events as
  select e.event_id, e.at, e.noun, e.subject, e.event, e.actor, e.token, e.detail from fencepost.event e;

create or replace view fencepost.refusal_status as
  select r.reason, r.sqlstate, c.refused, r.meaning, r.remedy
  from fencepost.refusal_reason r join fencepost.refusal_counts() c on c.reason = r.reason;

create or replace view fencepost.schema_versions as
  select m.component, m.version, m.name, m.applied_at from fencepost.migration m;

create or replace view fencepost.schema_digests as
  select d.component, d.digest, d.applied_at from fencepost.schema_digest d;
