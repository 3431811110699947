-- The history of one subject: every transition and every recorded refusal, oldest first.
--
-- A function _explain_NOUN(name) supplies the history of NOUN:name: each component explains its own subjects
-- in its own function. _explain_named, which calls them, is generated from those that exist (grants.sql).

create or replace function fencepost._explain_job(p_id bigint)
returns table (at timestamptz, event text, actor text, token bigint, detail jsonb)
language sql stable
as $$
  select j.submitted_at, 'submitted', null::text, null::bigint,
         jsonb_build_object('queue', j.queue, 'kind', j.kind, 'priority', j.priority, 'tries_max', j.tries_max,
                            'trace_id', j.headers -> 'trace_id')
  from fencepost.job j where j.job_id = p_id
  union all
  select w.dispatched_at, 'dispatched', null, w.attempt, jsonb_build_object('entry_id', w.entry_id, 'incarnation', w.incarnation)
  from fencepost.job_waiting w where w.job_id = p_id and w.dispatched_at is not null
  union all
  select w.run_at, 'waiting', null, w.attempt, jsonb_build_object('tries', w.tries, 'last_error', w.last_error)
  from fencepost.job_waiting w where w.job_id = p_id and w.dispatched_at is null
    and not exists (select 1 from fencepost.suspects s where s.job_id = w.job_id and w.run_at = fencepost._batch_never())
  union all
  select s.since, 'suspect', null, coalesce(w.attempt, r.attempt),
         jsonb_build_object('tries', coalesce(w.tries, r.tries), 'losses', s.losses, 'beside', s.beside, 'lost_owner', s.lost_owner,
           'why', case when s.losses = 0 or s.beside = 0 then 'its worker was lost while it ran alone'
                       else 'its worker was lost with other jobs' end
                  || '; it runs again in a worker that holds none but suspects')
  from fencepost.suspects s left join fencepost.job_waiting w on w.job_id = s.job_id
  left join fencepost.job_running r on r.job_id = s.job_id
  where s.job_id = p_id
  union all
  select r.claimed_at, 'claimed', r.owner, r.attempt, jsonb_build_object('expires_at', r.expires_at, 'tries', r.tries)
  from fencepost.job_running r where r.job_id = p_id
  union all
  select f.claimed_at, 'claimed', f.owner, f.attempt, jsonb_build_object('tries', f.tries)
  from fencepost.job_finished f where f.job_id = p_id and f.claimed_at is not null
  union all
  -- A discarded job died here; the discard, its time and its actor are an event of their own.
  select f.finished_at, case when f.final_status = 'discarded' then 'dead' else f.state end, f.owner, f.attempt,
         jsonb_build_object('final_status', f.final_status, 'error', f.error)
  from fencepost.job_finished f where f.job_id = p_id
$$;

create or replace function fencepost._explain_outbox(p_id bigint)
returns table (at timestamptz, event text, actor text, token bigint, detail jsonb)
language sql stable
as $$
  select m.created_at, 'put', null::text, null::bigint,
         jsonb_build_object('channel', m.channel, 'key', m.key, 'trace_id', m.headers -> 'trace_id')
  from fencepost.outbox_messages m where m.id = p_id
  union all
  select coalesce(m.settled_at, m.taken_until, m.not_before), m.state, m.owner, m.take,
         jsonb_build_object('attempts', m.attempts, 'ready', m.ready, 'last_error', m.last_error)
  from fencepost.outbox_messages m where m.id = p_id
$$;

create or replace function fencepost._explain_lease(p_resource text)
returns table (at timestamptz, event text, actor text, token bigint, detail jsonb)
language sql stable
as $$
  select l.renewed_at, case when l.owner is null then 'free' else 'held' end, l.owner, l.token,
         jsonb_build_object('acquired_at', l.acquired_at, 'expires_at', l.expires_at)
  from fencepost.lease l where l.resource = p_resource
$$;

