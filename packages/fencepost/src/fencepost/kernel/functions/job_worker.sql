-- Workers in and out of service. Every claim asks here, so a worker that goes on asking gets nothing.
--
-- A target names workers by the owner that they claim with, NAME@HOST:PID:BOOT:
--
--   HOST                 every worker on the host
--   NAME@HOST            the workers of that name on the host: worker, judge, or JOBS_WORKER_ID
--   NAME@HOST:PID:BOOT   one process
--
--   drain     the processes that are there now finish what they hold and claim nothing more; a process that is
--             started later claims
--   disable   claims nothing, also after a restart, until it is enabled; what it holds it may finish
--   pin       claims only these queues, kinds and abilities; several pins of one worker all apply
--
-- A claim that began before the hold was committed may still succeed. An owner's name is the client's own word:
-- this takes a worker out of service, and does not keep an intruder out.
--
-- Locks: the row of the target, and no others.

-- The targets that an owner, or a target, belongs to: itself, its name on its host, and its host. The boot id has
-- only hexadecimal digits; a name that is made otherwise belongs to itself alone.
create or replace function fencepost._worker_targets(p_owner text) returns text[]
language sql immutable parallel safe
as $$
  select array_remove(array[p_owner, substring(p_owner from '^(.+@[^@:]+):[0-9]+:[0-9a-f]+$'),
                            substring(p_owner from '^.+@([^@:]+)(?::[0-9]+:[0-9a-f]+)?$')], null)
$$;

-- The hold that keeps p_owner from claiming, the widest first; no row when it may claim. Nearly always the table
-- is empty, and the answer is one look at its index.
create or replace function fencepost.worker_standing(p_owner text)
returns table (target text, state text, reason text, actor text, held_at timestamptz)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select h.target, h.state, h.reason, h.actor, h.held_at from fencepost.worker_hold h
  where h.target = any (fencepost._worker_targets(p_owner)) order by length(h.target) limit 1
$$;

create or replace function fencepost._worker_is_held(p_owner text) returns boolean
language plpgsql stable
set enable_seqscan = off
as $$
begin
  return exists (select 1 from fencepost.worker_hold)
    and exists (select 1 from fencepost.worker_hold h where h.target = any (fencepost._worker_targets(p_owner)));
end $$;

-- What p_owner may claim of what it serves: p_serves as in job_need.sql, with the member "queues" where a pin names
-- some. Without p_serves a pin makes a document in which null kinds and null offers stand for all.
create or replace function fencepost.worker_serves(p_owner text, p_serves jsonb) returns jsonb
language plpgsql stable security definer
set search_path = pg_catalog, fencepost, pg_temp set enable_seqscan = off
as $$
declare
  v_serves jsonb := p_serves;
  v        fencepost.worker_pin;
begin
  if not exists (select 1 from fencepost.worker_pin) then
    return p_serves;
  end if;
  for v in select p.* from fencepost.worker_pin p where p.target = any (fencepost._worker_targets(p_owner)) loop
    v_serves := coalesce(v_serves, '{"kinds": null, "offers": null}');
    if v.queues is not null then
      v_serves := jsonb_set(v_serves, '{queues}', to_jsonb(array(
        select q from unnest(v.queues) q where v_serves -> 'queues' is null or v_serves -> 'queues' ? q)));
    end if;
    if v.kinds is not null then
      v_serves := jsonb_set(v_serves, '{kinds}', coalesce((
        select jsonb_object_agg(k, coalesce(v_serves -> 'kinds' ->> k, '*')) from unnest(v.kinds) k
        where jsonb_typeof(v_serves -> 'kinds') = 'null' or v_serves -> 'kinds' ? k), '{}'));
    end if;
    if v.abilities is not null then
      v_serves := jsonb_set(v_serves, '{offers}', to_jsonb(array_to_string(array(
        select a from unnest(v.abilities) a
        where fencepost._job_offers(v_serves) is null or a = any (fencepost._job_offers(v_serves))), ' ')));
    end if;
  end loop;
  return v_serves;
end $$;

create or replace function fencepost._worker_check(p_target text, p_actor text, p_reason text) returns void
language plpgsql volatile
as $$
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('target', p_target, 256);
  perform fencepost._check_text('actor', p_actor, 256);
  perform fencepost._check_text('reason', p_reason, 2000);
end $$;

