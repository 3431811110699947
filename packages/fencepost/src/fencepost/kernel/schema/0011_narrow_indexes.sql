-- Every job passes through these tables once, and an entry in an index costs as much as the row. Two were dearer than they
-- need be, and one is not needed.

-- What waits in one lane of one queue, by a number that stands for the queue: an entry that begins with a text takes half as
-- long again to find its place. Who asks by the number asks for the queue too, because another may have the same.
drop index fencepost.job_waiting_pending;
create index job_waiting_pending on fencepost.job_waiting (hashtext(queue), lane, run_at, job_id) where dispatched_at is null;
drop index fencepost.job_waiting_dispatched;
create index job_waiting_dispatched on fencepost.job_waiting (hashtext(queue), lane, dispatched_at, job_id)
  where dispatched_at is not null;

-- The fence lock of a running job, without an index of its own: a row keeps its attempt for as long as it is there. Whoever
-- takes the job over deletes it, and so waits for FOR KEY SHARE; a renewal does not, and passes.
alter table fencepost.job_running drop constraint job_running_fence_key;
create function fencepost._job_keeps_its_attempt() returns trigger
language plpgsql
as $$
begin
  raise exception 'job % runs under attempt %, which never changes: another attempt is another row.', old.job_id, old.attempt;
end $$;
create trigger job_running_keeps_its_attempt before update of attempt on fencepost.job_running
  for each row when (old.attempt <> new.attempt) execute function fencepost._job_keeps_its_attempt();
