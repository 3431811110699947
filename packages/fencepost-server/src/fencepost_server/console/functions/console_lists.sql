-- Pages of long lists. A list is paged by its key, never by an offset, and a filter that finds little reads at most p_scan rows
-- and says where it stopped: so a page of a million jobs costs as much as a page of a thousand.

-- The rows that one page may read, newest first: the newest p_scan below p_below, with the columns of the filters. `kind` is null
-- where another table has it; `fits` says whether the row is in p_state, where one table holds two states.
create or replace function fencepost._console_jobs_looked(p_state text, p_queue text, p_below bigint, p_scan integer)
returns table (job_id bigint, queue text, kind text, fits boolean)
language plpgsql stable
as $$
#variable_conflict use_column
begin
  case
    when p_state is null then
      return query select j.job_id, j.queue, j.kind, true from fencepost.job j where j.job_id < p_below order by j.job_id desc limit p_scan;
    when p_state in ('scheduled', 'retrying') then
      return query select w.job_id, w.queue, null::text, w.dispatched_at is null and w.run_at > fencepost.clock()
                                                         and (w.tries > 0) = (p_state = 'retrying') from (
        select * from fencepost.job_waiting n where n.job_id < p_below order by n.job_id desc limit p_scan) w;
    when p_state in ('pending', 'dispatched') then
      return query select w.job_id, w.queue, null::text, (w.dispatched_at is null) = (p_state = 'pending') from (
        select * from fencepost.job_waiting n where n.job_id < p_below order by n.job_id desc limit p_scan) w;
    when p_state = 'running' then
      return query select r.job_id, r.queue, null::text, true from fencepost.job_running r
      where r.job_id < p_below order by r.job_id desc limit p_scan;
    when p_state = 'dead' then
      return query select d.job_id, d.queue, null::text, true from (
        select q from fencepost._job_dead_queues() q where p_queue is null or q = p_queue) names
        cross join lateral (select f.job_id, f.queue from fencepost.job_finished f
                            where f.state = 'dead' and f.queue = names.q and f.job_id < p_below order by f.job_id desc limit p_scan) d
      order by d.job_id desc limit p_scan;
    else
      return query select f.job_id, f.queue, null::text, f.state = p_state from fencepost.job_finished f
      where f.job_id < p_below order by f.job_id desc limit p_scan;
  end case;
end $$;

-- The ids of one page of jobs, newest first, below p_before; where the next page begins, or null when this is the last.
create or replace function fencepost.console_job_page(
  p_state text, p_queue text, p_kind text, p_before bigint, p_limit integer, p_scan integer
) returns table (ids bigint[], next_before bigint)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_looked bigint[];
  v_found  bigint[];
  v_id     bigint;
  v_scan   integer := case when p_state is null and p_queue is null and p_kind is null then p_limit else greatest(p_limit, p_scan) end;
begin
  perform fencepost._check_limit(p_limit);
  if p_state is not null then
    perform fencepost._check_word('state', p_state, array['pending', 'scheduled', 'retrying', 'dispatched', 'running', 'finished',
                                                          'dead', 'cancelled']);
  end if;
  select array_agg(l.job_id), array_agg(l.job_id) filter (
           where l.fits and (p_queue is null or l.queue = p_queue) and (p_kind is null or l.kind is null or l.kind = p_kind))
  into v_looked, v_found
  from fencepost._console_jobs_looked(p_state, p_queue, coalesce(p_before, 9223372036854775807), v_scan) l;
  ids := '{}';
  if p_kind is null or p_state is null then
    ids := coalesce(v_found[:p_limit], '{}');
  else
    foreach v_id in array coalesce(v_found, '{}') loop
      exit when cardinality(ids) = p_limit;
      if exists (select 1 from fencepost.job j where j.job_id = v_id and j.kind = p_kind) then
        ids := ids || v_id;
      end if;
    end loop;
  end if;
  next_before := case when cardinality(ids) = p_limit then ids[p_limit]
                      when cardinality(v_looked) = v_scan then v_looked[v_scan] end;
  return next;
end $$;

