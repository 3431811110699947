-- End the backends that block p_waiter, and write down that it was done. Callers re-check the expiry first.
--
-- Only while p_waiter waits for a row of p_table: otherwise any expired lease would be a licence to end whoever stands in
-- the caller's way elsewhere. Who waits for a row has, or waits for, the lock on its tuple.
create or replace function fencepost._evict(p_noun text, p_subject text, p_waiter integer, p_table regclass) returns setof integer
language plpgsql volatile
as $$
declare
  v_pid integer;
begin
  if not exists (select 1 from pg_stat_activity a where a.pid = p_waiter and a.usename = session_user
                   and a.datname = current_database()) then
    raise exception 'waiter % is no backend of % in this database.', p_waiter, session_user
      using errcode = 'ZF100', detail = '{"field": "waiter"}';
  end if;
  if not exists (select 1 from pg_locks k where k.pid = p_waiter and k.locktype = 'tuple' and k.relation = p_table) then
    return;
  end if;
  foreach v_pid in array pg_blocking_pids(p_waiter) loop
    -- 0 stands for a prepared transaction: it has no backend, and somebody prepared it on purpose.
    continue when v_pid = 0;
    perform pg_terminate_backend(v_pid);
    perform fencepost._event(fencepost.clock(), p_noun, p_subject, 'evicted', session_user, null,
                             jsonb_build_object('pid', v_pid, 'waiter', p_waiter));
    return next v_pid;
  end loop;
end $$;
