-- Suspects: what becomes of the jobs of a lost worker.
--
-- A job that ends its process ends the jobs beside it. Nothing in the database tells which one it was, so the
-- try is charged only where there is no doubt: to a job that no other ran beside. The others come back as
-- suspects. A suspect waits with a run_at that never comes, so no ordinary claim and no dispatch takes it;
-- job_claim_suspects takes at most half of a group, for a worker that holds nothing else.
--
--   the worker was lost         and the job                       the try    the job
--   with other jobs             has lost fewer than 20 in a row   returned   a suspect of this loss
--   with other jobs             has lost 20 or more in a row      charged    a suspect of this loss, or dead
--   with this job alone         was a suspect                     charged    a suspect of its own, or dead
--   with this job alone         was no suspect                    charged    waits as any job, or dead
--   while the database was away as with other jobs: what ends the database must not run for ever either
--
-- A failover, a restart of the server and the loss of a synchronous standby keep every worker from renewing: a lease
-- that ended then is no evidence against its worker. So no failover charges a try.
--
-- A group is the jobs of one loss. The half that is claimed is lost together, so it becomes the next group: the
-- split needs no code. A suspect that finishes, fails, snoozes or parks has left its worker alive: it is
-- cleared. One that is released by a shutdown remains a suspect.
--
-- A machine that fails makes suspects of all its jobs and charges none. The 20 are the bound: a worker holds at
-- most 10,000 jobs, which 14 halvings separate, so only jobs whose workers fail for other reasons reach it.
--
-- Locks: none but the rows of the jobs. Two reclaims may open two groups for one loss; each is halved.

create or replace function fencepost._suspect_losses_max() returns integer
language sql immutable parallel safe
as $$ select 20 $$;

-- Whether a lease that was renewed at p_at could not be renewed for a time after it: another server was promoted, this
-- one was started, or commits waited for a standby, which came or which a manager replaced by loading another
-- configuration (so it does after a start). A mark has the timeline of each second in which the database was used
-- (lineage.sql). Served by the key of the marks, from the newest back to p_at.
create or replace function fencepost._was_away_since(p_at timestamptz) returns boolean
language sql stable
as $$
  select pg_conf_load_time() > p_at
      or exists (select 1 from pg_stat_replication r
                 where r.sync_state in ('sync', 'quorum') and r.backend_start > p_at)
      or coalesce((select m.timeline <> (select h.timeline from fencepost._lineage_here() h)
                   from (select o.at, o.timeline from fencepost.lineage_mark o where o.at <= p_at
                         order by o.number desc limit 1) m), false)
$$;

-- Record which of the lost workers held several jobs, and which were lost while the database was away. Where one job
-- of a worker is lost, its others have another lease: one is looked for by job_running_by_owner. A job whose lease had
-- ended when this one was renewed was lost before, while the worker lived. Groups without members are deleted after a
-- day, which is longer than a lease.
create or replace function fencepost._suspicion_open(p_lost fencepost.job_running[], p_now timestamptz) returns void
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
  v      record;
  v_size bigint;
begin
  for v in select l.owner, max(l.claimed_at) as claimed_at, count(*) as lost, min(l.job_id) as job_id,
                  min(l.renewed_at) as renewed_at
           from unnest(p_lost) l group by l.owner loop
    -- An owner's name may come again: a job that was claimed after the loss is not of that loss.
    continue when exists (select 1 from fencepost.job_suspicion g where g.owner = v.owner and g.at > v.claimed_at);
    v_size := v.lost;
    if v_size = 1 then
      -- The offset keeps a plan that was made for few rows from choosing the index on expiry.
      v_size := 1 + exists (select 1 from (select r.job_id, r.expires_at from fencepost.job_running r
                                           where hashtext(r.owner) = hashtext(v.owner) and r.owner = v.owner offset 0) o
                            where o.job_id <> v.job_id and o.expires_at > v.renewed_at)::integer;
    end if;
    if v_size > 1 or fencepost._was_away_since(v.renewed_at) then
      insert into fencepost.job_suspicion (owner, at, size) values (v.owner, p_now, v_size);
    end if;
  end loop;
  delete from fencepost.job_suspicion g where g.suspicion_id = any (array(
    select o.suspicion_id from fencepost.job_suspicion o
    where o.at < p_now - interval '1 day' and not exists (select 1 from fencepost.job_suspect s where s.suspicion_id = o.suspicion_id)
    order by o.suspicion_id limit 100 for update skip locked));
