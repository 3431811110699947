"""Bugs that the jobs of a kernel like this one can have."""

from tests.isolation.planted_bug import Edit, PlantedBug

JOB = (
    PlantedBug(
        "the fence of a job does not lock it",
        "running job: a fenced finish and a takeover",
        (Edit("job_fence", "for key share", ""),),
    ),
    PlantedBug(
        "the fence of a job locks so hard that the heartbeat waits",
        "running job: a renewal passes a fence",
        (Edit("job_fence", "for key share", "for no key update"),),
    ),
    PlantedBug(
        "the fence of many jobs does not lock them",
        "running job: a finish fenced with others and a takeover",
        (Edit("job_fence_all", "for key share of r", ""),),
    ),
    PlantedBug(
        "the fence of many jobs does not look at the clock",
        "running job: a finish fenced with others and a reclaim",
        (Edit("job_fence_all", "or v_held.expires_at <= fencepost.clock() ", ""),),
    ),
    PlantedBug(
        "the fence of many jobs does not look at the cancel",
        "running job: a finish fenced with others and a cancel",
        (Edit("job_fence_all", "or v_held.cancelled > 0 ", ""),),
    ),
    PlantedBug(
        "the fence of many jobs is not remembered",
        "running job: a finish fenced with others and a reclaim",
        (Edit("job_fence_all", "|| v_held.fenced, true)", ", true)"),),
    ),
    PlantedBug(
        "a finish does not compare the attempt",
        "lost job: a late finish meets a takeover by its own owner",
        (
            Edit("_job_finish", "and r.attempt = a.attempt ", ""),
            Edit("job_finish", "and r.attempt = p_attempt ", ""),
        ),
    ),
    PlantedBug(
        "a finish does not compare the owner",
        "lost job: a late finish meets a takeover",
        (
            Edit("_job_finish", "and r.attempt = a.attempt and r.owner = p_owner", ""),
            Edit("job_finish", "and r.attempt = p_attempt and r.owner = p_owner", ""),
        ),
    ),
    PlantedBug(
        "a finish does not look at the clock",
        "lost job: a late finish meets a reclaim",
        (
            Edit("_job_finish", "r.expires_at > v_now and ", ""),
            Edit("job_finish", "r.expires_at > v_now and ", ""),
        ),
    ),
    PlantedBug(
        "a finish does not look at the cancel",
        "running job: a finish meets a cancel",
        (
            Edit("_job_finish", " and r.cancel_requested_at is null", ""),
            Edit("job_finish", " and r.cancel_requested_at is null", ""),
        ),
    ),
    PlantedBug(
        "a finish forgets that it has passed its fence",
        "running job: a fenced finish and a reclaim",
        (
            Edit("_job_finish", " or fencepost._job_is_fenced(r.job_id, r.attempt)", ""),
            Edit("job_finish", " or fencepost._job_is_fenced(r.job_id, r.attempt)", ""),
        ),
    ),
    PlantedBug(
        "a fence is remembered for the session",
        "running job: a fence inside a savepoint that is rolled back, and a finish",
        (Edit("_job_is_fenced", "select position(", "select true or position("),),
    ),
    PlantedBug(
        "a renewal waits for an open finish",
        "running job: a finish meets a renewal",
        (Edit("job_renew", " skip locked", ""),),
    ),
    PlantedBug(
        "a renewal of many waits for an open finish",
        "jobs: a renewal of many meets a finish of many",
        (Edit("job_renew_many", " skip locked", ""),),
    ),
    PlantedBug(
        "a reclaim waits for an open fence",
        "running job: a fenced finish and a reclaim",
        (Edit("job_reclaim", " skip locked", ""),),
    ),
    PlantedBug(
        "a reclaim does not ask for the expiry",
        "running job: a fenced finish and a reclaim",
        (Edit("job_reclaim", "r.expires_at <= v_now - p_grace", "true"),),
    ),
    PlantedBug(
        "a takeover keeps the attempt",
        "lost job: a late finish meets a takeover by its own owner",
        (Edit("_job_take_over", "select g.job_id, g.attempt + 1,", "select g.job_id, g.attempt,"),),
    ),
    PlantedBug(
        "a takeover locks nothing, and gives the row another attempt",
        "running job: a fenced finish and a takeover",
        (
            Edit("_job_take_over", " for update skip locked", ""),
            Edit(
                "_job_take_over",
                "with gone as (delete from fencepost.job_running r where r.job_id = p_id returning r.*)",
                "update fencepost.job_running r set attempt = r.attempt + 1, owner = p_owner,"
                " expires_at = v_now + r.lease where r.job_id = p_id returning * into v_running;"
                " return v_running;\n"
                "  with gone as (delete from fencepost.job_running r where r.job_id = p_id returning r.*)",
            ),
        ),
        ("drop trigger job_running_keeps_its_attempt on fencepost.job_running",),
    ),
    PlantedBug(
        "a cancel does not look for the row of a takeover",
        "lost job: a cancel meets a takeover",
        (
            Edit(
                "job_cancel",
                "continue when coalesce(p_expected, 'running') = 'running' and "
                "exists (select 1 from fencepost.job_running r where r.job_id = p_id);",
                "",
            ),
        ),
    ),
    PlantedBug(
        "a dispatch waits for a claim",
        "job: a claim meets a dispatch",
        (Edit("job_dispatch", " skip locked", ""),),
    ),
    PlantedBug(
        "a cancel looks for a job only once",
        "running job: a retry meets a cancel",
        (
            Edit(
                "job_cancel",
                "continue when p_expected is null and "
                "exists (select 1 from fencepost.job_waiting w where w.job_id = p_id);",
                "",
            ),
        ),
    ),
    PlantedBug(
        "a replay does not lock what it replays",
        "job: two replays",
        (Edit("job_replay", "and f.state = p_expected for update", "and f.state = p_expected"),),
    ),
    PlantedBug(
        "claims of one concurrency key do not follow each other",
        "jobs: two claims for one slot",
        (Edit("_job_free_slot", "perform pg_advisory_xact_lock(hashtextextended(p_key, 9203));", ""),),
        ("drop index fencepost.job_running_slot_key",),
    ),
    PlantedBug(
        "claims of many take the concurrency keys in the order of the ids",
        "jobs: claims of many with concurrency keys",
        (
            Edit(
                "_job_claim",
                "order by hashtextextended(j.concurrency_key, 9203), a.job_id",
                "order by a.job_id",
            ),
        ),
    ),
    PlantedBug(
        "many jobs are finished in the caller's order",
        "jobs: finishes of many around a progress",
        (
            # The merge would sort them anyway, so it goes too: a search for each, as they come.
            Edit(
                "_job_finish",
                "perform fencepost._check_texts('final_status', p_statuses, 64, true);",
                "set local enable_nestloop = on; set local enable_mergejoin = off;",
            ),
            Edit("_job_finish", "r.job_id = any (p_ids) and ", ""),
            Edit("_job_finish", " order by a.job_id, a.attempt", ""),
        ),
    ),
    PlantedBug(
        "jobs that end one by one are counted in their batches as they come",
        "jobs: burials of many in two batches",
        (
            Edit(
                "_batch_lock",
                "if not exists (select 1 from fencepost.job_batch b where b.completed_at is null)",
                "if true",
            ),
        ),
    ),
    PlantedBug(
        "a transaction that finishes and buries locks the batches of each by itself",
        "jobs: finishes and burials together in two batches",
        (Edit("job_finish_many", "if p_leaving <> '{}' then", "if false then"),),
    ),
    PlantedBug(
        "many jobs are left in the caller's order",
        "jobs: leavings of many around a progress",
        (
            Edit("job_leave_many", "order by a.job_id", ""),
            Edit(
                "job_leave_many",
                "perform 1 from fencepost.job_running r where r.job_id = any (p_ids) "
                "and r.owner = p_owner order by r.job_id for update;",
                "",
            ),
        ),
    ),
    PlantedBug(
        "many unique keys are taken in the caller's order",
        "jobs: submissions of many with unique keys",
        (
            Edit(
                "job_submit_many", "group by k.key order by k.key", "group by k.key, k.place order by k.place"
            ),
        ),
    ),
    PlantedBug(
        "a submission takes over a key without asking whether its job holds it",
        "jobs: two submissions take over the key of a job that runs",
        (
            Edit(
                "_unique_take_over",
                "or fencepost._unique_holds(v_held.job_id, v_held.states,",
                "or false and fencepost._unique_holds(v_held.job_id, v_held.states,",
            ),
        ),
    ),
    PlantedBug(
        "a submission replaces a job without locking it",
        "jobs: a submission that replaces meets the claim of the job that waits",
        (Edit("_unique_replace", "where w.job_id = v.job_id for update", "where w.job_id = v.job_id"),),
    ),
    PlantedBug(
        "a replay does not wait for what completes the batch",
        "jobs: a replay of the callback meets the end of its batch",
        (Edit("job_replay", "where b.callback_job_id = p_id for share", "where b.callback_job_id = p_id"),),
    ),
    PlantedBug(
        "the pruning of history does not lock the dead jobs whose history it keeps",
        "job: the pruning of jobs meets the pruning of history",
        (Edit("_history_dead", "order by f.job_id for share", "order by f.job_id"),),
    ),
    PlantedBug(
        "the pruning of history does not see that a dead job is being replayed",
        "job: a replay meets the pruning of history",
        (Edit("_history_dead", "order by f.job_id for share", "order by f.job_id"),),
    ),
)
