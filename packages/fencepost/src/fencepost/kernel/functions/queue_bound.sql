-- The bound of a queue. Workers count its waiting jobs every few seconds, and a submission reads the count.
-- When no worker has counted for a while, no worker takes jobs either: then each submission counts for
-- itself, up to the bound. That is slower, which is acceptable for a full queue, and writes nothing, so that
-- a long transaction blocks no other.
--
-- So the bound is a brake, not an invariant. A count is as old as the last sweep, and does not include
-- uncommitted jobs of other transactions: between two counts every submission that fits beside the count
-- alone is admitted, and together they may pass the bound. One submission never passes it by itself.

-- How many jobs of a queue wait, not counting past p_limit. Served by the indexes over waiting rows.
create or replace function fencepost._queue_waiting(p_queue text, p_limit bigint) returns bigint
language sql stable
as $$
  select least(p_limit,
    (select count(*) from (select 1 from fencepost.job_waiting w where hashtext(w.queue) = hashtext(p_queue)
                           and w.queue = p_queue and w.dispatched_at is null and w.need_id is null limit p_limit) pending)
    + (select count(*) from (select 1 from fencepost.job_need n join fencepost.job_waiting w on w.need_id = n.need_id
                             where n.queue = p_queue limit p_limit) aside)
    + (select count(*) from (select 1 from fencepost.job_waiting w where hashtext(w.queue) = hashtext(p_queue)
                             and w.queue = p_queue and w.dispatched_at is not null limit p_limit) dispatched))
$$;

-- Raise when a queue has no room for p_count more. Jobs whose unique key is taken are counted too: that is
-- not known before they are written.
create or replace function fencepost._queue_check_room(p_queue text, p_count integer) returns void
language plpgsql volatile
as $$
declare
  v_queue fencepost.job_queue;
begin
  select * into v_queue from fencepost.job_queue q where q.queue = p_queue and q.waiting_max is not null;
  if not found then
    return;
  end if;
  if v_queue.counted_at < fencepost.clock() - interval '30 seconds' then
    v_queue.waiting_now := fencepost._queue_waiting(p_queue, v_queue.waiting_max);
  end if;
  if v_queue.waiting_now + p_count > v_queue.waiting_max then
    raise exception 'queue % has % waiting jobs%; at most % may wait.', p_queue, v_queue.waiting_now,
      case when p_count > 1 then format(', and %s more were submitted at once', p_count) else '' end, v_queue.waiting_max
      using errcode = 'ZF102', hint = 'Submit more slowly or fewer at once, add workers, or raise the bound of the queue.';
  end if;
end $$;
