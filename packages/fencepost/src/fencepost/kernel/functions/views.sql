-- The readable state. The application and the console read state through these views only.

create or replace view fencepost.jobs as
  select j.job_id, j.queue, j.kind, j.priority, s.state, s.final_status, s.attempt, s.tries, j.tries_max, s.owner, s.run_at,
         s.claimed_at, s.expires_at, s.finished_at, s.cancel_requested_at, s.progress, s.result, s.error, j.payload, j.headers,
         j.lease, j.unique_key, j.concurrency_key, j.concurrency_limit, j.submitted_at,
         array(select substr(l.label, 5) from fencepost.job_label l where l.job_id = j.job_id and l.label like 'tag:%' order by 1) as tags
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
         -- A job that is due later does not wait yet.
         case when w.oldest is not null
              then greatest(0, extract(epoch from fencepost.clock() - w.oldest))::double precision end as oldest_waiting_seconds,
         exists (select 1 from fencepost.job_queue p where p.queue = q.queue and p.paused_at is not null) as paused,
         coalesce(w.due, 0) as due
  from (select queue from fencepost.job_queue union select queue from fencepost.job_waiting
        union select queue from fencepost.job_running union select queue from fencepost.job_finished where state = 'dead') q
  left join (select queue, count(*) filter (where dispatched_at is null) as pending,
                    count(*) filter (where dispatched_at is not null) as dispatched, min(run_at) as oldest,
                    count(*) filter (where dispatched_at is null and run_at <= fencepost.clock()) as due
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
  select m.scope, m.key, m.digest, m.response::jsonb as response, m.claimed_at from fencepost.idempotency_key m
  union all
  select r.scope, r.key, r.digest, r.response::jsonb, r.claimed_at from fencepost.idempotency_ring r;

create or replace view fencepost.checkpoints as
  select c.resource, c.number, c.token, c.status, c.whole, c.frontier, octet_length(c.state) as state_bytes, c.handles,
         c.begun_at, c.stored_at, c.committed_at
  from fencepost.checkpoint c;

create or replace view fencepost.refusals as
  select r.refusal_id, r.at, r.reason, r.noun, r.subject, r.actor, r.attempted, r.seen,
         fencepost.refusal_kind(r.reason, r.attempted) as kind
  from fencepost.refusal r;

create or replace view fencepost.events as
  select e.event_id, e.at, e.noun, e.subject, e.event, e.actor, e.token, e.detail from fencepost.event e;

create or replace view fencepost.refusal_status as
  select r.reason, r.sqlstate, c.refused, r.meaning, r.remedy
  from fencepost.refusal_reason r join fencepost.refusal_counts() c on c.reason = r.reason;

create or replace view fencepost.schema_versions as
  select m.component, m.version, m.name, m.applied_at from fencepost.migration m;

create or replace view fencepost.schema_digests as
  select d.component, d.digest, d.applied_at from fencepost.schema_digest d;

-- The live workers and what they serve.
create or replace view fencepost.job_workers as
  select w.resource, l.owner, l.acquired_at as since, l.expires_at, w.queues, w.serves
  from fencepost.job_worker w join fencepost.lease l on l.resource = w.resource and l.token = w.token
  where l.owner is not null and l.expires_at > fencepost.clock();

-- Due work that no live worker takes, one row for each queue, kind of need, or schedule, with a sentence for people.
-- A worker that is out of service takes none, a pinned one what its pin leaves (job_worker.sql):
--
--   no_worker          no live worker serves the queue
--   unknown_kind       workers serve the queue, none has a handler for the kind
--   unknown_arguments  a worker has one, none knows all arguments; missing has what the nearest lacks
--   unmet_needs        the same for the abilities that the job needs
--   schedule           a schedule fires a kind that no worker of its queue has
create or replace view fencepost.unserved_work as
  with every_worker as materialized (
    select w.queues, fencepost.worker_serves(w.owner, w.serves) as serves,
           exists (select 1 from fencepost.worker_standing(w.owner)) as is_held
    from fencepost.job_workers w
  ), workers as materialized (
    select array(select q from unnest(w.queues) q where w.serves -> 'queues' is null or w.serves -> 'queues' ? q) as queues, w.serves
    from every_worker w where not w.is_held
  ),
  waiting as (
    select w.queue, w.need_id, count(*) as waiting, min(w.run_at) as oldest from fencepost.job_waiting w
    where w.run_at <= fencepost.clock() group by w.queue, w.need_id
  ), found as (
    select 'no_worker' as reason, w.queue, null::text as kind, null::text as schedule, '{}'::text[] as missing,
           sum(w.waiting)::bigint as waiting, min(w.oldest) as oldest
    from waiting w where not exists (select 1 from workers k where w.queue = any (k.queues)) group by w.queue
    union all
    select case when m.missing is null then 'unknown_kind' when m.missing <@ n.abilities then 'unmet_needs'
                else 'unknown_arguments' end,
           w.queue, n.kind, null, coalesce(m.missing, '{}'), w.waiting, w.oldest
    from waiting w join fencepost.job_need n on n.need_id = w.need_id
    left join lateral (
      select l.missing from workers k cross join lateral (
        select array(select a from unnest(n.arguments) a
                     where k.serves -> 'kinds' ->> n.kind <> '*' and a <> all (string_to_array(k.serves -> 'kinds' ->> n.kind, ' '))
                     union all
                     select b from unnest(n.abilities) b where b <> all (string_to_array(coalesce(k.serves ->> 'offers', ''), ' '))) as missing) l
      where w.queue = any (k.queues) and k.serves -> 'kinds' ? n.kind
      order by cardinality(l.missing), l.missing limit 1) m on true
    where exists (select 1 from workers k where w.queue = any (k.queues))
      and (m.missing is null or m.missing <> '{}')
    union all
    select 'schedule', s.queue, s.kind, s.name, '{}', 0, null from fencepost.job_schedule s
    where s.paused_at is null and s.retired_at is null
      and not exists (select 1 from workers k where s.queue = any (k.queues) and k.serves -> 'kinds' ? s.kind)
  ), told as (
    select f.*, case f.reason
        when 'no_worker' then 'no worker serves it' || coalesce((
          select format('; %s out of service', count(*)) from every_worker k where k.is_held and f.queue = any (k.queues)
          having count(*) > 0), '')
        when 'unknown_kind' then format('no worker has a handler for kind %s', f.kind)
        when 'unknown_arguments' then
          format('kind %s waits for workers that know argument %s', f.kind, array_to_string(f.missing, ', '))
        when 'unmet_needs' then format('kind %s waits for workers that offer %s', f.kind, array_to_string(f.missing, ', '))
        else format('fires %s, a kind that no worker of queue %s has', f.kind, f.queue) end as problem
    from found f
  )
  select t.reason, t.queue, t.kind, t.schedule, t.missing, t.waiting,
         extract(epoch from fencepost.clock() - t.oldest)::double precision as oldest_seconds, t.problem,
         case when t.schedule is not null then format('schedule %s %s', t.schedule, t.problem)
              else format('queue %s: %s waiting, %s', t.queue, t.waiting, t.problem) end as message
  from told t;
