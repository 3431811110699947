"""Declared graphs on a worker: results go along, branches are skipped, failures do what their policy says."""

import contextlib
from typing import Any, Literal

import psycopg
import pytest

from fencepost import Fencepost, Job, JobFailed, Workflow, previous, task
from fencepost.jobs.retry_policy import PermanentError
from fencepost.testing import Clock, crash_everywhere, workflow_harness
from fencepost.workflows.graph_view import EdgeView, GraphView, graph_view
from tests.integration.jobs.harness import JobHarness

Fault = Literal["kill", "pause"]


def declare(fp: Fencepost) -> dict[str, Any]:
    fp.graph_runner("graphs")

    @fp.job("work")
    async def numbers(job: Job, upto: int) -> dict[str, Any]:
        return {"all": list(range(upto)), "many": upto > 2}

    @fp.job("work")
    async def double(job: Job, number: int) -> int:
        return number * 2

    @fp.job("work")
    async def total(job: Job, parts: list[int | None]) -> int:
        return sum(part or 0 for part in parts)

    @fp.job("work", tries=1)
    async def fail(job: Job, number: int = 0) -> int:
        raise PermanentError("broken")

    @fp.workflow("orders")
    async def halve(wf: Workflow, number: int) -> int:
        return number // 2

    return {"numbers": numbers, "double": double, "total": total, "fail": fail, "halve": halve}


async def started(harness: JobHarness, form: Any) -> int:
    async with harness.fp.transaction() as tx:
        submitted = await form.start(tx)
    return int(submitted.job_id)


async def view_of(harness: JobHarness, job_id: int) -> GraphView:
    view = await harness.fp.run(graph_view(job_id))
    assert view is not None
    return view


async def states(harness: JobHarness, job_id: int) -> dict[str, str]:
    return {node.name: node.state for node in (await view_of(harness, job_id)).nodes}


async def test_results_go_along_and_fan_out(redis_harness: JobHarness) -> None:
    harness, fp = redis_harness, redis_harness.fp
    work = declare(fp)
    graph = fp.graph("sums")
    some = graph.add(task(work["numbers"], upto=4))
    doubled = graph.add(task(work["double"], number=some.result["all"].each()))
    whole = graph.add(task(work["total"], parts=doubled.result))
    graph.add(task(work["halve"], number=whole.result), when=some.result["many"])
    graph.add(task(work["double"], number=whole.result), name="few", when=some.result["many"].is_false())

    async with harness.working():
        job_id = await started(harness, graph)
        assert await fp.jobs.result(job_id) == {"halve": 6, "few": None}

    view = await view_of(harness, job_id)
    assert (view.name, view.state) == ("sums", "finished")
    nodes = {node.name: node for node in view.nodes}
    assert [(n.name, n.state, n.jobs, n.finished) for n in view.nodes] == [
        ("numbers", "finished", 1, 1),
        ("double", "finished", 4, 4),
        ("total", "finished", 1, 1),
        ("halve", "finished", 1, 1),
        ("few", "skipped", 0, 0),
    ]
    assert nodes["few"].because == "numbers['many'] is false does not hold"
    assert nodes["double"].fans_out_over == "numbers['all']"
    assert EdgeView("numbers", "halve", ("condition",)) in view.edges
    assert EdgeView("total", "halve", ("result",)) in view.edges
    child = nodes["total"].first_job_id
    [(header,)] = harness.rows(
        "select headers -> 'graph_node' from fencepost.jobs where job_id = %s", (child,)
    )
    assert header == {"workflow": job_id, "node": "total"}
    # One step for the jobs of a node and one for its end; a graph is a workflow like any other.
    assert harness.value("select count(*) from fencepost.workflow_steps where job_id = %s", (job_id,)) == 9


