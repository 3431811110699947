"""The bugs that a test plants by its own hand, by its file: the name, where, what sees it, and the test."""

BY_HAND = {
    "tests/integration/workflows/test_zombies.py": [
        (
            "a step of a workflow is not fenced",
            "job_fence, step_commit",
            "a zombie that stood still inside a step",
            "test_without_its_fence_a_zombie_reserves_twice",
        ),
    ],
    "tests/integration/workflows/test_crash_everywhere.py": [
        (
            "a step commits its writes before its record",
            "a workflow",
            "a crash at every point of every step",
            "test_a_step_that_commits_before_its_record_is_noticed",
        ),
    ],
    "tests/acceptance/torture/test_sinks.py": [
        (
            "files are renamed before their checkpoint is durable",
            "the processes of sinks",
            "sinks under crashes: doubled",
            "test_files_that_are_there_before_their_checkpoint_are_seen",
        ),
    ],
    "tests/acceptance/torture/test_judge_system.py": [
        (
            "every import is a new version",
            "judge_problem_put",
            "the judge under crashes: doubled",
            "test_a_judge_that_forgets_what_it_has_is_caught",
        ),
    ],
    "tests/acceptance/nonces/test_uneven_storm.py": [
        (
            "a count and a missing receipt are taken for proof that a foreign transaction used the nonce",
            "fencepost_nonces/sending/_inquiry.py",
            "a storm behind backends of which one lags: recipients are paid twice",
            "test_a_count_and_a_missing_receipt_taken_for_proof_pay_twice",
        ),
    ],
    "tests/acceptance/test_teeth.py": [
        (
            "a fence bounds no idle time",
            "_bound_idle_time, job_fence",
            "a takeover that waits for a stopped holder",
            "test_without_its_idle_time_a_fence_blocks_the_takeover",
        ),
        (
            "nothing is evicted",
            "lease_evict, job_evict",
            "a takeover that waits for a holder inside COPY",
            "test_without_eviction_a_busy_holder_blocks_the_takeover",
        ),
        (
            "a fence that does not lock",
            "lease_fence",
            "a zombie that commits",
            "test_a_fence_that_does_not_lock_lets_a_zombie_commit",
        ),
        (
            "a fence of a lease that locks too much",
            "lease_fence",
            "the holder's heartbeat",
            "test_a_fence_that_locks_too_much_blocks_the_heartbeat_of_a_lease",
        ),
        (
            "a fence of a job that locks too much",
            "job_fence",
            "the holder's heartbeat",
            "test_a_fence_that_locks_too_much_blocks_the_heartbeat_of_a_job",
        ),
        (
            "a renewal of many that waits",
            "job_renew_many",
            "one open finish holds up the others",
            "test_a_renewal_that_waits_is_held_up_by_one_open_finish",
        ),
        (
            "a finish that asks the clock again",
            "_job_is_fenced",
            "fenced work that is lost",
            "test_a_finish_that_asks_the_clock_again_loses_fenced_work",
        ),
        (
            "an eviction of the direct blocker",
            "_evict",
            "fellow takers are ended",
            "test_an_eviction_that_ends_its_direct_blocker_ends_fellow_takers",
        ),
        (
            "an eviction that forgets what was seen",
            "_evict",
            "the winner is ended",
            "test_an_eviction_that_forgets_what_was_seen_ends_the_winner",
        ),
        (
            "an eviction without its grace",
            "lease_evict",
            "a holder is ended too early",
            "test_an_eviction_that_does_not_ask_for_the_grace_ends_a_holder_too_early",
        ),
    ],
    "tests/integration/client/test_round_trip.py": [
        (
            "a commit travels before the call that it depends on",
            "fencepost/_round_trip.py",
            "a last call that is refused",
            "test_a_commit_that_travels_before_the_last_call_keeps_what_is_refused",
        ),
        (
            "the names of prepared statements are kept when psycopg removes them",
            "fencepost/pool.py",
            "a fence after a rollback",
            "test_a_client_that_does_not_hear_what_psycopg_removes_fails_at_the_next_fence",
        ),
    ],
    "tests/integration/job_features/test_group_commit.py": [
        (
            "a group asks for no answer of fence and finish",
            "GroupCommit",
            "a zombie that writes",
            "test_a_group_that_asks_for_no_answer_of_the_finish_writes_for_a_zombie",
        ),
    ],
    "tests/acceptance/test_killed_mutation.py": [
        (
            "the key commits first, in a transaction of its own",
            "the caller",
            "an effect that is lost",
            "test_a_key_in_a_transaction_of_its_own_is_caught",
        ),
        (
            "the key commits last, in a transaction of its own",
            "the caller",
            "an effect that is doubled",
            "test_a_key_in_a_transaction_of_its_own_is_caught",
        ),
    ],
    "tests/integration/players/test_teeth.py": [
        (
            "the key comes after the write",
            "_player_execute",
            "a copy of the request doubles it",
            "test_a_key_that_comes_after_the_write_doubles_it",
        ),
        (
            "the key is outside of the transaction",
            "fencepost_players/mutations/pipeline.py",
            "a crash loses the effect",
            "test_a_key_outside_the_transaction_loses_the_effect",
        ),
        (
            "the seed of a failed request is not recorded",
            "fencepost_players/mutations/pipeline.py",
            "other draws when the request is sent again",
            "test_dice_that_are_not_recorded_can_be_chosen",
        ),
        (
            "no digest of the request",
            "kernel/idempotency.py",
            "another request gets the first one's answer",
            "test_without_a_digest_another_request_gets_the_first_ones_answer",
        ),
        (
            "players are locked in the order of the request",
            "_player_lock",
            "a gift that holds its giver while it waits for its taker",
            "test_a_lock_in_the_order_of_the_request_holds_one_and_waits_for_the_other",
        ),
        (
            "the locked row is not judged",
            "_player_amounts_unfit",
            "a balance below zero",
            "test_without_the_locked_rows_judgement_a_balance_falls_below_zero",
        ),
    ],
    "tests/integration/players/test_model.py": [
        (
            "what is taken is not taken",
            "_player_change_amounts",
            "random sequences against the model",
            "test_a_service_that_forgets_to_take_is_caught",
        )
    ],
    "tests/acceptance/players/test_frozen.py": [
        (
            "the holder of a player is not looked up",
            "fencepost_players/mutations/blocker_eviction.py",
            "a mutation that waits for a holder inside COPY",
            "test_without_the_looks_the_holder_blocks_the_player_and_the_request_is_aborted",
        )
    ],
    "tests/integration/webhooks/test_registered_webhooks.py": [
        (
            "a rotation ends the old secret at once",
            "webhook_rotate",
            "a receiver that refuses what it should accept",
            "test_a_rotation_that_ends_the_old_secret_at_once_would_be_seen",
        ),
        (
            "a publication does not lock its webhook",
            "_webhook_publish",
            "a message that waits for a webhook that is gone",
            "test_a_publication_that_does_not_lock_its_webhook_would_strand_a_message",
        ),
    ],
    "tests/integration/orders/test_events.py": [
        (
            "a parked order is told with each question",
            "_orders_tell_transition",
            "two events for one transition",
            "test_a_question_that_is_told_as_a_transition_would_be_seen",
        ),
        (
            "the end of an expired order is not told",
            "_orders_expire_one",
            "a transition without its event",
            "test_an_expiry_that_is_not_told_would_be_seen",
        ),
    ],
    "tests/acceptance/orders/test_crash_points.py": [
        (
            "a worker that stood still sends what it took long ago",
            "fencepost_orders/_sender.py",
            "two orders at the broker",
            "test_a_worker_that_does_not_look_at_its_lease_would_place_a_second_order",
        ),
    ],
    "tests/integration/orders/test_teeth.py": [
        (
            "a stuck order is rewound",
            "fencepost_orders/_order_source.py",
            "two orders at the broker",
            "test_a_rewind_instead_of_a_question_doubles_an_order",
        ),
        (
            "a 5xx is taken for nothing done",
            "fencepost_orders/_outcome.py",
            "two orders at the broker",
            "test_a_planted_bug_doubles_an_order_and_the_right_code_does_not",
        ),
        (
            "absence is taken for proof",
            "fencepost_orders/_resend.py",
            "two orders at the broker",
            "test_a_planted_bug_doubles_an_order_and_the_right_code_does_not",
        ),
        (
            "dead behind an open request",
            "_orders_open_after",
            "an order that lives and is called dead",
            "test_dead_behind_an_open_request_would_be_a_live_order_called_dead",
        ),
    ],
    "tests/integration/orders/test_changes.py": [
        (
            "a broker's yes is taken for the cancel",
            "fencepost_orders/_changer.py",
            "an order that is reported cancelled and is filled",
            "test_a_yes_that_is_taken_for_the_cancel_reports_a_filled_order_as_cancelled",
        ),
    ],
    "tests/integration/orders/test_change_fences.py": [
        (
            "a change is refused while a request of it may take effect",
            "orders_change_settle",
            "a replacement that no worker looks for",
            "test_without_the_look_at_earlier_requests_a_change_would_be_refused_that_may_take_effect",
        ),
    ],
    "tests/integration/orders/test_limits.py": [
        (
            "the sums of a day are read without their lock",
            "_orders_over_limit",
            "a limit that two orders pass together",
            "test_without_the_lock_of_the_day_two_orders_pass_a_limit_together",
        ),
    ],
    "tests/integration/flows/test_teeth.py": [
        (
            "a durable checkpoint that is not flagged is skipped",
            "flows/sinks/files.py",
            "effects that are lost",
            "test_skipping_a_durable_checkpoint_that_is_not_flagged_loses_its_effects",
        ),
        (
            "a script without its frontier",
            "flows/sinks/take.lua",
            "effects that are doubled",
            "test_a_script_without_its_frontier_check_doubles",
        ),
        (
            "acknowledged before the commit",
            "flows/_task.py",
            "a source that was trimmed too far",
            "test_acknowledging_before_the_commit_is_found_when_the_flow_starts_again",
        ),
    ],
    "tests/integration/flows/test_regroup.py": [
        (
            "a new key group takes what the groups of before had taken",
            "flows/_taken.py",
            "effects that are doubled",
            "test_without_what_the_groups_had_taken_records_are_doubled",
        ),
    ],
    "tests/unit/flows/test_time_teeth.py": [
        (
            "a silence is not stored with its effects",
            "flows/_watermarks.py",
            "a replay that decides otherwise",
            "test_a_silence_that_is_not_stored_is_decided_again",
        ),
        (
            "records are merged by their own time, not by when they were known",
            "flows/_merge.py",
            "firings that depend on batches",
            "test_records_merged_by_their_own_time_fire_by_batches",
        ),
        (
            "event time forgets how long a window takes updates",
            "flows/_windows.py",
            "late records whose window is open",
            "test_a_window_that_forgets_its_updates_calls_records_late",
        ),
        (
            "an interval join drops records before their last partner can come",
            "flows/_window_steps.py",
            "pairs that are lost",
            "test_records_that_an_interval_drops_too_early_miss_their_partners",
        ),
        (
            "the branches of a stream are joined batch by batch",
            "flows/_window_steps.py",
            "pairs that depend on batches",
            "test_branches_that_are_not_put_in_order_miss_each_other",
        ),
        (
            "the clock of windows in processing time goes back",
            "flows/_plan.py",
            "windows that close twice",
            "test_a_clock_that_goes_back_opens_windows_again",
        ),
    ],
    "tests/integration/job_features/test_batches.py": [
        (
            "a batch is counted without its lock",
            "_batch_count",
            "a callback that is never called",
            "test_a_planted_bug_forgets_the_callback",
        )
    ],
    "tests/integration/job_features/test_rates.py": [
        (
            "a grant costs no token",
            "_rate_take",
            "more than the rate",
            "test_a_planted_bug_takes_tokens_for_nothing",
        )
    ],
    "tests/integration/kernel/test_job_need.py": [
        (
            "a claim does not ask whether its worker serves the kind",
            "_job_serves",
            "a job that the wrong worker holds",
            "test_a_planted_bug_takes_what_its_worker_does_not_serve",
        ),
        (
            "setting aside costs a try",
            "_job_start",
            "a try that was charged",
            "test_a_planted_bug_charges_a_try_for_setting_aside",
        ),
        (
            "a need is compared in part",
            "_need_is_served",
            "a job that goes to and fro",
            "test_a_planted_bug_compares_only_what_the_last_worker_lacked",
        ),
        (
            "a need in use is not locked",
            "_job_need",
            "a job that no claim finds",
            "test_a_planted_bug_forgets_a_need_that_is_in_use",
        ),
    ],
    "tests/integration/jobs/test_rolling_deploys.py": [
        (
            "a worker of streams forgets what is in none",
            "jobs/_fetcher.py",
            "jobs that are never claimed",
            "test_a_planted_bug_leaves_what_was_set_aside_to_nobody",
        ),
        (
            "a worker knows every argument",
            "jobs/_handler.py",
            "a job that is buried",
            "test_a_planted_bug_buries_what_an_old_worker_does_not_know",
        ),
    ],
}
