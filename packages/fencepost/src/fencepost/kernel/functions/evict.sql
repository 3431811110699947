-- Whether a backend has committed and waits for a synchronous standby to have it too. Terminated there, it has
-- committed all the same and is visible, and the next failover loses it. The wait shows to members of
-- pg_read_all_stats; to others every backend may be waiting where standbys are synchronous.
create or replace function fencepost._awaits_standby(p_pid integer) returns boolean
language sql volatile
as $$
  select case when pg_has_role('pg_read_all_stats', 'usage')
              then exists (select 1 from pg_stat_activity a where a.pid = p_pid and a.wait_event = 'SyncRep')
              else current_setting('synchronous_standby_names') <> '' end
$$;

-- Terminate the backends that keep p_waiter from its row, and record it. Callers re-check the expiry first.
--
-- Several may wait for one row. The first in line holds the row's tuple lock and waits for the backend that
-- locked the row; the others wait for the first. The first is a taker like the others, so it is never
-- terminated, only the backend that it waits for.
--
-- Only while p_waiter waits for a row of p_table: otherwise any expired lease would permit terminating a
-- backend that blocks the caller elsewhere. A backend that waits for a row has, or waits for, the lock on its
-- tuple.
--
-- p_seen is the answer of an earlier call: only those backends are terminated now, and the answer is the
-- current blockers. So a taker that has just got the row, and is about to commit, is not mistaken for the
-- holder. Null terminates all at once. A backend that waits for its standby is never terminated.
create or replace function fencepost._evict(
  p_noun text, p_subject text, p_waiter integer, p_table regclass, p_seen integer[]
) returns setof integer
language plpgsql volatile
as $$
declare
  v_first integer;
  v_pid   integer;
  v_now   timestamptz;
begin
  if not exists (select 1 from pg_stat_activity a where a.pid = p_waiter and a.usename = session_user
                   and a.datname = current_database()) then
    raise exception 'waiter % is no backend of % in this database.', p_waiter, session_user
      using errcode = 'ZF100', detail = '{"field": "waiter"}';
  end if;
  v_first := (select f.pid from pg_locks w join pg_locks f on f.locktype = 'tuple' and f.granted
                and (f.database, f.relation, f.page, f.tuple) = (w.database, w.relation, w.page, w.tuple)
              where w.pid = p_waiter and w.locktype = 'tuple' and w.relation = p_table limit 1);
  foreach v_pid in array coalesce(pg_blocking_pids(v_first), '{}') loop
    -- 0 stands for a prepared transaction: it has no backend, and was prepared on purpose.
    continue when v_pid = 0;
    if (p_seen is null or v_pid = any (p_seen)) and not fencepost._awaits_standby(v_pid) then
      -- Written with the earlier time: the waiter takes over while this is still being written.
      v_now := fencepost.clock();
      perform pg_terminate_backend(v_pid);
      perform fencepost._event(v_now, p_noun, p_subject, 'evicted', session_user, null,
                               jsonb_build_object('pid', v_pid, 'waiter', p_waiter));
    end if;
    return next v_pid;
  end loop;
end $$;