-- The processes that are registered, or hold a job, and belong to p_target.
create or replace function fencepost._worker_owners(p_target text) returns text[]
language sql stable
as $$
  select coalesce(array_agg(distinct o.owner order by o.owner), '{}') from (
    select l.owner from fencepost.lease l
    where l.resource >= 'job-worker:' and l.resource < 'job-worker;' and l.owner is not null and l.expires_at > fencepost.clock()
    union all
    select r.owner from fencepost.job_running r) o
  where p_target = any (fencepost._worker_targets(o.owner))
$$;

create or replace function fencepost._worker_hold(
  p_target text, p_state text, p_actor text, p_reason text, p_now timestamptz, p_detail jsonb default '{}'
) returns void
language plpgsql volatile
as $$
begin
  insert into fencepost.worker_hold as h (target, state, reason, actor, held_at)
  values (p_target, p_state, p_reason, p_actor, p_now)
  on conflict (target) do update set state = excluded.state, reason = excluded.reason, actor = excluded.actor,
                                     held_at = excluded.held_at
  -- A drain does not shorten what was disabled.
  where excluded.state = 'disabled' or h.state = 'draining';
  perform fencepost._event(p_now, 'worker', p_target, p_state, p_actor, null, p_detail || jsonb_build_object('reason', p_reason));
end $$;

-- Drain the processes of p_target that are there now; returns their owners. not_found when there is none.
create or replace function fencepost.worker_drain(p_target text, p_actor text, p_reason text) returns text[]
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now    timestamptz := fencepost.clock();
  v_owners text[];
begin
  perform fencepost._worker_check(p_target, p_actor, p_reason);
  v_owners := fencepost._worker_owners(p_target);
  if v_owners = '{}' then
    perform fencepost._refuse('not_found', 'worker', p_target, jsonb_build_object('op', 'drain', 'actor', p_actor), '{}');
  end if;
  perform fencepost._worker_hold(o, 'draining', p_actor, p_reason, v_now) from unnest(v_owners) o order by o;
  return v_owners;
end $$;

-- Disable p_target, whether a worker of it is there or not; returns the owners of those that are.
create or replace function fencepost.worker_disable(p_target text, p_actor text, p_reason text) returns text[]
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._worker_check(p_target, p_actor, p_reason);
  perform fencepost._worker_hold(p_target, 'disabled', p_actor, p_reason, fencepost.clock());
  return fencepost._worker_owners(p_target);
end $$;

-- Put p_target and everything that belongs to it back into service; returns the targets that were held. not_found
-- when none was. A wider hold remains: a worker of a disabled host stays disabled.
create or replace function fencepost.worker_enable(p_target text, p_actor text, p_reason text) returns text[]
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now      timestamptz := fencepost.clock();
  v_targets  text[];
begin
  perform fencepost._worker_check(p_target, p_actor, p_reason);
  perform 1 from fencepost.worker_hold h where p_target = any (fencepost._worker_targets(h.target)) order by h.target for update;
  with gone as (
    delete from fencepost.worker_hold h where p_target = any (fencepost._worker_targets(h.target)) returning h.*
  ), told as (
    select g.target, fencepost._event(v_now, 'worker', g.target, 'enabled', p_actor, null,
             jsonb_build_object('reason', p_reason, 'from', g.state, 'held_at', g.held_at, 'held_by', g.actor, 'held_for', g.reason))
    from gone g
  )
  select coalesce(array_agg(t.target order by t.target), '{}') into v_targets from told t;
  if v_targets = '{}' then
    perform fencepost._refuse('not_found', 'worker', p_target, jsonb_build_object('op', 'enable', 'actor', p_actor),
                              coalesce((select to_jsonb(s) from fencepost.worker_standing(p_target) s), '{}'));
  end if;
  return v_targets;
end $$;

-- Restrict p_target to these queues, kinds and abilities; null leaves one unrestricted. Replaces its last pin.
create or replace function fencepost.worker_pin(
  p_target text, p_queues text[], p_kinds text[], p_abilities text[], p_actor text, p_reason text
) returns text[]
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz := fencepost.clock();
begin
  perform fencepost._worker_check(p_target, p_actor, p_reason);
  perform fencepost._check_texts('queues', p_queues, 128);
  perform fencepost._check_texts('kinds', p_kinds, 128);
  perform fencepost._check_texts('abilities', p_abilities, 128);
  if coalesce(p_queues, p_kinds, p_abilities) is null then
    raise exception 'A pin names queues, kinds or abilities.' using errcode = 'ZF100', detail = '{"field": "queues"}';
  end if;
  insert into fencepost.worker_pin (target, queues, kinds, abilities, reason, actor, pinned_at)
  values (p_target, p_queues, p_kinds, p_abilities, p_reason, p_actor, v_now)
  on conflict (target) do update set queues = excluded.queues, kinds = excluded.kinds, abilities = excluded.abilities,
                                     reason = excluded.reason, actor = excluded.actor, pinned_at = excluded.pinned_at;
  perform fencepost._event(v_now, 'worker', p_target, 'pinned', p_actor, null,
    jsonb_build_object('reason', p_reason, 'queues', p_queues, 'kinds', p_kinds, 'abilities', p_abilities));
  return fencepost._worker_owners(p_target);
