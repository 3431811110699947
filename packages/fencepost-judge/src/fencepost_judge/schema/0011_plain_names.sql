-- Custom runs, and the numbers of the workers, under plain names.
alter table fencepost.judge_trial rename to judge_custom_run;
alter table fencepost.judge_custom_run rename constraint judge_trial_pkey to judge_custom_run_pkey;
alter index fencepost.judge_trial_by_expiry rename to judge_custom_run_by_expiry;
alter table fencepost.judge_turn rename to judge_worker_lock;
alter table fencepost.judge_worker_lock rename constraint judge_turn_pkey to judge_worker_lock_pkey;
alter table fencepost.judge_worker_lock rename constraint judge_turn_has_one_row to judge_worker_lock_has_one_row;
alter table fencepost.judge_worker rename column place to number;
alter table fencepost.judge_worker rename constraint judge_worker_place_is_positive to judge_worker_number_is_positive;
alter view if exists fencepost.judge_workers rename column place to number;
alter table fencepost.judge_rejudging
  rename constraint judge_rejudging_is_settled_by_somebody to judge_rejudging_settled_has_an_actor;
alter table fencepost.judge_clarification
  rename constraint judge_clarification_is_answered_by_somebody to judge_clarification_answer_has_an_author;

-- Their names, arguments or answers are others now.
drop function if exists fencepost.judge_trial_put(bigint, text, text, jsonb, text, interval);
drop function if exists fencepost.judge_trial_get(bigint);
drop function if exists fencepost.judge_trial_done(bigint, bigint, text, jsonb);
drop function if exists fencepost.judge_trial_prune(integer);
drop function if exists fencepost._judge_worker_resource(integer);
drop function if exists fencepost.judge_worker_enter(text, text, text, jsonb, integer, integer, text, jsonb, interval);
drop function if exists fencepost.judge_worker_beat(integer, bigint, text, integer, double precision, interval);
drop function if exists fencepost.judge_worker_leave(integer, bigint, text);
