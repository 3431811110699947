"""Runs declared graphs: a workflow of the library whose steps spawn the jobs of the nodes and join them.

A node has two steps: NODE, which spawned its jobs, and NODE/ended, which says how it ended. What becomes
ready at the same time is spawned with one commit, together with the ends that made it ready. Results are
not copied into steps: they are read from the jobs when a node needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fencepost.errors import InvalidInput, Refusal
from fencepost.jobs._handler import Handlers
from fencepost.jobs.retry_policy import PermanentError
from fencepost.kernel import _workflow as kernel
from fencepost.kernel import job as kernel_job
from fencepost.kernel.call import Json
from fencepost.kernel.job import Submission
from fencepost.workflows._child_job import ChildJob
from fencepost.workflows._graph_plan import (
    Ended,
    NodePlan,
    OnFailure,
    Plan,
    arguments_of,
    filled,
    found_at,
    why_skipped,
)
from fencepost.workflows._handler import WorkflowRuntime
from fencepost.workflows._workflow import Workflow, WorkflowRun

ENDED = "/ended"
"""Behind the name of a node: the step that says how it ended."""
_DIGEST = "graph"
"""The graph lies in the arguments of the workflow, which do not change: its steps have no others."""


class GraphFailed(PermanentError):
    """A node failed whose policy is to fail the graph. What was open is cancelled."""


@dataclass(frozen=True, slots=True)
class Spawn:
    """The jobs of a node."""

    batch: int
    job_ids: Sequence[int]


Submit = Callable[[NodePlan, dict[str, Json], int], Submission]


def graph_function(runtime: WorkflowRuntime, handlers: Handlers) -> Callable[..., Any]:
    """The function of the workflow that runs graphs."""

    def submission(node: NodePlan, arguments: dict[str, Json], workflow_id: int) -> Submission:
        workflow, handler = runtime.workflows.get(node.kind), handlers.get(node.kind)
        if handler is None:
            raise RuntimeError(
                f"The node {node.name} runs {node.kind}, which this worker does not know. A graph is run by "
                "workers of the application that declares its jobs."
            )
        headers = {**node.headers, "graph_node": {"workflow": workflow_id, "node": node.name}}
        parsed = handler.parse(arguments)
        given = {name: parsed[name] for name in arguments}
        options: Any = {
            "priority": node.priority,
            "tries": node.tries,
            "lease": node.lease_seconds,
            "headers": headers,
            "unique": None,
        }
        if workflow is not None:
            return workflow.options(**options).submission(**given)
        return handler.options(queue=node.queue, **options).submission(**given)

    async def graph(wf: Workflow, graph: dict[str, Any]) -> Any:
        try:
            plan = Plan.read(graph)
        except InvalidInput as error:
            raise PermanentError(str(error)) from error
        return await GraphRun(wf.run, plan, submission).to_end()

    return graph


class GraphRun:
    """One run of a graph, from what its steps say to the next park or the end."""

    def __init__(self, run: WorkflowRun, plan: Plan, submission: Submit) -> None:
        self._run = run
        self._plan = plan
        self._submission = submission
        self._policies: dict[str, OnFailure] = {node.name: node.on_failure for node in plan.nodes}
        self._ended: dict[str, Ended] = {}
        self._spawned: dict[str, Spawn] = {}
        self._results: dict[str, Json] = {}

    async def to_end(self) -> Json:
        await self._recall()
        while True:
            await self._begin()
            batches = {spawn.batch: name for name, spawn in self._spawned.items() if name not in self._ended}
            if not batches:
                if self._run.log.has_riders:
                    await self._run.commit()
                return await self._output()
            await self._join(batches)

    async def _recall(self) -> None:
        """What earlier runs have recorded."""
        log = self._run.log
        for node in self._plan.nodes:
            spawned, ended = log.use(node.name), log.use(node.name + ENDED)
            if spawned is not None:
                known = await self._run.result_of(spawned)
                self._spawned[node.name] = Spawn(known["batch"], known["jobs"])
            if ended is not None:
                self._ended[node.name] = Ended(**ended.result)

    async def _begin(self) -> None:
        """Spawn every node that can run by now. One that is skipped, or whose arguments do not fit, has
        ended, which may decide others: the nodes are in order."""
        await self._fail_if_due()
        ready: list[tuple[NodePlan, list[ChildJob[Any]]]] = []
        for node in self._plan.nodes:
            if node.name in self._ended or node.name in self._spawned:
                continue
            if not all(name in self._ended for name in node.predecessors):
                continue
            because = why_skipped(node, self._ended, self._policies)
            if because is not None:
                self._end(node.name, Ended("skipped", because))
                continue
            try:
                unmet = await self._unmet(node)
                if unmet is not None:
                    self._end(node.name, Ended("skipped", unmet))
                    continue
                ready.append((node, await self._jobs(node)))
            except InvalidInput as error:
                self._end(node.name, Ended("failed", str(error)))
                await self._fail_if_due()
        if ready:
            with self._run.opened():
                spawned = await self._run.spawn([(node.name, _DIGEST, jobs) for node, jobs in ready])
            for (node, _), (batch, job_ids) in zip(ready, spawned, strict=True):
                self._spawned[node.name] = Spawn(batch, job_ids)

    async def _join(self, batches: dict[int, str]) -> None:
        """Park until a node has ended, or record those that have."""
        answered = await self._run.wait(
            "graph", lambda park: self._run.join_any_call(list(batches), park=park), bool
        )
        for batch in answered:
            name = batches[batch.batch]
            failed = await self._failure(name) if batch.dead or batch.cancelled else None
            self._end(name, Ended("finished") if failed is None else Ended("failed", failed))

    async def _failure(self, name: str) -> str | None:
        """Why a node failed. A dead job that was replayed since may have finished."""
        outcomes = await self._run.database.run(kernel.children(self._spawned[name].job_ids))
        bad = [outcome for outcome in outcomes if outcome.state != "finished"]
        if not bad:
            return None
        more = f" and {len(bad) - 1} others" if len(bad) > 1 else ""
        return (
            f"job {bad[0].job_id}{more} {bad[0].state or 'has not ended'}: {bad[0].error or 'no error known'}"
        )

    def _end(self, name: str, ended: Ended) -> None:
        """Recorded with the next commit: the jobs say the same until then."""
        self._ended[name] = ended
        log = self._run.log
        log.ride(log.record(name + ENDED, _DIGEST, ended._asdict()))

    async def _fail_if_due(self) -> None:
        failed = next(
            (n for n, e in self._ended.items() if e.state == "failed" and self._policies[n] == "fail"), None
        )
        if failed is None:
            return
        for name, spawn in self._spawned.items():
            if name not in self._ended:
                await self._cancel(spawn)
        if self._run.log.has_riders:
            await self._run.commit()
        raise GraphFailed(f"The node {failed} failed: {self._ended[failed].because}")

    async def _cancel(self, spawn: Spawn) -> None:
        """Each job by itself: together they would wait for each other's ends. A later run does it again."""
        for job_id in spawn.job_ids:
            try:
                await self._run.database.run(kernel_job.cancel(job_id, f"workflow {self._run.log.job_id}"))
            except Refusal:
                # It has ended.
                continue

    async def _unmet(self, node: NodePlan) -> str | None:
        """The first condition that does not hold."""
        for condition in node.when:
            result = await self._result(condition.source.node)
            if not condition.holds(found_at(condition.source, result)):
                return f"{condition} does not hold"
        return None

    async def _jobs(self, node: NodePlan) -> list[ChildJob[Any]]:
        results = {given.source.node: await self._result(given.source.node) for given in node.inputs}
        made = [
            self._submission(node, arguments, self._run.log.job_id)
            for arguments in arguments_of(node, results)
        ]
        if len(made) > 1:
            # The jobs of a fan-out are submitted by one statement: they differ only in their payload.
            made = [replace(one, headers=made[0].headers, options=made[0].options) for one in made]
        return [ChildJob.of(one) for one in made]

    async def _result(self, name: str) -> Json:
        """What a node returned; a list for one that fanned out; None for one that has no result."""
        spawn = self._spawned.get(name)
        if spawn is None or self._ended[name].state == "skipped":
            return None
        if name not in self._results:
            outcomes = await self._run.database.run(kernel.children(spawn.job_ids))
            results = [outcome.result if outcome.state == "finished" else None for outcome in outcomes]
            node = next(node for node in self._plan.nodes if node.name == name)
            self._results[name] = results if node.each is not None else results[0]
        return self._results[name]

    async def _output(self) -> Json:
        output = self._plan.output
        if output is None:
            return {node.name: await self._result(node.name) for node in self._plan.leaves}
        results = {given.source.node: await self._result(given.source.node) for given in output.inputs}
        return filled(output.value, output.inputs, results)
