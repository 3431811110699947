\set i :i + 1
\set id :first + :client_id * :each + :i
begin;
select fencepost.job_fence(:id, 1, 'pgbench');
insert into public.effect (job, who) values ('load', 'pgbench');
select fencepost.job_finish(:id, 1, 'pgbench');
commit;
