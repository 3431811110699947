"""The hot functions of workflows, each called as its runtime calls it."""

from tests.integration.plans.hot_call import BATCH, HotCall, plain, running

WORKFLOWS = (
    HotCall("workflow_start", "select * from fencepost.workflow_start('orders', 'fulfil', 1, '{}')", plain()),
    HotCall("workflow_load", "select * from fencepost.workflow_load(%s)", lambda size: (running(size)[0],)),
    HotCall(
        "workflow_claim",
        "select * from fencepost.workflow_claim(%s, 'owner')",
        lambda size: (size // 2 // 10 * 10 + 1,),
    ),
    HotCall(
        "step_commit",
        "select * from fencepost.step_commit(%s, 1, 'owner', 'ship', 'digest', '{}')",
        lambda size: (running(size)[0],),
    ),
    HotCall(
        "step_commit_many",
        "select * from fencepost.step_commit_many"
        "(%s::bigint[], %s::bigint[], 'owner', %s::text[], %s::text[])",
        lambda size: (
            running(size),
            [1] * len(running(size)),
            ["ship"] * len(running(size)),
            ["digest"] * len(running(size)),
        ),
    ),
    HotCall(
        "step_result", "select * from fencepost.step_result(%s, 'parts')", lambda size: (running(size)[0],)
    ),
    HotCall(
        "workflow_sleep",
        "select * from fencepost.workflow_sleep(%s, 1, 'owner', 'night', 'digest', '1 hour')",
        lambda size: (running(size)[0],),
    ),
    HotCall(
        "workflow_park",
        "select * from fencepost.workflow_park(%s, 1, 'owner')",
        lambda size: (running(size)[0],),
    ),
    HotCall(
        "event_await of one that happened",
        "select * from fencepost.event_await(%s, 1, 'owner', 'paid', %s)",
        lambda size: (running(size)[0], f"done-{size // 2}"),
    ),
    HotCall(
        "event_await",
        "select * from fencepost.event_await(%s, 1, 'owner', 'paid', 'never')",
        lambda size: (running(size)[0],),
    ),
    HotCall(
        "event_emit", "select * from fencepost.event_emit(%s, '{}')", lambda size: (f"approve-{size // 2}",)
    ),
    HotCall("event_prune", "select * from fencepost.event_prune('15 days', %s)", plain(BATCH)),
    HotCall(
        "workflow_children",
        "select * from fencepost.workflow_children(%s::bigint[])",
        lambda size: (running(size),),
    ),
)