end $$;

-- What a loss means for a job: the group of the loss (null: it was alone), whether it was a suspect before, how
-- many losses in a row were not charged, and whether this one is.
create or replace function fencepost._suspicion_of(
  p_running fencepost.job_running,
  out suspicion_id bigint, out others integer, out suspected boolean, out losses integer, out charged boolean
) language plpgsql volatile
as $$
begin
  select g.suspicion_id, g.size - 1 into suspicion_id, others from fencepost.job_suspicion g
  where g.owner = p_running.owner and g.at > p_running.claimed_at order by g.at desc limit 1;
  select s.losses into losses from fencepost.job_suspect s where s.job_id = p_running.job_id;
  suspected := found;
  losses := coalesce(losses, 0);
  charged := suspicion_id is null or losses >= fencepost._suspect_losses_max();
end $$;

-- Running to waiting, apart from the jobs that any worker may claim.
create or replace function fencepost._suspect_put_back(
  p_running fencepost.job_running, p_suspicion bigint, p_losses integer, p_tries integer, p_error text, p_now timestamptz
) returns void
language plpgsql volatile
as $$
begin
  delete from fencepost.job_suspect s where s.job_id = p_running.job_id;
  perform fencepost._job_put_back(p_running, fencepost._batch_never(), p_tries, p_error, p_now);
  insert into fencepost.job_suspect (job_id, suspicion_id, losses, since)
  values (p_running.job_id, p_suspicion, p_losses, p_now);
end $$;

-- Jobs that ended, or left their worker alive, are suspects no more. One lookup when there are none.
create or replace function fencepost._suspect_clear(p_ids bigint[], p_now timestamptz) returns void
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
  v record;
begin
  if exists (select 1 from fencepost.job_suspect s where s.job_id > 0) then
    for v in delete from fencepost.job_suspect s where s.job_id = any (p_ids) returning s.job_id loop
      if not exists (select 1 from fencepost.job_finished f where f.job_id = v.job_id and f.state = 'cancelled') then
        perform fencepost._event(p_now, 'job', v.job_id::text, 'cleared', null, null,
          jsonb_build_object('why', 'it ran apart from other work, and its worker was not lost'));
      end if;
    end loop;
  end if;
end $$;

-- Puts a lost worker's job back to waiting, or ends it; the group of its loss is open, if it has one. p_why
-- begins the error. Returns the new state, and whether the try was charged.
create or replace function fencepost._job_reclaim(
  p_running fencepost.job_running, p_why text, p_now timestamptz, out state text, out charged boolean
) language plpgsql volatile
as $$
declare
  v       record;
  v_error text;
  v_alone bigint;