create or replace function fencepost._explain_request(p_subject text)
returns table (at timestamptz, event text, actor text, token bigint, detail jsonb)
language sql stable
as $$
  select m.claimed_at, 'claimed', null::text, null::bigint, jsonb_build_object('digest', m.digest, 'response', m.response)
  -- Scope and key may both contain a slash: every possible split of the subject is tried.
  from (select left(p_subject, i - 1) as scope, substr(p_subject, i + 1) as key
        from generate_series(2, length(p_subject) - 1) i where substr(p_subject, i, 1) = '/') asked
  cross join lateral (
    select k.digest, k.response::jsonb as response, k.claimed_at from fencepost.idempotency_key k where k.scope = asked.scope and k.key = asked.key
    union all
    select r.digest, r.response::jsonb, r.claimed_at from fencepost.idempotency_ring r
    -- The slot is the first column of the ring's key; it follows from the time inside the key.
    where r.slot = (fencepost._key_millis(asked.key) / 21600000 % 8)::smallint and r.scope = asked.scope
      and r.key = lower(asked.key)
  ) m
$$;

-- The recorded refusals of one subject under one name. Served by refusal_by_subject.
create or replace function fencepost._explain_refusals(p_noun text, p_subject text)
returns table (at timestamptz, event text, actor text, token bigint, detail jsonb)
language sql stable
as $$
  select r.at, 'refused:' || r.reason, r.actor, null::bigint, jsonb_build_object('attempted', r.attempted, 'seen', r.seen)
  from fencepost.refusal r where r.noun = p_noun and r.subject = p_subject order by r.refusal_id
$$;

-- The checkpoints of a resource that were not pruned yet. The time of an abort is not stored: the begin event
-- shows the status.
create or replace function fencepost._explain_checkpoint(p_resource text)
returns table (at timestamptz, event text, actor text, token bigint, detail jsonb)
language sql stable
as $$
  select moment.at, moment.event, null::text, c.token,
         jsonb_build_object('number', c.number, 'status', c.status) || moment.detail
  from fencepost.checkpoint c
  cross join lateral (values
    (c.begun_at, 'begun', jsonb_build_object('handles', c.handles)),
    (c.stored_at, 'stored', jsonb_build_object('frontier', c.frontier, 'whole', c.whole, 'state_bytes', octet_length(c.state))),
    (c.committed_at, 'committed', '{}')) moment (at, event, detail)
  where c.resource = p_resource and moment.at is not null
  union all
  -- A refusal also contains the number. These two bounds cover every subject that begins with RESOURCE#.
  select r.at, 'refused:' || r.reason, r.actor, null, jsonb_build_object('subject', r.subject, 'attempted', r.attempted, 'seen', r.seen)
  from fencepost.refusal r
  where r.noun = 'checkpoint' and r.subject > p_resource || '#' and r.subject < p_resource || '$'
$$;

-- p_subject is job:ID (a bare number too), outbox:ID, lease:RESOURCE, request:SCOPE/KEY, checkpoint:RESOURCE,
-- queue:NAME, or NOUN:NAME of any other subject that has events, refusals, or an explain function.
create or replace function fencepost.explain(p_subject text)
returns table (at timestamptz, event text, actor text, token bigint, detail jsonb)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_noun text := case when p_subject ~ '^[0-9]+$' then 'job' else split_part(p_subject, ':', 1) end;
  v_name text := case when p_subject ~ '^[0-9]+$' then p_subject else substr(p_subject, length(v_noun) + 2) end;
  v_id   bigint := case when v_name ~ '^[0-9]{1,18}$' then v_name::bigint end;
begin
  perform fencepost._check_text('subject', p_subject, 1200);
  return query
  select life.at, life.event, life.actor, life.token, life.detail from (
    select *, null::bigint as turn, null::bigint as place from fencepost._explain_job(v_id) where v_noun = 'job'
    union all select *, null, null from fencepost._explain_workflow(v_id) where v_noun = 'job'
    union all select *, null, null from fencepost._explain_outbox(v_id) where v_noun = 'outbox'
    union all select at, event, actor, token, detail, null, ordinality from fencepost._explain_named(v_noun, v_name) with ordinality
    union all
    select e.at, e.event, e.actor, e.token, e.detail, e.event_id, null
    from fencepost.event e where e.noun = v_noun and e.subject = v_name
    union all select *, null, null from fencepost._explain_refusals(v_noun, v_name)
  ) life
  -- At one instant: first the event, then its consequences.
  order by life.at, life.token nulls first, life.turn nulls last, life.place nulls last;
end $$;