end $$;

-- Remove the pin of p_target; not_found when it has none.
create or replace function fencepost.worker_unpin(p_target text, p_actor text, p_reason text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._worker_check(p_target, p_actor, p_reason);
  delete from fencepost.worker_pin p where p.target = p_target;
  if not found then
    perform fencepost._refuse('not_found', 'worker', p_target, jsonb_build_object('op', 'unpin', 'actor', p_actor), '{}');
  end if;
  perform fencepost._event(fencepost.clock(), 'worker', p_target, 'unpinned', p_actor, null, jsonb_build_object('reason', p_reason));
end $$;

-- Forget the drains of processes that ended: their names do not come back. A day is longer than any lease, so a
-- process that is only paused keeps its drain.
create or replace function fencepost._worker_forget_drains(p_now timestamptz) returns void
language sql volatile
as $$
  delete from fencepost.worker_hold h where h.target = any (array(
    select o.target from fencepost.worker_hold o where o.state = 'draining' and o.held_at < p_now - interval '1 day'
      and fencepost._worker_owners(o.target) = '{}' order by o.target limit 100 for update skip locked))
$$;

-- The workers for people: those that are registered or hold a job, and every held or pinned target without one.
-- state is working; or draining, drained or disabled, with the hold that says so. pinned_to is what its pins leave
-- of what it serves, null without a pin.
create or replace function fencepost.worker_list()
returns table (target text, owner text, name text, host text, since timestamptz, queues text[], kinds text[], offers text[],
               running bigint, state text, held_by text, reason text, actor text, held_at timestamptz, pinned_to jsonb,
               pin_reason text, pin_actor text)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  with live as (
    select l.owner, min(l.acquired_at) as since from fencepost.lease l
    where l.resource >= 'job-worker:' and l.resource < 'job-worker;' and l.owner is not null and l.expires_at > fencepost.clock()
    group by l.owner
  ), busy as (
    select r.owner, count(*) as running, min(r.claimed_at) as since from fencepost.job_running r group by r.owner
  ), named as (
    select coalesce(l.owner, b.owner) as target, coalesce(l.owner, b.owner) as owner, coalesce(l.since, b.since) as since,
           coalesce(b.running, 0) as running
    from live l full join busy b on b.owner = l.owner
  ), every as (
    select n.target, n.owner, n.since, n.running from named n
    union all
    select t.target, null, null, 0 from (
      select h.target from fencepost.worker_hold h union select p.target from fencepost.worker_pin p) t
    where not exists (select 1 from named n where t.target = any (fencepost._worker_targets(n.owner)))
  )
  select e.target, e.owner, substring(e.target from '^(.+)@[^@:]+(?::|$)'), t.host, e.since,
         coalesce(a.queues, '{}'), array(select k from jsonb_object_keys(a.serves -> 'kinds') k order by 1),
         array_remove(fencepost._job_offers(a.serves), ''), e.running,
         case when s.target is null then 'working' when s.state = 'draining' and e.running = 0 then 'drained' else s.state end,
         s.target, s.reason, s.actor, s.held_at,
         case when p.reason is not null then fencepost.worker_serves(e.target, null) end, p.reason, p.actor
  from every e
  cross join lateral (select coalesce(substring(e.target from '^.+@([^@:]+)'), e.target) as host) t
  left join lateral (select w.queues, w.serves from fencepost.job_worker w
                     join fencepost.lease l on l.resource = w.resource and l.token = w.token
                     where l.owner = e.owner and l.expires_at > fencepost.clock() limit 1) a on true
  left join lateral fencepost.worker_standing(e.target) s on true
  left join lateral (select p.reason, p.actor from fencepost.worker_pin p
                     where p.target = any (fencepost._worker_targets(e.target)) order by length(p.target) limit 1) p on true
  order by t.host, e.target
$$;

-- What is out of service, for people and metrics.
create or replace view fencepost.worker_holds as
  select h.target, h.state, h.reason, h.actor, h.held_at from fencepost.worker_hold h;