-- The ids of one page of the jobs with these tags and arguments, as above: walks at most p_scan entries of one label.
create or replace function fencepost.console_job_search(
  p_tags text[], p_arguments jsonb, p_state text, p_queue text, p_kind text, p_before bigint, p_limit integer, p_scan integer
) returns table (ids bigint[], next_before bigint)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_scan integer := greatest(p_limit, p_scan);
begin
  ids := array(select fencepost.job_search(p_tags, p_arguments, p_state, p_queue, p_kind, p_before, p_limit, v_scan));
  next_before := case when cardinality(ids) = p_limit then ids[p_limit] else (
    select l.job_id from fencepost.job_label l
    where l.label = (fencepost._job_search_labels(p_tags, p_arguments))[1] and l.job_id < coalesce(p_before, 9223372036854775807)
    order by l.job_id desc offset v_scan - 1 limit 1) end;
  return next;
end $$;

-- The ids of one page of messages, newest first, as above. Live and settled ones are two tables, merged by id.
create or replace function fencepost.console_outbox_page(
  p_channel text, p_state text, p_key text, p_before bigint, p_limit integer, p_scan integer
) returns table (ids bigint[], next_before bigint)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_below  bigint := coalesce(p_before, 9223372036854775807);
  v_scan   integer := case when p_channel is null and p_state is null and p_key is null then p_limit else greatest(p_limit, p_scan) end;
  v_looked bigint[];
begin
  perform fencepost._check_limit(p_limit);
  select array_agg(l.id order by l.id desc),
         array_agg(l.id order by l.id desc) filter (where (p_channel is null or l.channel = p_channel)
                                                      and (p_state is null or l.state = p_state) and (p_key is null or l.key = p_key))
  into v_looked, ids
  from (
    select * from (
      (select o.id, o.channel, o.key, o.state from fencepost.outbox o where o.id < v_below order by o.id desc limit v_scan)
      union all
      (select s.id, s.channel, s.key, s.state from fencepost.outbox_settled s where s.id < v_below
         and (p_state is null or p_state in ('sent', 'dead')) order by s.id desc limit v_scan)
    ) both_tables order by id desc limit v_scan) l;
  ids := coalesce(ids[:p_limit], '{}');
  next_before := case when cardinality(ids) = p_limit then ids[p_limit]
                      when cardinality(v_looked) = v_scan then v_looked[v_scan] end;
  return next;
end $$;

-- Keys that wait behind a head which only an operator, or a broker's answer, can move on: with how many wait behind it.
create or replace function fencepost.console_held_keys(p_limit integer, p_scan integer)
returns table (id bigint, channel text, key text, state text, since timestamptz, waiting bigint, last_error text)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  perform fencepost._check_limit(p_limit);
  return query
  select h.id, h.channel, h.key, h.state, h.created_at,
         (select count(*) from (select 1 from fencepost.outbox b
                                where b.channel = h.channel and b.key = h.key and b.id > h.id limit 1000) behind),
         h.last_error
  from (select * from fencepost.outbox o where o.id > 0 order by o.id limit p_scan) h
  where h.key is not null and h.ready and h.state in ('unknown', 'parked', 'failed')
  order by h.id limit p_limit;
end $$;

-- Takeovers of leases, newest first, below p_before: another owner's token replaced one that had not been released. Served by
-- event_takeovers.
create or replace function fencepost.console_takeover_page(p_before bigint, p_limit integer)
returns table (event_id bigint, at timestamptz, resource text, owner text, token bigint, detail jsonb)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  perform fencepost._check_limit(p_limit);
  return query
  select e.event_id, e.at, e.subject, e.actor, e.token, e.detail from fencepost.event e
  where e.noun = 'lease' and e.event = 'taken_over' and e.event_id < coalesce(p_before, 9223372036854775807)
  order by e.event_id desc limit p_limit;
end $$;