async def test_chain_group_and_chord(harness: JobHarness) -> None:
    fp = harness.fp
    work = declare(fp)
    chain = fp.chain(
        task(work["numbers"], upto=3),
        task(work["double"], number=previous["all"].each()),
        task(work["total"], parts=previous),
    )
    group = fp.group(*(task(work["double"], number=number) for number in range(3)))
    chord = fp.chord([task(work["double"], number=5), chain], task(work["total"], parts=previous))

    async with harness.working():
        jobs = [await started(harness, form) for form in (chain, group, chord)]
        assert [await fp.jobs.result(job_id) for job_id in jobs] == [6, [0, 2, 4], 16]


async def test_a_node_does_not_wait_for_a_branch_that_it_does_not_need(harness: JobHarness) -> None:
    """Each batch wakes the workflow: the second node of the fast branch runs while the slow one does."""
    fp = harness.fp
    work = declare(fp)

    @fp.job("slow")
    async def slow(job: Job) -> int:
        return 1

    graph = fp.graph("branches")
    graph.add(task(slow))
    first = graph.add(task(work["double"], number=1), name="first")
    graph.add(task(work["double"], number=first.result), name="second")

    async with harness.working(queues=["graphs", "work"]):
        job_id = await started(harness, graph)
        await harness.until(
            "the fast branch has ended",
            lambda: "second/ended" in steps(harness, job_id),
        )
        assert await states(harness, job_id) == {"slow": "pending", "first": "finished", "second": "finished"}
    async with harness.working():
        assert await fp.jobs.result(job_id) == {"slow": 1, "second": 4}


def steps(harness: JobHarness, job_id: int) -> list[str]:
    rows = harness.rows(
        "select name from fencepost.workflow_steps where job_id = %s order by step_id", (job_id,)
    )
    return [name for (name,) in rows]


async def test_a_failed_node_fails_the_graph_and_cancels_what_is_open(harness: JobHarness) -> None:
    fp = harness.fp
    work = declare(fp)

    @fp.job("slow")
    async def slow(job: Job) -> None: ...

    graph = fp.graph("breaks")
    graph.add(task(slow))
    broken = graph.add(task(work["fail"]))
    graph.add(task(work["double"], number=broken.result))

    async with harness.working(queues=["graphs", "work"]):
        job_id = await started(harness, graph)
        with pytest.raises(JobFailed, match=r"The node fail failed: job .* dead: .*broken"):
            await fp.jobs.result(job_id)

    assert await states(harness, job_id) == {"slow": "failed", "fail": "failed", "double": "waiting"}
    assert harness.rows("select state from fencepost.jobs where queue = 'slow'") == [("cancelled",)]
    assert harness.job(job_id).tries == 1


async def test_a_failed_node_is_passed_over_or_taken_as_none(harness: JobHarness) -> None:
    fp = harness.fp
    work = declare(fp)
    graph = fp.graph("policies")
    passed = graph.add(task(work["fail"]), name="passed", on_failure="skip")
    taken = graph.add(task(work["fail"]), name="taken", on_failure="continue")
    good = graph.add(task(work["double"], number=1), name="good")
    graph.add(task(work["double"], number=passed.result), name="skipped")
    graph.add(task(work["total"], parts=[taken.result, good.result]), name="all")
    graph.add(task(work["total"], parts=[passed.result, good.result]), name="any", needs="any")

    async with harness.working():
        job_id = await started(harness, graph)
        assert await fp.jobs.result(job_id) == {"skipped": None, "all": 2, "any": 2}

    view = {node.name: node for node in (await view_of(harness, job_id)).nodes}
    assert (view["skipped"].state, view["skipped"].because) == ("skipped", "passed failed")


async def test_a_result_that_does_not_fit_fails_the_node(harness: JobHarness) -> None:
    fp = harness.fp
    work = declare(fp)
    graph = fp.graph("misfit")
    some = graph.add(task(work["numbers"], upto=1))
    graph.add(task(work["double"], number=some.result), name="wrong", on_failure="continue")
    graph.add(task(work["double"], number=some.result["none"]), name="absent", on_failure="continue")

    async with harness.working():
        job_id = await started(harness, graph)
        assert await fp.jobs.result(job_id) == {"wrong": None, "absent": None}

    because = {node.name: node.because or "" for node in (await view_of(harness, job_id)).nodes}
    assert because["wrong"].startswith("double: number: ")
    assert because["absent"] == "The result of numbers has no part numbers['none']."


