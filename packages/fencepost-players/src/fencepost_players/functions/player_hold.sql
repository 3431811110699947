-- How long a transaction may hold a player's row while others wait for it. A transaction that idles is ended
-- after half of it, by a timeout that the lock sets; one that hangs inside COPY, or with an unread result, is
-- terminated by a backend that waits for the row.

create or replace function fencepost._player_hold_max() returns interval
language sql immutable
as $$ select interval '20 seconds' $$;

-- Terminate backends that have held one of these players' rows longer than that while others wait, and record
-- it; returns their pids. A backend of the calling role must wait for the row. The first waiter waits for the
-- holder's transaction, and the server knows since when: so a backend that has just got the row is not
-- terminated. Locks nothing; players are found by their key.
create or replace function fencepost.player_evict(p_players text[]) returns setof integer
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_before timestamptz := fencepost.clock() - fencepost._player_hold_max();
  v        record;
begin
  perform fencepost._require_read_committed();
  for v in
    select p.player_id, min(w.pid) as waiter
    from unnest(p_players) x
    join fencepost.player p on p.player_id = x
    join pg_locks w on w.locktype = 'tuple' and w.relation = 'fencepost.player'::regclass
      and format('(%s,%s)', w.page, w.tuple)::tid = p.ctid
    join pg_stat_activity a on a.pid = w.pid and a.usename = session_user and a.datname = current_database()
    where exists (
      select from pg_locks f join pg_locks t on t.pid = f.pid and t.locktype = 'transactionid' and t.waitstart <= v_before
      where f.locktype = 'tuple' and f.granted
        and (f.database, f.relation, f.page, f.tuple) = (w.database, w.relation, w.page, w.tuple))
    group by p.player_id order by p.player_id
  loop
    return query select fencepost._evict('player', v.player_id, v.waiter, 'fencepost.player', null);
  end loop;
end $$;
