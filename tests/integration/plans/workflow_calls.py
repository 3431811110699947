"""The hot functions of workflows, each called as its runtime calls it."""

from tests.integration.plans.hot_call import BATCH, HotCall, Statement, plain, running


def with_children(size: int) -> list[Statement]:
    """Two open batches are of one workflow, whose steps began them and which runs a graph of two nodes."""
    parent = running(size)[0]
    node = '{"name": "%s", "kind": "kind", "queue": "hot"}'
    graph = f'{{"graph": {{"name": "g", "nodes": [{node % "price"}, {node % "pack"}]}}}}'
    return [
        ("update fencepost.job_batch set workflow_id = %s where batch_id in (1, 3)", (parent,)),
        (
            'update fencepost.job set payload = %s, headers = \'{"graph": "g"}\' where job_id = %s',
            (graph, parent),
        ),
        (
            """insert into fencepost.workflow_step (job_id, name, what, attempt, digest, result, at)
               values (%s, 'pack', 'spawn', 1, 'graph', '{"batch": 1}', clock_timestamp())""",
            (parent,),
        ),
    ]


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
        "step_commit_all",
        "select fencepost.step_commit_all(%s::bigint[], %s::bigint[], 'owner', %s::text[], %s::text[])",
        # Few: it refuses what does not run.
        lambda size: (running(size)[:5], [1] * 5, ["ship"] * 5, ["digest"] * 5),
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
        "workflow_join",
        "select * from fencepost.workflow_join(%s, 1, 'owner', 1)",
        lambda size: (running(size)[0],),
        with_children,
    ),
    HotCall(
        "workflow_join_any",
        "select * from fencepost.workflow_join_any(%s, 1, 'owner', '{1,3}')",
        lambda size: (running(size)[0],),
        with_children,
    ),
    HotCall(
        "workflow_graph",
        "select * from fencepost.workflow_graph(%s)",
        lambda size: (running(size)[0],),
        with_children,
    ),
    HotCall(
        "workflow_restart",
        "select * from fencepost.workflow_restart(%s, 1, 'owner', '{}')",
        lambda size: (running(size)[0],),
    ),
    HotCall(
        "the end of a workflow that is undone",
        "select * from fencepost.job_bury(%s, 1, 'owner', 'no')",
        lambda size: (next(one for one in running(size) if one % 10 == 3),),
    ),
    HotCall(
        "workflow_children",
        "select * from fencepost.workflow_children(%s::bigint[])",
        lambda size: (running(size),),
    ),
    HotCall("workflow_repeats", "select fencepost.workflow_repeats(%s, 2)", lambda size: (running(size)[0],)),
)
