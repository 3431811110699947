-- The four shares of a queue are called priorities, as users know them.
alter table fencepost.job rename column lane to priority;
alter table fencepost.job rename constraint job_lane_is_known to job_priority_is_known;
alter table fencepost.job_waiting rename column lane to priority;
alter table fencepost.job_running rename column lane to priority;
alter table fencepost.job_schedule rename column lane to priority;
alter view if exists fencepost.jobs rename column lane to priority;
alter view if exists fencepost.schedules rename column lane to priority;

-- Their names, arguments or answers are others now.
drop function if exists fencepost._job_check_terms(text, text, integer, integer, interval);
drop function if exists fencepost.job_submit(
  text, text, jsonb, integer, timestamptz, integer, interval, text, text, integer, jsonb);
drop function if exists fencepost.job_submit_many(
  text, text, jsonb[], integer, timestamptz, integer, interval, text[], text[], integer, jsonb[]);
drop function if exists fencepost.job_dispatch(text, integer, integer, interval);
drop function if exists fencepost._lane_parts(integer, integer[], bigint);
drop function if exists fencepost._lanes_due(text, integer, boolean, timestamptz, timestamptz[]);
drop function if exists fencepost.job_dispatch_lanes(text, integer, interval);
drop function if exists fencepost.job_driven(text, integer, interval, timestamptz, bigint, integer);
drop function if exists fencepost._job_start(bigint[], bigint[], text, interval, timestamptz);
drop function if exists fencepost._job_claim(bigint[], text, interval, boolean);
drop function if exists fencepost._job_claim_one(bigint, text, interval);
drop function if exists fencepost.job_claim(bigint, text, interval);
drop function if exists fencepost.job_claim_many(bigint[], text, interval);
drop function if exists fencepost._job_due(text, integer, integer, boolean, timestamptz, timestamptz);
drop function if exists fencepost.job_claim_next(text, integer, text, integer, interval, boolean);
drop function if exists fencepost.job_claim_lanes(text, text, integer, interval, boolean, bigint, timestamptz[]);
drop function if exists fencepost.schedule_declare(
  text, text, text, text, interval, timestamptz, text, text, jsonb, integer, integer, interval, text, text, integer, jsonb);
