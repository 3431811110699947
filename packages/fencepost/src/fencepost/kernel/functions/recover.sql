-- After a restore from a backup, or a failover that lost commits: the database went back in time, and nothing
-- else did. Clients that were active in the lost time may hold tokens, attempts, takes and ids that would be
-- issued a second time, to another client.
--
-- So every fencing number jumps past all that can have been issued, every lease is freed, every running job
-- waits again, and the entries in Redis are void: the jobs are dispatched again, and an old entry finds no
-- job that it may start.
--
-- A component may have its own function _recover_NAME(actor), which runs before this, in the same
-- transaction (lineage.sql).

-- How far the numbers jump. More than is ever issued in the time between a backup and its restore, and small
-- enough for thousands of jumps to stay exact in JSON, whose numbers are exact below 2^53.
create or replace function fencepost._recover_jump() returns bigint
language sql immutable parallel safe
as $$ select 1000000000000 $$;

create or replace function fencepost._recover_ids(p_table text, p_column text) returns void
language plpgsql volatile
as $$
declare
  v_sequence regclass := pg_get_serial_sequence(p_table, p_column);
begin
  perform setval(v_sequence, coalesce(pg_sequence_last_value(v_sequence), 0) + fencepost._recover_jump());
end $$;

-- Put every running job back, and let the attempts of all live jobs continue above p_floor. A job that was
-- running at the restored moment did not fail: that try is not counted.
create or replace function fencepost._recover_jobs(p_floor bigint, p_now timestamptz) returns bigint
language plpgsql volatile
as $$
declare
  v_running fencepost.job_running;
  v_count   bigint := 0;
begin
  for v_running in select * from fencepost.job_running r order by r.job_id for update loop
    perform fencepost._job_put_back(v_running, p_now, greatest(0, v_running.tries - 1), 'recovered from a backup', p_now);
    v_count := v_count + 1;
  end loop;
  update fencepost.job_waiting w set attempt = p_floor, dispatched_at = null, entry_id = null, incarnation = null;
  perform fencepost._recover_ids('fencepost.job', 'job_id');
  return v_count;
end $$;

-- End all takes: the channel's relay treats the messages like those of a relay that stopped responding.
create or replace function fencepost._recover_outbox(p_floor bigint, p_now timestamptz) returns bigint
language plpgsql volatile
as $$
declare
  v_count bigint;
begin
  select count(*) into v_count from fencepost.outbox o where o.state = 'sending';
  update fencepost.outbox o set take = p_floor, taken_until = p_now where o.state = 'sending';
  update fencepost.outbox o set take = p_floor, owner = null, taken_until = null where o.state <> 'sending';
  perform fencepost._recover_ids('fencepost.outbox', 'id');
  return v_count;
end $$;

-- Raise all numbers, above p_floor too; returns what was found. May be repeated: each call is another jump. Only
-- the schema's owner may call it.
create or replace function fencepost._recover(p_actor text, p_floor bigint) returns jsonb
language plpgsql volatile
as $$
declare
  v_now    timestamptz := fencepost.clock();
  v_floor  bigint;
  v_leases bigint;
  v_found  jsonb;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('actor', p_actor, 256);
  -- No acquisition, claim or take happens while the numbers jump.
  lock table fencepost.lease, fencepost.job_waiting, fencepost.job_running, fencepost.outbox in share row exclusive mode;
  select greatest(p_floor, f.floor, (select max(l.token) from fencepost.lease l), (select max(w.attempt) from fencepost.job_waiting w),
                  (select max(r.attempt) from fencepost.job_running r), (select max(o.take) from fencepost.outbox o))
         + fencepost._recover_jump()
  into v_floor from fencepost.token_floor f for update;
  update fencepost.token_floor f set floor = v_floor;
  select count(*) into v_leases from fencepost.lease l where l.owner is not null;
  -- The token too, not only the owner: an open fence has locked it, so this waits until every fenced write
  -- has ended. Without it such a write could still commit after the tokens have jumped.
  update fencepost.lease l set token = v_floor, owner = null;
  v_found := jsonb_build_object('floor', v_floor, 'leases', v_leases, 'jobs', fencepost._recover_jobs(v_floor, v_now),
                                'messages', fencepost._recover_outbox(v_floor, v_now));
  perform fencepost._event(v_now, 'kernel', 'recovery', 'recovered', p_actor, v_floor, v_found);
  return v_found;
end $$;