-- The job workers: those that register themselves, idle or not, under a lease of their own; and every holder of a job under a
-- valid lease, of a version that does not register itself. Served by the lease's primary key and by the table of running jobs.
create or replace function fencepost.console_workers()
returns table (owner text, jobs bigint, oldest_at timestamptz, renewed_at timestamptz, since timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := fencepost.clock();
begin
  return query
  select coalesce(p.owner, r.owner), coalesce(r.jobs, 0), r.oldest_at, greatest(p.renewed_at, r.renewed_at), p.since
  from (select l.owner, max(l.renewed_at) as renewed_at, min(l.acquired_at) as since from fencepost.lease l
        where l.resource >= 'job-worker:' and l.resource < 'job-worker;' and l.owner is not null and l.expires_at > v_now
        group by l.owner) p
  full join (select n.owner, count(*) as jobs, min(n.claimed_at) as oldest_at, max(n.renewed_at) as renewed_at
             from fencepost.job_running n where n.expires_at > v_now group by n.owner) r on r.owner = p.owner
  order by 1 limit 10000;
end $$;

-- The resources that have checkpoints, after p_after in order of name, each with its newest number: by skipping through the
-- primary key, however many checkpoints one of them has.
create or replace function fencepost.console_checkpointed(p_after text, p_limit integer)
returns table (resource text, number bigint)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_at fencepost.checkpoint;
begin
  perform fencepost._check_limit(p_limit);
  v_at.resource := coalesce(p_after, '');
  for i in 1 .. p_limit loop
    select c.resource into v_at.resource from fencepost.checkpoint c where c.resource > v_at.resource order by c.resource limit 1;
    exit when not found;
    return query select c.resource, c.number from fencepost.checkpoint c where c.resource = v_at.resource
                 order by c.number desc limit 1;
  end loop;
end $$;

-- The ids of one page of recorded refusals, newest first, below p_before; where the next page begins, or null when this is the last.
-- By the primary key: ids follow the time of recording, so that the first row older than p_since ends the list.
create or replace function fencepost.console_refusal_page(
  p_kind text, p_reason text, p_noun text, p_since timestamptz, p_before bigint, p_limit integer, p_scan integer
) returns table (ids bigint[], next_before bigint)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_looked bigint[];
  v_oldest timestamptz;
  v_scan   integer := case when p_kind is null and p_reason is null and p_noun is null then p_limit else greatest(p_limit, p_scan) end;
begin
  perform fencepost._check_limit(p_limit);
  if p_kind is not null then
    perform fencepost._check_word('kind', p_kind, array['late', 'conflict', 'routine']);
  end if;
  select coalesce(array_agg(l.refusal_id), '{}'), min(l.at),
         coalesce((array_agg(l.refusal_id) filter (
           where (p_reason is null or l.reason = p_reason) and (p_noun is null or l.noun = p_noun)
             and (p_kind is null or fencepost.refusal_kind(l.reason, l.attempted) = p_kind)
             and (p_since is null or l.at >= p_since)))[:p_limit], '{}')
  into v_looked, v_oldest, ids
  from (select * from fencepost.refusal r where r.refusal_id < coalesce(p_before, 9223372036854775807)
        order by r.refusal_id desc limit v_scan) l;
  next_before := case when cardinality(ids) = p_limit then ids[p_limit]
                      when cardinality(v_looked) = v_scan and (p_since is null or v_oldest >= p_since) then v_looked[v_scan] end;
  return next;
end $$;

-- How many refusals of each kind were recorded lately, among the newest p_scan. Served by refusal_by_age; what is spared is old.
create or replace function fencepost.console_refusal_kinds(p_within interval, p_scan integer) returns table (kind text, refused bigint)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select k.kind, count(r.reason)
  from unnest(array['late', 'conflict', 'routine']) k (kind)
  left join (select n.reason, fencepost.refusal_kind(n.reason, n.attempted) as kind from fencepost.refusal n
             where not n.spared and n.at >= (select fencepost.clock() - p_within) order by n.at desc limit p_scan) r on r.kind = k.kind
  group by k.kind
$$;

-- The ids of one page of the jobs that have a part of a text in their kind, a tag or their arguments, among the newest p_scan
-- below p_before of a state and a queue, as above.
create or replace function fencepost.console_job_part_page(
  p_part text, p_state text, p_queue text, p_before bigint, p_limit integer, p_scan integer
) returns table (ids bigint[], next_before bigint)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_looked bigint[];
  v_scan   integer := greatest(p_limit, p_scan);
  v_part   text := lower(p_part);
begin
  perform fencepost._check_limit(p_limit);
  perform fencepost._check_text('part', p_part, 1200);
  select array_agg(l.job_id),
         array_agg(l.job_id) filter (where l.fits and (p_queue is null or l.queue = p_queue) and exists (
           select 1 from fencepost.job j where j.job_id = l.job_id
             and (position(v_part in lower(j.kind)) > 0 or position(v_part in lower(j.payload::text)) > 0
                  or exists (select 1 from fencepost.job_label b where b.job_id = j.job_id and b.label like 'tag:%'
                               and position(v_part in lower(substr(b.label, 5))) > 0))))
  into v_looked, ids
  from fencepost._console_jobs_looked(p_state, p_queue, coalesce(p_before, 9223372036854775807), v_scan) l;
  ids := coalesce(ids[:p_limit], '{}');
  next_before := case when cardinality(ids) = p_limit then ids[p_limit]
                      when cardinality(v_looked) = v_scan then v_looked[v_scan] end;
  return next;
end $$;

-- The ids of one page of the jobs that an owner runs. A table of what runs now.
create or replace function fencepost.console_job_owner_page(p_owner text, p_before bigint, p_limit integer)
returns table (ids bigint[], next_before bigint)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  perform fencepost._check_limit(p_limit);
  ids := array(select r.job_id from fencepost.job_running r where r.owner = p_owner and r.job_id < coalesce(p_before, 9223372036854775807)
               order by r.job_id desc limit p_limit);
  next_before := case when cardinality(ids) = p_limit then ids[p_limit] end;
  return next;
end $$;

-- What a job belongs to: the batches that it is a part of or the callback of, and those that it made as a workflow.
create or replace function fencepost.console_job_batches(p_job_id bigint) returns table (batch_id bigint, role text)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select m.batch_id, 'part of' from fencepost.job_batch_member m where m.job_id = p_job_id
  union all
  select b.batch_id, 'callback of' from fencepost.job_batch b where b.callback_job_id = p_job_id
  union all
  select (s.result ->> 'batch')::bigint, 'children' from fencepost.workflow_step s
  where s.job_id = p_job_id and s.what = 'spawn' and s.result ? 'batch'
$$;

-- The jobs of a batch, in order of id after p_after, at most p_limit, with the state of each that is still kept.
create or replace function fencepost.console_batch_jobs(p_batch_id bigint, p_after bigint, p_limit integer)
returns table (job_id bigint, queue text, kind text, state text, tries integer, submitted_at timestamptz, finished_at timestamptz, error text)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  perform fencepost._check_limit(p_limit);
  return query
  select m.job_id, j.queue, j.kind, j.state, j.tries, j.submitted_at, j.finished_at, left(j.error, 300)
  from (select n.job_id from fencepost.job_batch_member n where n.batch_id = p_batch_id and n.job_id > coalesce(p_after, 0)
        order by n.job_id limit p_limit) m
  left join fencepost.jobs j on j.job_id = m.job_id order by m.job_id;
end $$;

-- One page of batches, newest first, below p_before; only those that are not complete when p_open. Served by the primary key and
-- by job_batch_open.
create or replace function fencepost.console_batch_page(p_open boolean, p_before bigint, p_limit integer) returns setof fencepost.batches
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._check_limit(p_limit);
  if p_open then
    return query select v.* from (
      select b.batch_id from fencepost.job_batch b where b.completed_at is null and b.batch_id < coalesce(p_before, 9223372036854775807)
      order by b.batch_id desc limit p_limit) n join fencepost.batches v on v.batch_id = n.batch_id order by v.batch_id desc;
  else
    return query select v.* from (
      select b.batch_id from fencepost.job_batch b where b.batch_id < coalesce(p_before, 9223372036854775807)
      order by b.batch_id desc limit p_limit) n join fencepost.batches v on v.batch_id = n.batch_id order by v.batch_id desc;
  end if;
end $$;

-- The limits of the queues that have one: how many may wait, and how many start a second. Small tables.
create or replace function fencepost.console_queue_limits()
returns table (queue text, waiting_max bigint, per_second double precision, burst double precision)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select coalesce(q.queue, r.queue), q.waiting_max, r.per_second, r.burst
  from (select o.queue, o.waiting_max from fencepost.job_queue o where o.waiting_max is not null) q
  full join (select substr(n.name, 7) as queue, n.per_second, n.burst from fencepost.job_rate n where n.name like 'queue:%') r
    on r.queue = q.queue
$$;

-- The jobs that each owner runs, its oldest p_each, of at most 10,000 running ones. A table of what runs now.
create or replace function fencepost.console_running_jobs(p_each integer) returns table (owner text, job_id bigint, kind text)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select r.owner, r.job_id, j.kind
  from (select n.owner, n.job_id, row_number() over (partition by n.owner order by n.claimed_at, n.job_id) as place
        from (select * from fencepost.job_running o order by o.job_id desc limit 10000) n) r
  join fencepost.job j on j.job_id = r.job_id where r.place <= p_each order by r.owner, r.place
$$;