begin
  select * into v from fencepost._suspicion_of(p_running);
  charged := v.charged;
  state := case
    when p_running.cancel_requested_at is not null then 'cancelled'
    when charged and p_running.tries >= (select j.tries_max from fencepost.job j where j.job_id = p_running.job_id) then 'dead'
    else 'pending'
  end;
  v_error := p_why || case
    when not charged and v.others = 0 then
      '; the database was away meanwhile, so this try is not charged, and it runs again apart from other work'
    when not charged then '; it ran beside other jobs, so this try is not charged, and it runs again apart from other work'
    when v.others = 0 then format(' while the database was away, after %s losses that were not charged', v.losses)
    when v.suspicion_id is not null then format(' after %s losses together with other jobs, which were not charged', v.losses)
    when v.suspected then ' while it ran alone in its worker'
    else ' while no other job ran in its worker'
  end || case when state = 'dead' then ', in its last try' else '' end;
  perform fencepost._event(p_now, 'job', p_running.job_id::text, 'lost', p_running.owner, p_running.attempt,
    jsonb_build_object('claimed_at', p_running.claimed_at, 'expired_at', p_running.expires_at, 'to', state,
                       'charged', charged, 'beside', coalesce(v.others, 0), 'why', v_error));
  if state <> 'pending' then
    -- Its end does not clear it.
    delete from fencepost.job_suspect s where s.job_id = p_running.job_id;
    perform fencepost._job_end(p_running, state, case state when 'dead' then 'worker_lost' else state end,
                               case when state = 'dead' then v_error end, p_now);
  elsif v.suspicion_id is null and not v.suspected then
    perform fencepost._job_put_back(p_running, p_now, p_running.tries, v_error, p_now);
  else
    if v.suspicion_id is null then
      insert into fencepost.job_suspicion (owner, at, size) values (p_running.owner, p_now, 1) returning suspicion_id into v_alone;
    end if;
    perform fencepost._suspect_put_back(p_running, coalesce(v.suspicion_id, v_alone), v.losses + (not charged)::integer,
                                        p_running.tries - (not charged)::integer, v_error, p_now);
  end if;
end $$;

-- Put the jobs of p_owner back at once: the caller has seen its process end, and p_why says how. A wrong call
-- costs the owner its jobs and no more, because every write of an attempt is fenced. Skips a job whose
-- transaction is still open; its lease ends it. Served by job_running_by_owner.
create or replace function fencepost.job_reclaim_owner(p_owner text, p_why text)
returns table (job_id bigint, attempt bigint, owner text, state text, charged boolean, queue text, kind text, trace_id text)
language plpgsql volatile security definer
set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now  timestamptz;
  v_lost fencepost.job_running[];
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('owner', p_owner, 256);
  perform fencepost._check_text('why', p_why, 1000);
  v_lost := array(select r from fencepost.job_running r where hashtext(r.owner) = hashtext(p_owner) and r.owner = p_owner
                  order by r.job_id for update skip locked);
  v_now := fencepost.clock();
  return query select * from fencepost._job_reclaim_all(v_lost, p_why, v_now);
end $$;

create or replace function fencepost._job_reclaim_all(p_lost fencepost.job_running[], p_why text, p_now timestamptz)
returns table (job_id bigint, attempt bigint, owner text, state text, charged boolean, queue text, kind text, trace_id text)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_running fencepost.job_running;
begin
  perform fencepost._batch_lock(array(select l.job_id from unnest(p_lost) l));
  perform fencepost._suspicion_open(p_lost, p_now);
  foreach v_running in array p_lost loop
    return query select v_running.job_id, v_running.attempt, v_running.owner, r.state, r.charged,
                        j.queue, j.kind, j.headers ->> 'trace_id'
                 from fencepost._job_reclaim(v_running, p_why, p_now) r join fencepost.job j on j.job_id = v_running.job_id;
  end loop;
end $$;

-- The suspects that wait and that a worker of these queues may claim, by what it serves (job_need.sql).
create or replace function fencepost._suspects_waiting(p_queues text[], p_serves jsonb)
returns table (suspicion_id bigint, job_id bigint)
language sql stable
as $$
  select s.suspicion_id, s.job_id
  from fencepost.job_suspect s
  join fencepost.job_waiting w on w.job_id = s.job_id and w.run_at = fencepost._batch_never()
  join fencepost.job j on j.job_id = s.job_id
  where w.queue = any (p_queues) and coalesce(p_serves -> 'queues' ? w.queue, true)
    and fencepost._job_serves(p_serves -> 'kinds', fencepost._job_offers(p_serves), j.kind, j.payload, j.headers)
    and not exists (select 1 from fencepost.job_queue q where q.queue = w.queue and q.paused_at is not null)
$$;

