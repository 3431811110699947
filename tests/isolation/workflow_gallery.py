"""Bugs that workflows on a kernel like this one can have."""

from tests.isolation.planted_bug import Edit, PlantedBug

WORKFLOW = (
    PlantedBug(
        "a step does not lock its workflow",
        "workflow: a step meets a release",
        (Edit("step_commit", " for key share", ""),),
    ),
    PlantedBug(
        "a step locks so hard that the heartbeat waits",
        "workflow: a renewal passes a step",
        (Edit("step_commit", "for key share", "for no key update"),),
    ),
    PlantedBug(
        "a step does not compare the attempt",
        "workflow: a late step meets a takeover by its own owner",
        (Edit("step_commit", " and r.attempt = p_attempt", ""),),
    ),
    PlantedBug(
        "a step does not look at the clock",
        "workflow: a late step meets a reclaim",
        (Edit("step_commit", "h.expires_at > fencepost.clock() and ", ""),),
    ),
    PlantedBug(
        "a step does not look at the cancel",
        "workflow: a step meets a cancel",
        (Edit("step_commit", " and h.cancel_requested_at is null", ""),),
    ),
    PlantedBug(
        "a step forgets that it has passed its fence",
        "workflow: a fenced step and a reclaim (commit)",
        (
            Edit("step_commit", " or fencepost._job_is_fenced(p_id, p_attempt)", ""),
            Edit("_step_fence", "and not fencepost._job_is_fenced(p_id, p_attempt)", ""),
        ),
    ),
    PlantedBug(
        "a step that is known is taken for a new one",
        "workflow: one step twice",
        (Edit("_step_write", "return false;", "return true;"),),
    ),
    PlantedBug(
        "a step does not compare its arguments",
        "workflow: one step with other arguments",
        (Edit("_step_refuse_known", "v_known.digest <> p_digest", "false"),),
    ),
    PlantedBug(
        "steps of many wait for a row that another holds",
        "workflow: steps of many meet a release",
        (Edit("_steps_held", " skip locked", ""),),
    ),
    PlantedBug(
        "steps of many do not compare the attempt",
        "workflow: late steps of many meet a takeover by their own owner",
        (Edit("_steps_held", "and r.attempt = a.attempt and r.owner", "and r.owner"),),
    ),
    PlantedBug(
        "steps of many do not look at the cancel",
        "workflow: steps of many meet a cancel",
        (Edit("_steps_held", " and r.cancel_requested_at is null", ""),),
    ),
    PlantedBug(
        "steps of many lock so hard that the heartbeat passes them over",
        "workflow: a renewal passes steps of many",
        (Edit("_steps_held", "for key share of r", "for no key update of r"),),
    ),
    PlantedBug(
        "a written step takes what another has recorded meanwhile for its own",
        "workflow: one written step twice",
        (Edit("step_commit_all", "if v_written < cardinality(p_ids) then", "if false then"),),
    ),
    PlantedBug(
        "a written step does not ask for its attempt again",
        "workflow: a late written step meets a takeover by its own owner",
        (
            Edit(
                "step_commit_all",
                "perform fencepost._step_fence(v.job_id, v.attempt, p_owner, 'step', v.name);",
                "",
            ),
        ),
    ),
    PlantedBug(
        "a sleep does not look at the cancel",
        "workflow: a sleep meets a cancel",
        (Edit("_workflow_hold", " or (v.running).cancel_requested_at is not null", ""),),
    ),
    PlantedBug(
        "an await looks for its event without the lock",
        "workflow: an await meets an emission",
        (Edit("event_await", "perform fencepost._event_lock(p_event);", ""),),
    ),
    PlantedBug(
        "an emission looks for what waits without the lock",
        "workflow: an await meets an emission",
        (Edit("event_emit", "perform fencepost._event_lock(p_event);", ""),),
    ),
    PlantedBug(
        "an emission wakes no waiter",
        "workflow: an await meets an emission",
        (Edit("event_emit", "set run_at = v_now", "set run_at = j.run_at"),),
    ),
    PlantedBug(
        "the last emission stays",
        "workflow: two emissions",
        (
            Edit(
                "event_emit",
                "on conflict (event) do nothing",
                "on conflict (event) do update set payload = excluded.payload",
            ),
        ),
    ),
    PlantedBug(
        "a join does not lock the batch",
        "workflow: a join meets the end of the last child",
        (
            Edit(
                "workflow_join_any",
                "perform 1 from fencepost.job_batch b where b.batch_id = any (p_batches)"
                " order by b.batch_id for no key update;",
                "",
            ),
            Edit(
                "workflow_join_any",
                "update fencepost.job_batch b set awaited = true"
                " where b.batch_id = any (p_batches) and not b.awaited;",
                "",
            ),
        ),
    ),
    PlantedBug(
        "a spawn is not fenced",
        "workflow: a spawn meets a release",
        (
            Edit(
                "workflow_spawn",
                "perform fencepost._step_fence(p_id, p_attempt, p_owner, 'spawn', p_name);",
                "",
            ),
        ),
    ),
    PlantedBug(
        "a spawn does not lock its workflow",
        "workflow: a spawn meets a release",
        (Edit("_step_fence", " for key share", ""),),
    ),
    PlantedBug(
        "a spawn locks so hard that the heartbeat waits",
        "workflow: a renewal passes a spawn",
        (Edit("_step_fence", "for key share", "for no key update"),),
    ),
    PlantedBug(
        "a spawn does not look at the cancel",
        "workflow: a spawn meets a cancel",
        (Edit("_step_fence", " or v_running.cancel_requested_at is not null", ""),),
    ),
    PlantedBug(
        "an end forgets the undo",
        "workflow: two burials",
        (Edit("_job_ended", "perform fencepost._workflow_undo(p_ids, p_now);", "null;"),),
    ),
    PlantedBug(
        "a finished workflow is undone too",
        "workflow: a burial meets a finish",
        (Edit("_workflow_undo", " and f.state in ('dead', 'cancelled')", ""),),
    ),
    PlantedBug(
        "a retry from a step does not lock what it retries",
        "workflow: two retries from a step",
        (
            Edit(
                "workflow_retry_from",
                " and f.state in ('dead', 'cancelled') for update",
                " and f.state in ('dead', 'cancelled')",
            ),
            Edit(
                "workflow_retry_from",
                "perform fencepost.job_replay(p_id, p_actor, v_finished.state);",
                "with gone as (delete from fencepost.job_finished f where f.job_id = p_id returning f.*)"
                " insert into fencepost.job_waiting (job_id, queue, priority, run_at, attempt)"
                " select g.job_id, g.queue, 1, fencepost.clock(), g.attempt from gone g;",
            ),
        ),
    ),
    PlantedBug(
        "what parks or restarts a workflow does not ask whether it runs",
        "workflow: a restart meets a finish",
        (Edit("_workflow_hold", "v.refusal is not null or ", ""),),
    ),
    PlantedBug(
        "a child that ends is not counted",
        "workflow: a join meets the burial of the last child",
        (Edit("_job_ended", "perform fencepost._batch_count(p_ids, p_now);", "null;"),),
    ),
    PlantedBug(
        "an undo that is done wakes nothing",
        "workflow: two ends of an undo",
        (Edit("_workflow_undo_next", "set run_at = p_now", "set run_at = w.run_at"),),
    ),
    PlantedBug(
        "an undo that is dead calls the next",
        "workflow: two ends of an undo",
        (
            Edit(
                "_workflow_undo_next", "in ('finished', 'cancelled')", "in ('finished', 'cancelled', 'dead')"
            ),
        ),
    ),
    PlantedBug(
        "a retry from a step does not ask whether its undo is done",
        "workflow: a retry from an undone step meets the end of its undo",
        (
            Edit(
                "workflow_retry_from",
                "s.step_id >= v_from and s.undone_by is not null",
                "s.step_id >= v_from and false",
            ),
        ),
    ),
)
