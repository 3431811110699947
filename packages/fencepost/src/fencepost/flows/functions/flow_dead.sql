-- Dead letters of flows: stored in the commit that skips them, replayed on an operator's request, read again by number.
--
--   from        event     to          guard
--   (none)      bury      waiting     the lease's token of the task that commits
--   waiting     replay    asked       an operator; once: asked ones are skipped
--   waiting     discard   (none)      an operator
--   asked       forget    (none)      the flow has committed it, it is old, no savepoint is older, and a newer one was asked for
--
-- A letter that was asked for stays for a while, because the flow may read it again: the flow's frontier is its position.

-- Store what a step or a sink could not take; for a sink also what was sent and the response. Called inside the transaction of the
-- task's commit, or of the flag of a checkpoint whose sinks are written after it; fenced by its lease.
create or replace function fencepost.flow_bury(
  p_flow text, p_step text, p_resource text, p_token bigint, p_records bytea[], p_previews text[], p_errors text[],
  p_bodies bytea[] default null, p_answers text[] default null
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_count bigint;
begin
  perform fencepost._check_text('flow', p_flow, 128);
  perform fencepost._check_text('step', p_step, 128);
  perform fencepost._check_lengths('previews', cardinality(p_records), cardinality(p_previews));
  perform fencepost._check_lengths('errors', cardinality(p_records), cardinality(p_errors));
  perform fencepost._check_lengths('bodies', cardinality(p_records), coalesce(cardinality(p_bodies), cardinality(p_records)));
  perform fencepost._check_lengths('answers', cardinality(p_records), coalesce(cardinality(p_answers), cardinality(p_records)));
  perform fencepost.lease_fence(p_resource, p_token);
  insert into fencepost.flow_dead (flow, step, resource, record, preview, error, died_at, body, answer)
  select p_flow, p_step, p_resource, a.record, a.preview, a.error, fencepost.clock(), p_bodies[a.place], p_answers[a.place]
  from unnest(p_records, p_previews, p_errors) with ordinality a (record, preview, error, place)
  order by a.place;
  get diagnostics v_count = row_count;
  return v_count;
end $$;

-- Request a replay of dead letters, the oldest first: of one step, or those with these ids. Returns how many; those that were
-- asked for before are skipped. Raises mismatch when nothing in the registered flow reads them again. Takes a transaction-scoped lock
-- on (flow, step) before its first number, so that a number is never seen before a lower one: the flow would skip the lower one.
-- Served by flow_dead_waiting.
create or replace function fencepost.flow_replay(
  p_flow text, p_step text, p_ids bigint[], p_limit integer, p_by text
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now    timestamptz;
  v_number bigint;
  v_id     bigint;
  v_count  bigint := 0;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('flow', p_flow, 128);
  perform fencepost._check_text('step', p_step, 128);
  perform fencepost._check_text('by', p_by, 256);
  perform fencepost._check_limit(p_limit);
  if exists (select 1 from fencepost.flow f where f.name = p_flow and f.plan ? 'nodes' and not exists (
               select 1 from jsonb_array_elements(f.plan -> 'nodes') n where n ->> 'name' = 'dead-' || p_step)) then
    perform fencepost._refuse('mismatch', 'flow', p_flow, jsonb_build_object('op', 'replay', 'step', p_step, 'by', p_by),
                              jsonb_build_object('why', 'not_read'));
  end if;
  perform pg_advisory_xact_lock(hashtextextended(p_flow || '/' || p_step, 6091));
  v_now := fencepost.clock();
  v_number := coalesce((select d.replay from fencepost.flow_dead d where d.flow = p_flow and d.step = p_step
                        and d.replay is not null order by d.replay desc limit 1), 0);
  for v_id in select d.id from fencepost.flow_dead d
              where d.flow = p_flow and d.step = p_step and d.replay is null and (p_ids is null or d.id = any (p_ids))
              order by d.id limit p_limit for update loop
    v_number := v_number + 1;
    update fencepost.flow_dead d set replay = v_number, replay_at = v_now, replay_by = p_by where d.id = v_id;
    v_count := v_count + 1;
  end loop;
  return v_count;
end $$;

-- The letters asked for after a number, in order: a source of the flow. Served by flow_dead_replays.
create or replace function fencepost.flow_replays(p_flow text, p_step text, p_after bigint, p_limit integer)
returns table (replay bigint, record bytea)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  perform fencepost._check_limit(p_limit);
  return query
  select d.replay, d.record from fencepost.flow_dead d
  where d.flow = p_flow and d.step = p_step and d.replay is not null and d.replay > p_after
  order by d.replay limit p_limit;
end $$;

-- Delete dead letters for which no replay was requested, the oldest first. Returns how many.
create or replace function fencepost.flow_discard(p_flow text, p_step text, p_ids bigint[], p_limit integer) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_count bigint;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('flow', p_flow, 128);
  perform fencepost._check_text('step', p_step, 128);
  perform fencepost._check_limit(p_limit);
  delete from fencepost.flow_dead d where d.id = any (array(
    select o.id from fencepost.flow_dead o
    where o.flow = p_flow and o.step = p_step and o.replay is null and (p_ids is null or o.id = any (p_ids))
    order by o.id limit p_limit for update));
  get diagnostics v_count = row_count;
  return v_count;
end $$;

-- Delete dead letters that were replayed long ago: those up to the number p_taken, as far as it is still committed, that were asked
-- for longer than p_keep ago. Two kinds stay: the newest of a step, since the next number is counted from it, and what a savepoint does
-- not have or was asked for after it, since a restore of that savepoint reads it again. Returns how many. Served by flow_dead_replays.
create or replace function fencepost.flow_forget(
  p_flow text, p_step text, p_taken bigint, p_keep interval, p_limit integer
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_before timestamptz := fencepost._prune_before(p_keep, p_limit);
  v_sender text := 'dead-' || p_step || ':0';
  v_taken  bigint;
  v_made   timestamptz;
  v_saved  bigint;
  v_count  bigint;
begin
  perform fencepost._check_text('flow', p_flow, 128);
  perform fencepost._check_text('step', p_step, 128);
  -- The caller may have stalled while an operator restored the flow.
  v_taken := least(p_taken, (select min(coalesce((f.frontier -> v_sender ->> 'at')::bigint, 0))
                             from fencepost.flow_frontiers(p_flow) f where f.frontier ? v_sender));
  -- A savepoint without the task that reads them makes it start from the beginning; so does one that has the task at number 0. Of
  -- partitions, only the one of the dead letters reads them.
  select min(p.made_at), min(p.taken) into v_made, v_saved from (
    select min(s.made_at) as made_at,
           coalesce(min(coalesce((s.frontier -> v_sender ->> 'at')::bigint, 0)) filter (
             where s.frontier ? v_sender or (s.number = 0 and split_part(s.resource, '/', 2) <> 'part')), 0) as taken
    from fencepost.flow_savepoint s where s.flow = p_flow group by s.savepoint) p;
  -- In order, and waiting for concurrent deletes: a reader detects by a gap before its position that something is gone.
  delete from fencepost.flow_dead d where d.id = any (array(
    select o.id from fencepost.flow_dead o
    where o.flow = p_flow and o.step = p_step and o.replay <= least(v_taken, v_saved) and o.replay_at < least(v_before, v_made)
      and o.replay < (select n.replay from fencepost.flow_dead n where n.flow = p_flow and n.step = p_step
                      and n.replay is not null order by n.replay desc limit 1)
    order by o.replay limit p_limit for update));
  get diagnostics v_count = row_count;
  return v_count;
end $$;

create or replace view fencepost.flow_dead_letters as
  select d.id, d.flow, d.step, d.resource, d.preview, d.error, d.died_at, d.replay, d.replay_at, d.replay_by,
         d.body, d.answer
  from fencepost.flow_dead d;