-- Whether p_owner is to make room for suspects now: a group waits that no other worker has reserved. The
-- reservation lasts for p_ttl and can be repeated. It is no right: every worker that holds nothing may claim.
create or replace function fencepost.job_reserve_suspects(p_queues text[], p_serves jsonb, p_owner text, p_ttl interval)
returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz := fencepost.clock();
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_texts('queue', p_queues, 128);
  perform fencepost._check_serves(p_serves);
  perform fencepost._check_text('owner', p_owner, 256);
  perform fencepost._check_duration('ttl', p_ttl, interval '1 day');
  update fencepost.job_suspicion g set reserved_by = p_owner, reserved_until = v_now + p_ttl
  where g.suspicion_id = (
    select f.suspicion_id from fencepost.job_suspicion f
    where f.suspicion_id = any (array(select w.suspicion_id from fencepost._suspects_waiting(
        p_queues, fencepost.worker_serves(p_owner, p_serves)) w))
      and not fencepost._worker_is_held(p_owner)
      and (f.reserved_by is null or f.reserved_by = p_owner or f.reserved_until <= v_now)
    order by f.suspicion_id limit 1 for update skip locked);
  return found;
end $$;

-- Claim suspects of one group, the oldest that has some: at most half of those that wait, or the last one.
-- Nothing for an owner that holds a job: suspects run apart from other work. Answers only those that were
-- claimed; one whose concurrency key or rate has no room waits as before.
create or replace function fencepost.job_claim_suspects(
  p_queues text[], p_serves jsonb, p_owner text, p_limit integer, p_lease interval default null
) returns table (job_id bigint, outcome text, refusal text, attempt bigint, tries integer, queue text, priority smallint, kind text,
                 payload jsonb, headers jsonb, lease interval, expires_at timestamptz, submitted_at timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_group  record;
  v_ids    bigint[];
  v_serves jsonb := fencepost.worker_serves(p_owner, p_serves);
begin
  perform fencepost._job_check_claim(p_owner, p_lease);
  perform fencepost._check_texts('queue', p_queues, 128);
  perform fencepost._check_serves(p_serves);
  perform fencepost._check_limit(p_limit);
  for v_group in select w.suspicion_id, count(*) as size from fencepost._suspects_waiting(p_queues, v_serves) w
                 group by w.suspicion_id order by w.suspicion_id loop
    exit when fencepost._worker_is_held(p_owner);
    exit when exists (select 1 from fencepost.job_running r where hashtext(r.owner) = hashtext(p_owner) and r.owner = p_owner);
    v_ids := array(
      select w.job_id from fencepost.job_waiting w
      where w.job_id = any (array(select s.job_id from fencepost._suspects_waiting(p_queues, v_serves) s
                                  where s.suspicion_id = v_group.suspicion_id))
        and w.run_at = fencepost._batch_never()
      order by w.job_id limit greatest(1, least(p_limit, v_group.size / 2)) for update skip locked);
    update fencepost.job_waiting w set run_at = fencepost.clock() where w.job_id = any (v_ids);
    return query select c.* from fencepost._job_claim(v_ids, p_owner, p_lease, true) c where c.outcome = 'claimed';
    -- Those that are still there were not claimed, and no worker has seen them due.
    update fencepost.job_waiting w set run_at = fencepost._batch_never(), deferred_at = null where w.job_id = any (v_ids);
  end loop;
end $$;

-- Suspects, for people: with which loss each came back, how often its worker was lost without a charge, and
-- whether it runs apart by now.
create or replace view fencepost.suspects as
  select s.job_id, j.queue, j.kind, s.suspicion_id, s.since, g.owner as lost_owner, g.size - 1 as beside, s.losses,
         exists (select 1 from fencepost.job_running r where r.job_id = s.job_id) as running
  from fencepost.job_suspect s
  join fencepost.job j on j.job_id = s.job_id
  join fencepost.job_suspicion g on g.suspicion_id = s.suspicion_id;