async def test_a_dead_node_that_was_replayed_is_taken_up_by_a_retry(harness: JobHarness) -> None:
    fp = harness.fp
    declare(fp)
    broken = True

    @fp.job("work", tries=1)
    async def repaired(job: Job) -> int:
        if broken:
            raise PermanentError("broken")
        return 5

    async with harness.working():
        job_id = await started(harness, fp.chain(task(repaired)))
        with pytest.raises(JobFailed):
            await fp.jobs.result(job_id)
        [node] = (await view_of(harness, job_id)).nodes
        assert node.first_job_id is not None
        broken = False
        await fp.jobs.retry(node.first_job_id, actor="anna")
        assert await fp.jobs.result(node.first_job_id) == 5
        harness.execute("select fencepost.workflow_retry_from(%s, 'repaired/ended', 'anna')", (job_id,))
        assert await fp.jobs.result(job_id) == 5


async def test_a_graph_starts_in_the_callers_transaction_with_and_without_an_event_loop(
    harness: JobHarness,
) -> None:
    work = declare(harness.fp)
    sync = harness.fp.sync()
    with sync:
        chain = sync.chain(task(work["double"], number=4))
        with sync.transaction() as tx, contextlib.suppress(RuntimeError), tx.savepoint():
            chain.start(tx)
            raise RuntimeError("rolled back")
        with sync.transaction() as tx:
            first = chain.start(tx)
    with psycopg.connect(harness.fp.database_url) as connection:
        second = harness.fp.group(task(work["double"], number=4)).start(connection)

    async with harness.working():
        assert await harness.fp.jobs.result(first) == 8
        assert await harness.fp.jobs.result(second) == [8]
    assert harness.value("select count(*) from fencepost.jobs where queue = 'graphs/graph@1'") == 2


async def test_a_workflow_without_a_graph_has_no_view(harness: JobHarness) -> None:
    work = declare(harness.fp)
    async with harness.fp.transaction() as tx:
        submitted = await work["halve"].start(tx, number=4)
    assert await harness.fp.run(graph_view(submitted.job_id)) is None
    assert await harness.fp.run(graph_view(10**9)) is None


@pytest.mark.parametrize("fault", ["kill", pytest.param("pause", marks=pytest.mark.full)])
async def test_a_graph_that_crashes_anywhere_leaves_what_one_leaves_that_does_not(
    harness: JobHarness, clock: Clock, fault: Fault
) -> None:
    fp = harness.fp
    work = declare(fp)
    graph = fp.graph("sums")
    some = graph.add(task(work["numbers"], upto=3))
    doubled = graph.add(task(work["double"], number=some.result["all"].each()))
    broken = graph.add(task(work["fail"]), on_failure="continue")
    graph.add(task(work["double"], number=broken.result), name="few", when=some.result["many"].is_false())
    graph.add(task(work["total"], parts=[doubled.result[1], broken.result]))

    def effects(job_id: int) -> Any:
        ended = harness.rows("select state, result from fencepost.jobs where job_id = %s", (job_id,))
        of_nodes = harness.rows(
            "select headers #>> '{graph_node,node}', state, payload from fencepost.jobs"
            " where headers #>> '{graph_node,workflow}' = %s order by 1, payload::text",
            (str(job_id),),
        )
        return [ended, of_nodes, sorted(steps(harness, job_id))]

    async with workflow_harness(fp, clock) as under_test:
        report = await crash_everywhere(under_test, graph.submission, effects, faults=(fault,))
    assert report.effects[0] == [("finished", {"few": None, "total": 2})]
    assert {name for name, _, _ in report.crashes} == {
        "workflow.park.after_commit",
        "workflow.park.before_commit",
        "workflow.spawn.after_commit",
        "workflow.spawn.before_commit",
        "workflow.steps.after_commit",
        "workflow.steps.before_commit",
    }
