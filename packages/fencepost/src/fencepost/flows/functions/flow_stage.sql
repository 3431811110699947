-- What a keyed stage sends to later stages: a log for each key group of the sending stage. The group appends in its own commits, a unit
-- forwards the rows to the receivers, and removes them when all receivers have committed them.

-- Append rows within the commit of a task; returns how many rows wait for the receivers. p_ended: the task has ended with the last of them.
-- Fenced by the task's lease. Takes the log's row lock, which only the task itself and a restore contend for. Served by the primary keys.
create or replace function fencepost.flow_stage_append(
  p_flow text, p_sender text, p_resource text, p_token bigint, p_checkpoint bigint, p_contents bytea[], p_records integer[],
  p_watermarks double precision[], p_ended boolean
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_last   bigint;
  v_lowest bigint;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('flow', p_flow, 128);
  perform fencepost._check_text('sender', p_sender, 512);
  perform fencepost._check_lengths('records', cardinality(p_contents), cardinality(p_records));
  perform fencepost._check_lengths('watermarks', cardinality(p_contents), cardinality(p_watermarks));
  perform fencepost.lease_fence(p_resource, p_token);
  insert into fencepost.flow_stage (flow, sender, resource) values (p_flow, p_sender, p_resource) on conflict do nothing;
  select s.last into v_last from fencepost.flow_stage s where s.flow = p_flow and s.sender = p_sender for update;
  insert into fencepost.flow_stage_row (flow, sender, number, checkpoint, content, records, watermark)
  select p_flow, p_sender, v_last + r.place, p_checkpoint, r.content, r.records, r.watermark
  from unnest(p_contents, p_records, p_watermarks) with ordinality r (content, records, watermark, place);
  v_last := v_last + cardinality(p_contents);
  update fencepost.flow_stage s set last = v_last, ended_by = case when p_ended then p_token end
  where s.flow = p_flow and s.sender = p_sender;
  v_lowest := (select r.number from fencepost.flow_stage_row r where r.flow = p_flow and r.sender = p_sender order by r.number limit 1);
  return v_last - v_lowest + 1;
end $$;

-- Rows after a number, in order. Rows of a commit whose sinks are not finished are left out: a savepoint leaves that commit out too, and
-- a restore cancels it. Served by the primary keys, and the checkpoint's index of what is durable.
create or replace function fencepost.flow_stage_read(p_flow text, p_sender text, p_after bigint, p_limit integer)
returns table (number bigint, content bytea, records integer, watermark double precision)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_open bigint;
begin
  perform fencepost._check_limit(p_limit);
  select case when n.status = 'stored' then n.number end into v_open
  from fencepost.flow_stage s cross join lateral (
    select c.status, c.number from fencepost.checkpoint c
    where c.resource = s.resource and c.status in ('stored', 'committed') order by c.number desc limit 1) n
  where s.flow = p_flow and s.sender = p_sender;
  return query
  select r.number, r.content, r.records, r.watermark from fencepost.flow_stage_row r
  where r.flow = p_flow and r.sender = p_sender and r.number > p_after and (v_open is null or r.checkpoint < v_open)
  order by r.number limit p_limit;
end $$;

-- The lowest number that is kept (null for none), the highest that was ever given, and whether the sender has ended with it. p_resumes: the
-- sender goes on in a later run, so an end counts only under the lease that it was reached under.
create or replace function fencepost.flow_stage_state(p_flow text, p_sender text, p_resumes boolean)
returns table (lowest bigint, last bigint, ended boolean)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select (select r.number from fencepost.flow_stage_row r where r.flow = p_flow and r.sender = p_sender order by r.number limit 1),
         coalesce(s.last, 0),
         coalesce(s.ended_by is not null and (not p_resumes or s.ended_by = (
           select l.token from fencepost.lease l where l.resource = s.resource)), false)
  from (select 1) one left join fencepost.flow_stage s on s.flow = p_flow and s.sender = p_sender
$$;

-- Remove rows up to a number, which every receiver has committed; returns how many. Fenced by the lease of the unit that forwards them, and held off while
-- a savepoint is kept, which copies what its receivers lack.
create or replace function fencepost.flow_stage_trim(p_flow text, p_sender text, p_resource text, p_token bigint, p_upto bigint)
returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_count bigint;
begin
  perform fencepost.lease_fence(p_resource, p_token);
  perform pg_advisory_xact_lock_shared(hashtextextended(p_flow, 6093));
  delete from fencepost.flow_stage_row r where r.flow = p_flow and r.sender = p_sender and r.number <= p_upto;
  get diagnostics v_count = row_count;
  return v_count;
end $$;

-- Hold off the removal of rows until the end of the transaction: before a savepoint reads how far the receivers are.
create or replace function fencepost._flow_stage_hold(p_name text) returns void
language sql volatile
as $$ select pg_advisory_xact_lock(hashtextextended(p_name, 6093)) $$;

-- Copy into a savepoint what each log had when its task made the commit that the savepoint has. A task without one has sent nothing
-- that counts. Called by flow_save, which has held off the removal before it read the commits.
create or replace function fencepost._flow_stage_save(p_name text, p_savepoint text) returns void
language plpgsql volatile
as $$
declare
  v_log   record;
  v_above bigint;
begin
  for v_log in
    select s.sender, s.resource, s.last, s.ended_by, (
      select max(p.number) from fencepost.flow_savepoint p
      where p.flow = p_name and p.savepoint = p_savepoint and p.resource = s.resource) as upto
    from fencepost.flow_stage s where s.flow = p_name
  loop
    v_above := (select min(r.number) from fencepost.flow_stage_row r
                where r.flow = p_name and r.sender = v_log.sender and r.checkpoint > coalesce(v_log.upto, 0));
    insert into fencepost.flow_stage_saved (flow, savepoint, sender, number, resource, last, ended)
    values (p_name, p_savepoint, v_log.sender, 0, v_log.resource, coalesce(v_above - 1, v_log.last),
            v_above is null and v_log.ended_by is not null);
    insert into fencepost.flow_stage_saved (flow, savepoint, sender, number, content, records, watermark)
    select p_name, p_savepoint, r.sender, r.number, r.content, r.records, r.watermark from fencepost.flow_stage_row r
    where r.flow = p_name and r.sender = v_log.sender and r.checkpoint <= coalesce(v_log.upto, 0);
  end loop;
end $$;

-- Put the logs back to a savepoint. Numbers go back with it, and a row may have another content than one that was sent under its number
-- before: so the edition ends, and with it the channels. Called by flow_restore, with the leases locked.
create or replace function fencepost._flow_stage_restore(p_name text, p_savepoint text) returns void
language plpgsql volatile
as $$
begin
  if not exists (select 1 from fencepost.flow_stage s where s.flow = p_name)
     and not exists (select 1 from fencepost.flow_stage_saved s where s.flow = p_name and s.savepoint = p_savepoint) then
    return;
  end if;
  delete from fencepost.flow_stage_row r where r.flow = p_name;
  delete from fencepost.flow_stage s where s.flow = p_name;
  insert into fencepost.flow_stage (flow, sender, resource, last, ended_by)
  select p_name, s.sender, s.resource, s.last, case when s.ended then 0 end from fencepost.flow_stage_saved s
  where s.flow = p_name and s.savepoint = p_savepoint and s.number = 0;
  insert into fencepost.flow_stage_row (flow, sender, number, checkpoint, content, records, watermark)
  select p_name, s.sender, s.number, 0, s.content, s.records, s.watermark from fencepost.flow_stage_saved s
  where s.flow = p_name and s.savepoint = p_savepoint and s.number > 0;
  perform pg_advisory_xact_lock(hashtextextended(p_name, 6092));
  update fencepost.flow f set edition = f.edition + 1 where f.name = p_name;
end $$;
