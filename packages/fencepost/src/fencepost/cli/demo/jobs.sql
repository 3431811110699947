-- Removes the jobs of the demo: those of its queues, and those that other parts have named in demo_job. Rows of leases stay: a
-- token never goes back.
-- A schedule that is firing ends first, and its job is found; no other fires after it.
select from fencepost.job_schedule where queue = 'demo' for update;
insert into demo_job select j.job_id from fencepost.job j where j.queue in ('demo', 'demo-zombie');
analyze demo_job;
delete from fencepost.job_waiting t using demo_job d where t.job_id = d.job_id;
delete from fencepost.job_running t using demo_job d where t.job_id = d.job_id;
delete from fencepost.job_finished t using demo_job d where t.job_id = d.job_id;
delete from fencepost.job_suspect t using demo_job d where t.job_id = d.job_id;
delete from fencepost.job_unique t using demo_job d where t.job_id = d.job_id;
delete from fencepost.job_label t using demo_job d where t.job_id = d.job_id;
delete from fencepost.job t using demo_job d where t.job_id = d.job_id;
delete from fencepost.event t using demo_job d where t.noun = 'job' and t.subject = d.job_id::text;
delete from fencepost.refusal t using demo_job d where t.noun = 'job' and t.subject = d.job_id::text;
delete from fencepost.job_tick where schedule in (select name from fencepost.job_schedule where queue = 'demo');
delete from fencepost.job_schedule_run where schedule in (select name from fencepost.job_schedule where queue = 'demo');
delete from fencepost.event where noun = 'schedule' and subject in (select name from fencepost.job_schedule where queue = 'demo');
delete from fencepost.job_schedule where queue = 'demo';
delete from fencepost.job_schedule_release where schedules - 'demo-heartbeat' = '{}';
delete from fencepost.job_need where queue in ('demo', 'demo-zombie');
delete from fencepost.job_queue where queue in ('demo', 'demo-zombie');
delete from fencepost.event where noun = 'queue' and subject in ('demo', 'demo-zombie');
