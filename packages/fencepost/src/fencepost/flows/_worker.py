"""A worker of a flow: takes its share of the units, runs them, and gives units up when other workers join.

There is no coordinator. Every worker holds a worker slot (a lease); the number of held slots is the number of
workers, and no worker holds more than its share. When a worker dies, its leases expire and the others take
its units over.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from fencepost.backoff import Backoff
from fencepost.database import OpenClient
from fencepost.errors import Mismatch, Refusal
from fencepost.flows import _flow_store as flow_store
from fencepost.flows import _units as units
from fencepost.flows._bounded_client import BoundedClient
from fencepost.flows._committer import Committer
from fencepost.flows._errors import StartRefused, StateMismatch, unfit
from fencepost.flows._failing import told
from fencepost.flows._graph import Flow
from fencepost.flows._layout import Layout
from fencepost.flows._metrics import FlowMetrics
from fencepost.flows._plan import FlowPlan, KeyedStage
from fencepost.flows._redis_client import check_room, connect_bytes
from fencepost.flows._reporter import Reporter, SourceView
from fencepost.flows._settings import FlowSettings
from fencepost.flows._shared_reads import SharedReads
from fencepost.flows._shuffle import ChannelReceiver
from fencepost.flows._shuffle_sender import ShuffleSender
from fencepost.flows._spill import Spill, spilled
from fencepost.flows._stage_log import PausingInput, StageOutput
from fencepost.flows._task import RecordInput, SourceInput, Task, opened
from fencepost.flows._units import Unit
from fencepost.flows.sinks._sink import FlowContext
from fencepost.flows.sinks._sink_types import TwoPhaseCommitSink
from fencepost.jobs._failure_text import traceback_text
from fencepost.kernel import migrate
from fencepost.kernel.call import Json
from fencepost.kernel.lease import Lease, owner_name
from fencepost.lease_keeper import LeaseKeeper
from fencepost.logs import get_logger
from fencepost.signals import announce

_log = get_logger(__name__)
TELL_SECONDS = 1.0
LEASE_CONNECTIONS = 3
"""In addition to the pool: the heartbeat's, one to take leases with, and one for a concurrent takeover."""
RETRIES = Backoff(0.2, 5.0, jitter=0)
ERROR_CHARACTERS_MAX = 1000


@dataclass
class Assignment:
    """Exists from when the unit's lease is taken until it is given up or lost."""

    unit: Unit
    lease: Lease
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    failures: int = 0
    """Consecutive failures."""
    ended: bool = False
    lost: bool = False
    error: str | None = None
    trouble: dict[str, str] = field(default_factory=dict[str, str])
    """What is known of the failure, for operators: step, stream, offset and remedy."""
    asked_at: datetime | None = None
    """The newest commit request of an operator that was passed on to it."""
    running: asyncio.Task[None] | None = None
    work: Task | ShuffleSender | None = None

    def failed(self, error: Exception, ran_seconds: float) -> float:
        """Record a failure; returns how long to wait: twice as long each time, until it has run for longer
        than that."""
        self.failures = 1 if ran_seconds > RETRIES.most_seconds else self.failures + 1
        self.error = f"{type(error).__name__}: {error}".replace("\0", "")[:ERROR_CHARACTERS_MAX]
        self.trouble = told(error)
        return RETRIES.seconds(self.failures)

    def recovered(self) -> None:
        self.error, self.trouble = None, {}

    @property
    def story(self) -> dict[str, Any]:
        """What blocks the unit, for its activity report; empty once it makes progress."""
        if self.error is not None and self.work is not None and self.work.progressed:
            self.recovered()
        if self.error is None:
            return {}
        return {"error": self.error, "failures": self.failures, **self.trouble}


