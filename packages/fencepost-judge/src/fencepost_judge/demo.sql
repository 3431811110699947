-- Removes the contest demo-cup with its submissions, and the problems whose names begin with demo-. Their test data stays in the
-- store, where it lies under its digest.
insert into demo_job select s.job_id from fencepost.judge_submission s where s.contest = 'demo-cup';
delete from fencepost.judge_result t using demo_job d where t.job_id = d.job_id;
delete from fencepost.judge_ended t using demo_job d where t.job_id = d.job_id;
delete from fencepost.judge_store_wait t using demo_job d where t.job_id = d.job_id;
insert into demo_job select r.job_id from fencepost.judge_rejudged r join demo_job d on d.job_id = r.submission_id;
delete from fencepost.judge_rejudged t using demo_job d where t.submission_id = d.job_id;
delete from fencepost.judge_submission where contest = 'demo-cup';
delete from fencepost.judge_clarification where contest = 'demo-cup';
delete from fencepost.judge_feed where contest = 'demo-cup';
delete from fencepost.judge_feed_head where contest = 'demo-cup';
delete from fencepost.judge_revealed where contest = 'demo-cup';
delete from fencepost.judge_contestant where contest = 'demo-cup';
delete from fencepost.judge_team_group where contest = 'demo-cup';
delete from fencepost.judge_team where contest = 'demo-cup';
delete from fencepost.judge_group where contest = 'demo-cup';
delete from fencepost.judge_organization where contest = 'demo-cup';
delete from fencepost.judge_contest_problem where contest = 'demo-cup';
delete from fencepost.judge_contest where slug = 'demo-cup';
delete from fencepost.judge_problem where slug in ('demo-fence-posts', 'demo-painted-fence');
delete from fencepost.event where noun = 'judge_contest' and subject = 'demo-cup';
