"""Bugs that the functions of flows can have."""

from tests.isolation.planted_bug import Edit, PlantedBug

FLOW = (
    PlantedBug(
        "a commit asks for no token",
        "flow: a late commit meets a takeover",
        (Edit("_checkpoint_fence", "perform fencepost.lease_fence(p_resource, p_token);", ""),),
    ),
    PlantedBug(
        "a commit does not compare the frontier",
        "flow: two commits from one frontier",
        (
            Edit(
                "checkpoint_store",
                "v_newest.frontier is distinct from p_expected or v_newest.number > p_number",
                "v_newest.number > p_number",
            ),
        ),
    ),
    PlantedBug(
        "a commit does not look which edition it is of",
        "flow: a commit meets another shape",
        (Edit("flow_commit", "perform fencepost._flow_fence(p_resource, p_edition);", ""),),
    ),
    PlantedBug(
        "a registration does not wait for open commits",
        "flow: a commit meets another shape",
        (
            Edit(
                "flow_register",
                "perform pg_advisory_xact_lock(hashtextextended(p_name, 6092));\n    v_held",
                "v_held",
            ),
        ),
    ),
    PlantedBug(
        "a registration does not look for commits of another shape",
        "flow: a commit meets another shape",
        (Edit("flow_register", "if v_held is not null or exists (", "if v_held is not null and exists ("),),
    ),
    PlantedBug(
        "a drop does not wait for a restore",
        "flow: a restore meets a drop",
        (
            Edit(
                "flow_drop",
                "perform pg_advisory_xact_lock(hashtextextended(p_name || '/' || p_savepoint, 6090));",
                "",
            ),
        ),
    ),
    PlantedBug(
        "a restore does not lock the leases",
        "flow: a restore meets a worker",
        (Edit("flow_restore", "order by l.resource for update;", "order by l.resource;"),),
    ),
    PlantedBug(
        "a restore does not ask which worker holds a task",
        "flow: a restore meets a worker",
        (Edit("flow_restore", "and l.owner is not null and l.expires_at > v_now", "and false"),),
    ),
    PlantedBug(
        "a regroup does not lock the leases",
        "flow: a regroup meets a worker",
        (Edit("flow_regroup", "order by l.resource for update;", "order by l.resource;"),),
    ),
    PlantedBug(
        "a regroup does not ask which worker holds a task",
        "flow: a regroup meets a worker",
        (Edit("flow_regroup", "and l.owner is not null and l.expires_at > v_now", "and false"),),
    ),
    PlantedBug(
        "two savepoints take one name",
        "flow: two savepoints of one name",
        (
            Edit(
                "flow_save",
                "perform pg_advisory_xact_lock(hashtextextended(p_name || '/' || p_savepoint, 6090));",
                "",
            ),
        ),
        ("alter table fencepost.flow_savepoint drop constraint flow_savepoint_pkey",),
    ),
    PlantedBug(
        "a rewind goes on beside a commit",
        "flow: a commit meets a rewind",
        (Edit("flow_rewind", "perform pg_advisory_xact_lock(hashtextextended(p_resource, 6089));", ""),),
    ),
    PlantedBug(
        "replays are numbered without a lock",
        "flow: two replays",
        (
            Edit(
                "flow_replay",
                "perform pg_advisory_xact_lock(hashtextextended(p_flow || '/' || p_step, 6091));",
                "",
            ),
            Edit(
                "flow_replay",
                "order by d.id limit p_limit for update loop",
                "order by d.id limit p_limit loop",
            ),
        ),
    ),
    PlantedBug(
        "what was asked for is thrown away",
        "flow: a replay meets a discard",
        (Edit("flow_discard", "and o.replay is null and", "and"),),
    ),
    PlantedBug(
        "a zombie buries",
        "flow: a late burial meets a takeover",
        (Edit("flow_bury", "perform fencepost.lease_fence(p_resource, p_token);", ""),),
    ),
    PlantedBug(
        "a zombie trims",
        "flow: a late trim meets a takeover",
        (Edit("flow_inbox_trim", "perform fencepost.lease_fence(p_resource, p_token);", ""),),
    ),
    PlantedBug(
        "a zombie appends to the log",
        "flow: a late append meets a takeover",
        (Edit("flow_log_append", "perform fencepost.lease_fence(p_resource, p_token);", ""),),
    ),
    PlantedBug(
        "a repeated append is not noticed",
        "flow: two appends behind one number",
        (Edit("flow_log_append", "if v_last <> p_last then", "if false then"),),
    ),
    PlantedBug(
        "a zombie trims entries",
        "flow: a late trim of entries meets a takeover",
        (Edit("flow_log_trim", "perform fencepost.lease_fence(p_resource, p_token);", ""),),
    ),
    PlantedBug(
        "a zombie tells",
        "flow: a late report meets a takeover",
        (Edit("flow_report", "and l.token = v_told.token for key share", "for key share"),),
    ),
)