class FlowWorker:
    """Runs a flow on one Fencepost client, which must be open.

    worker = FlowWorker(fp, flow, redis_url=fp.redis_url)
    await worker.run(stop)
    """

    def __init__(
        self,
        fp: OpenClient,
        flow: Flow,
        *,
        redis_url: str | None = None,
        settings: FlowSettings | None = None,
        metrics: FlowMetrics | None = None,
        beside: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> None:
        """`beside` is open as long as the worker runs."""
        self.program = FlowPlan(flow)
        self.settings = settings or FlowSettings()
        self.owner = owner_name("flow")
        self._fp = fp
        self._beside = beside
        self._units = {unit.resource: unit for unit in units.divide(self.program)}
        self._metrics = metrics or FlowMetrics.on(fp.metrics)
        self._context = FlowContext(
            fp,
            flow.name,
            redis_url,
            self.settings.lease_seconds + self.settings.interval_seconds + self.settings.drain_seconds,
            self.settings.interval_seconds,
            self.settings.drain_seconds,
            tasks=sum(unit.commits for unit in self._units.values()),
        )
        self._edition = 0
        self._layout = Layout()
        self._posts: dict[str, Assignment] = {}
        self._done: set[str] = set()
        self._slot: str | None = None
        self._redis: Any = None
        self._reads: SharedReads | None = None
        self._client = BoundedClient(fp, fp.settings.pool_max)
        self._lease_keeper: LeaseKeeper | None = None
        self._reporter = Reporter(fp, flow.name, self._metrics, self._sights)

    @property
    def holds(self) -> list[str]:
        return sorted(self._posts)

    @property
    def errors(self) -> dict[str, str]:
        """The errors that block units, by resource."""
        return {name: post.error for name, post in self._posts.items() if post.error is not None}

    def _sights(self) -> list[SourceView]:
        return [
            SourceView(p.unit, p.lease, p.work, p.story) for p in self._posts.values() if p.work is not None
        ]

    async def run(self, stop: asyncio.Event | None = None, *, until_done: bool = False) -> None:
        """Run until `stop`, or with `until_done` until every sender of a bounded flow has ended.

        Raises StartRefused when the flow must not start, and a SchemaError on a schema that does not fit.
        """
        if until_done:
            units.check_bounded(self.program)
        await asyncio.to_thread(migrate.require, self._fp.database_url, "flows")
        async with self._beside():
            await self._run(stop or asyncio.Event(), until_done=until_done)

    async def _run(self, stop: asyncio.Event, *, until_done: bool) -> None:
        self._context = replace(self._context, bounded=until_done)
        try:
            await self._open()
        except BaseException:
            # What was opened before the error holds connections.
            await self._close()
            raise
        announce("flows.started")
        leaving = asyncio.Event()
        reports = asyncio.create_task(self._reporter.run(leaving), name="fencepost-flow-reports")
        try:
            while not stop.is_set():
                await self._look_around()
                if until_done and self._done == set(self._units):
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.settings.balance_seconds):
                        await self._something(stop)
        finally:
            leaving.set()
            reports.cancel()
            await asyncio.gather(reports, return_exceptions=True)
            await self._close()
            announce("flows.stopped")

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        if self.program.groups is not None:
            await self._open_exchange(sum(stage.groups or 1 for stage in self.program.stages))
        await self._check_pool()
        for sink in self.program.sinks:
            await sink.open(self._context)
            if isinstance(sink, TwoPhaseCommitSink):
                await sink.rehearse(f"flow:{self.program.flow.name}")
        await self._register()
        settings = self.settings

        def lost(lease: Lease) -> None:
            loop.call_soon_threadsafe(self._lose, lease.resource)

        self._lease_keeper = LeaseKeeper(
            self._fp.database_url,
            self.owner,
            name="flows",
            ttl_seconds=settings.lease_seconds,
            beat_seconds=settings.heartbeat_seconds,
            on_lost=lost,
        )
        self._lease_keeper.start()

    async def _open_exchange(self, groups: int) -> None:
        connections = self.settings.redis_connections
        exchange = f"The exchange of {self.program.flow.name}"
        self._redis = connect_bytes(self._context.redis_url, exchange, connections_max=connections)
        self._reads = SharedReads(self._redis, groups, connections // 2)
        await check_room(self._redis, connections, "FLOW_REDIS_CONNECTIONS")

    async def _check_pool(self) -> None:
        """Raise for a pool that is larger than its server allows. Behind a pooler in transaction mode the
        server's own limit does not apply."""
        settings = self._fp.settings
        if not settings.prepared_statements:
            return
        allowed = await self._fp.run(flow_store.room())
        wanted = settings.pool_max + LEASE_CONNECTIONS
        if wanted > allowed:
            raise StartRefused(
                f"DATABASE_POOL_MAX is {settings.pool_max}, which with {LEASE_CONNECTIONS} more for leases "
                f"is {wanted} connections, and this login may have {allowed}. Lower DATABASE_POOL_MAX to "
                f"{max(1, allowed - LEASE_CONNECTIONS)}: all tasks of a worker share it. Or raise "
                "max_connections of the server, or the connection limit of the login or the database."
            )

    async def _register(self) -> None:
        flow = self.program.flow.name
        try:
            self._edition = await self._fp.run(
                flow_store.register(flow, units.plan(self.program), self.owner)
            )
            self._layout = await self._fp.run(flow_store.layout(flow))
        except Mismatch as refusal:
            kind = StateMismatch if refusal.seen.get("why") == "steps" else StartRefused
            raise kind(unfit(flow, refusal.seen)) from None

    async def _close(self) -> None:
        for post in self._posts.values():
            post.stopping.set()
        running = [post.running for post in self._posts.values() if post.running is not None]
        if running:
            await asyncio.wait(running, timeout=self.settings.drain_seconds)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if self._lease_keeper is not None:
            with suppress(Exception):
                await self._lease_keeper.release_all()
            await self._lease_keeper.close()
        self._posts.clear()
        for sink in self.program.sinks:
            await sink.close()
        if self._reads is not None:
            await self._reads.close()
        if self._redis is not None:
            await self._redis.aclose()

    async def _something(self, stop: asyncio.Event) -> None:
        """Wait until a unit has ended or failed, or the worker is told to stop."""
        waits = [asyncio.ensure_future(stop.wait())]
        try:
            watched = [post.running for post in self._posts.values() if post.running is not None]
            await asyncio.wait([*waits, *watched], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _look_around(self) -> None:
        """A server that is unavailable for a while stops no worker: the tasks, too, start again when it is
        back."""
        try:
            await self._balance()
        except StartRefused:
            raise
        except Exception as error:
            self._metrics.loop_errors.labels(flow=self.program.flow.name).inc()
            _log.warning("flow_worker_failed", error=f"{type(error).__name__}: {error}")

    async def _balance(self) -> None:
        """Count the workers, and take or give up units until this worker has its share."""
        await self._reap()
        flow = self.program.flow.name
        orders = await self._fp.run(flow_store.orders(flow))
        self._ask_to_commit(orders.commit_asked_at)
        if orders.draining:
            for resource in list(self._posts):
                await self._give_up(resource)
            return
        await self._sit_down()
        holders = await self._fp.run(flow_store.holders(flow))
        slots = sum(1 for holder in holders if "/slot/" in holder.resource and holder.held)
        taken = {holder.resource for holder in holders if holder.held}
        wanted = [resource for resource in self._units if resource not in self._done]
        share = math.ceil(len(wanted) / max(1, slots))
        for resource in list(self._posts)[share:]:
            await self._give_up(resource)
        for resource in wanted:
            if len(self._posts) < share and resource not in taken and resource not in self._posts:
                await self._take(resource)
        self._metrics.tasks.labels(flow=flow).set(len(self._posts))

    def _ask_to_commit(self, asked_at: datetime | None) -> None:
        """Ask each task once per request, also when another worker has taken the task over since."""
        for post in self._posts.values():
            if asked_at is not None and post.asked_at != asked_at and isinstance(post.work, Task):
                post.asked_at = asked_at
                post.work.ask_to_commit()

    async def _sit_down(self) -> None:
        assert self._lease_keeper is not None, "a worker takes a slot while it is open"
        number = 0
        while self._slot is None and number < self.settings.workers_max:
            slot = units.slot(self.program.flow.name, number)
            if await self._lease_keeper.acquire(slot) is not None:
                self._slot = slot
            number += 1
        if self._slot is None:
            raise StartRefused(
                f"All {self.settings.workers_max} worker slots of {self.program.flow.name} are taken. Raise "
                "FLOW_WORKERS_MAX, or run fewer workers."
            )

    async def _take(self, resource: str) -> None:
        assert self._lease_keeper is not None, "a worker takes units when it is open"
        lease = await self._lease_keeper.acquire(resource)
        if lease is not None:
            post = self._posts[resource] = Assignment(self._units[resource], lease)
            post.running = asyncio.create_task(self._work(post), name=resource)
            announce("flows.taken")

    async def _give_up(self, resource: str) -> None:
        """Let the unit commit what it has, then release it."""
        post = self._posts.pop(resource)
        post.stopping.set()
        if post.running is not None:
            await asyncio.wait([post.running], timeout=self.settings.drain_seconds)
            post.running.cancel()
            await asyncio.gather(post.running, return_exceptions=True)
        assert self._lease_keeper is not None, "a worker gives up units while it is open"
        await self._lease_keeper.release(resource)

    def _lose(self, resource: str) -> None:
        if resource == self._slot:
            self._slot = None
        post = self._posts.get(resource)
        if post is not None:
            post.lost = True
            post.stopping.set()  # Also if the cancel gets lost: `Reporter.run` says how.
            if post.running is not None:
                post.running.cancel()

    async def _reap(self) -> None:
        """Remove units that ended or were lost; raise a refusal to start."""
        for resource, post in list(self._posts.items()):
            if post.running is None or not post.running.done():
                continue
            error = None if post.running.cancelled() else post.running.exception()
            if isinstance(error, StartRefused):
                raise error
            if isinstance(error, BaseException) and not isinstance(error, Exception):
                raise error
            del self._posts[resource]
            if post.ended:
                self._done.add(resource)
            if not post.lost:
                assert self._lease_keeper is not None, "a worker cleans up while it is open"
                await self._lease_keeper.release(resource)

    async def _work(self, post: Assignment) -> None:
        """Run the unit, and start again from its checkpoint after an error. A refusal ends it: another worker
        holds it."""
        flow = self.program.flow.name
        while not post.stopping.is_set() and not post.ended:
            began = time.monotonic()
            try:
                await self._run_unit(post)
                if post.error is not None:
                    post.recovered()
                    await self._tell(post, {})
            except StartRefused as error:
                await self._fail(post, error, began)
                _log.error("flow_cannot_go_on", **self._facts(post))
                raise
            except Refusal as refusal:
                self._metrics.refusals.labels(flow=flow, reason=refusal.reason).inc()
                _log.warning(
                    "flow_commit_refused",
                    flow=flow,
                    resource=post.unit.resource,
                    reason=refusal.reason,
                    seen=dict(refusal.seen),
                )
                announce("flows.refused")
                if refusal.noun == "flow":
                    raise StartRefused(unfit(flow, refusal.seen)) from None
                if refusal.reason != "mismatch":
                    return
            except Exception as error:
                self._metrics.loop_errors.labels(flow=flow).inc()
                wait_seconds = await self._fail(post, error, began)
                _log.warning(
                    "flow_task_failed",
                    retry_seconds=wait_seconds,
                    exception=traceback_text(error),
                    **self._facts(post),
                )
                announce("flows.failed")
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_seconds):
                        await post.stopping.wait()

    async def _fail(self, post: Assignment, error: Exception, began: float) -> float:
        wait_seconds = post.failed(error, time.monotonic() - began)
        await self._tell(post, post.story)
        return wait_seconds

    def _facts(self, post: Assignment) -> dict[str, Any]:
        """What stops a task, in a line of the log: as `flows show` and the console tell it."""
        facts = {"error": post.error, "failures": post.failures, **post.trouble}
        return {"flow": self.program.flow.name, "resource": post.unit.resource, **facts}

    async def _tell(self, post: Assignment, activity: Json) -> None:
        """Report to operators. If the database itself fails, the report is skipped, and the metrics show the
        failure."""
        with suppress(Exception):
            async with asyncio.timeout(TELL_SECONDS):
                await self._fp.run(flow_store.report([(post.lease.resource, post.lease.token, activity)]))

    async def _run_unit(self, post: Assignment) -> None:
        unit = post.unit
        if unit.kind == "forward":
            forwarder = ShuffleSender(
                self.program,
                unit.senders[0],
                post.lease,
                replace(self._context, lease=post.lease),
                self._redis,
                self.settings,
                self._metrics,
                self._edition,
            )
            post.work = forwarder
            try:
                await forwarder.run(post.stopping)
                post.ended = forwarder.ended
            finally:
                post.work = None
            return
        async with spilled(self.settings.state_dir, self.settings.state_memory_mb) as spill:
            await self._run_task(post, spill)

    async def _run_task(self, post: Assignment, spill: Spill | None) -> None:
        unit = post.unit
        stage = self.program.stages[unit.stage - 1]
        body = KeyedStage(
            self.program,
            senders=len(unit.senders),
            paced=True,
            layout=self._layout,
            stage=stage,
            spill=spill,
        )
        sinks = [node.sink for node in stage.sinks if node.sink is not None]
        output = StageOutput(self.program, units.stage_sender(self.program, stage, unit.group))
        if stage.outputs:
            sinks.append(output)
        committer = Committer(self._client, post.lease, sinks, self.settings.keep_checkpoints, self._edition)
        frontier = await committer.restore(body)
        frontier.update({sender.name: opened(frontier.of(sender.name), sender) for sender in unit.senders})
        announce("flows.restored")
        flow_input: SourceInput | ChannelReceiver
        task_input: RecordInput
        if unit.kind == "group":
            assert self._reads is not None, "key groups have an exchange"
            flow_input = ChannelReceiver(
                self._redis,
                self._reads,
                self.program,
                unit.senders,
                unit.group,
                self._edition,
                unit.stage,
            )
            flow_input.open(frontier)
        else:
            context = replace(self._context, lease=post.lease)
            flow_input = SourceInput(self.program, unit.senders, context)
            await flow_input.open(frontier)
        task_input = PausingInput(flow_input, output, self._client) if stage.outputs else flow_input
        filling = asyncio.create_task(body.fill())
        try:
            post.work = task = Task(
                self.program,
                body,
                committer,
                task_input,
                flow_input.watermarks(),
                frontier,
                self.settings,
                self._metrics,
                output if stage.outputs else None,
            )
            await task.run(post.stopping)
            post.ended = task.ended
        finally:
            post.work = None
            filling.cancel()
            await asyncio.gather(filling, return_exceptions=True)
            await flow_input.close()
