# mypy: ignore-errors
# pyright: basic, reportMissingImports=false
# ruff: noqa: ANN201, ANN202
# The packages it imports are those of an environment of its own, which the checkers here do not see.
"""Workflows of Temporal whose steps are activities, on its development server with a durable file. A step's
own write is a commit of its own: Temporal's history is not in PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from contextlib import asynccontextmanager
from datetime import timedelta

from handlers import ALLOWED_SECONDS, AsyncHandlers
from runner import STEPS, PeerTask, play, run_until_told
from temporalio import activity, workflow
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import RetryPolicy
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

QUEUE = "bench"
CONCURRENCY = 100
SUBMITTERS = 32
STEP_SECONDS = timedelta(seconds=60)
RETRY = RetryPolicy(initial_interval=timedelta(milliseconds=100))
LIVE = "ExecutionStatus = 'Running'"


class Told:
    """What the classes of the workflows below know of the run: they can be in no function."""

    order: PeerTask


def _count() -> None:
    # A worker that has forgotten a workflow replays its code.
    if not workflow.unsafe.is_replaying():
        Told.order.results.count()


async def _step(name: str, *arguments: int, **options: timedelta):
    return await workflow.execute_activity(
        name, args=arguments, start_to_close_timeout=STEP_SECONDS, retry_policy=RETRY, **options
    )


@workflow.defn(name="rows")
class Rows:
    @workflow.run
    async def run(self) -> None:
        for step in range(STEPS):
            await _step("write", step)
        _count()


@workflow.defn(name="trivial")
class Trivial:
    @workflow.run
    async def run(self) -> None:
        for step in range(STEPS):
            await _step("nothing", step)
        _count()


@workflow.defn(name="zombie")
class Zombie:
    @workflow.run
    async def run(self) -> str:
        return await _step("late", heartbeat_timeout=timedelta(seconds=Told.order.lease_seconds))


def _activities(order: PeerTask):
    handlers = AsyncHandlers(order)

    @activity.defn
    async def write(step: int) -> None:
        await handlers.effect(f"step {step}")

    @activity.defn
    async def nothing(step: int) -> int:
        return step

    @activity.defn
    async def late() -> str:
        results, who = order.results, order.worker
        results.act(who, "started")
        while not results.is_allowed(who):
            activity.heartbeat()
            await asyncio.sleep(ALLOWED_SECONDS)
        await handlers.effect("zombie")
        results.act(who, "wrote")
        return who

    return [write, nothing, late]


class TemporalPeer:
    def prepare(self, order: PeerTask) -> None:
        """Nothing to create: its server has its own store."""

    def work(self, order: PeerTask) -> None:
        asyncio.run(self._work(order))

    async def _work(self, order: PeerTask) -> None:
        Told.order = order
        worker = Worker(
            await Client.connect(order.server_url),
            task_queue=QUEUE,
            workflows=[Rows, Trivial, Zombie],
            activities=_activities(order),
            max_concurrent_activities=CONCURRENCY,
            max_concurrent_workflow_tasks=CONCURRENCY,
            workflow_runner=UnsandboxedWorkflowRunner(),
            # By default a heartbeat waits for 0.8 of its timeout, which a busy machine makes too late.
            max_heartbeat_throttle_interval=timedelta(seconds=order.lease_seconds / 3),
        )
        await run_until_told(worker.run())

    @asynccontextmanager
    async def client(self, order: PeerTask):
        yield TemporalClient(order, await Client.connect(order.server_url))


class TemporalClient:
    poll_seconds = 0.05

    def __init__(self, order: PeerTask, client: Client) -> None:
        self._order = order
        self._client = client
        self._places = asyncio.Semaphore(SUBMITTERS)

    async def submit_many(self, kind: str, count: int) -> None:
        # There is no batch call.
        await asyncio.gather(*(self.submit(kind, 0.0) for _ in range(count)))

    async def submit(self, kind: str, at: float) -> None:
        async with self._places:
            name = str(uuid.uuid4())
            await self._client.start_workflow(kind, id=name, task_queue=QUEUE)
        if kind == "zombie":
            self._order.results.note("workflow", name)

    async def unfinished(self) -> int:
        return (await self._client.count_workflows(LIVE)).count

    async def outcome(self):
        handle = self._client.get_workflow_handle(self._order.results.noted("workflow"))
        status = (await handle.describe()).status
        finished = status == WorkflowExecutionStatus.COMPLETED
        by = await handle.result() if finished else None
        return {"finished": finished, "by": by, "note": f"{status.name.lower()}, output {by}"}


if __name__ == "__main__":
    play(TemporalPeer())
    # The threads of its runtime abort the interpreter's end now and then, when the answer is written.
    sys.stdout.flush()
    os._exit(0)
