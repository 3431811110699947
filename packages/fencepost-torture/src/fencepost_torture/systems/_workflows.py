"""Workflows: steps with rows, sleeps, events that other processes emit, children, restarts and undo.

Each shape of a workflow has an event, a sleep, a child or an end of its own. Some end badly: by their own
code, by tries that crashes use up, or because a caller cancels them while they run. Then every recorded step
that has an undo is undone.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, LiteralString

import psycopg
from psycopg.types.json import Jsonb

import fencepost
from fencepost import (
    Bury,
    ChildJob,
    ChildJobFailed,
    EventTimeout,
    Fencepost,
    Handler,
    Job,
    PermanentError,
    Retry,
    Submission,
    SyncTransaction,
    SyncWorkflow,
    Transaction,
    Workflow,
)
from fencepost.jobs.settings import JobSettings
from fencepost.logs import configure_logging
from fencepost.testing import Breach, points_in
from fencepost_torture._child_setup import PATIENT
from fencepost_torture._system_environment import Account, ProcessTask, SystemEnvironment
from fencepost_torture.systems._jobs import settings_of
from fencepost_torture.systems._workflows_checker import LONG, SCHEMA, SHAPES, TIMED_OUT, check

if TYPE_CHECKING:
    from fencepost.workflows._handler import WorkflowDecorator

HELPING = 8
"""Workflows with each batch."""
LINGER_LEASES = (0.0, 0.0, 0.0, 0.05, 0.4)
"""How long a step takes, in lease periods: long enough that faults hit a worker in the middle of it."""
WAITS_SECONDS = (0.0, 0.05, 0.3)
"""How long sleeps last, when events come, and how soon a workflow is cancelled."""
FRAIL_TRIES = 2
WEIGHTS = {"long": 3, "rounds": 2, "thread": 3, "parent": 2}
"""How often a shape is started, where that is not 1. A crash among many steps leaves the most to be repeated,
and to be left alone; the others have crash points of their own."""
CONCURRENCY = (1, 8, 1, 2, 1, 16, 1, 4)
"""What the workers hold at once. A crash is charged to a workflow that ran alone; those that ran together
come back as suspects, and a worker that runs suspects runs nothing else."""
RARELY = {"poll_seconds": 0.5, "sweep_interval_seconds": 1.0, "reclaim_interval_seconds": 0.5}
"""The loops beside the work, which would take half of a busy machine at the pace of the other systems."""
CANCELLED = "cancelled"
"""The shape that is cancelled by a caller."""

START: LiteralString = """
    select job_id from fencepost.workflow_start('shop', %s, 1, %s, p_tries_max => %s,
      p_lease => make_interval(secs => %s))
"""
EMITTER: LiteralString = """
    select fencepost.job_submit('mail', 'emit', %s, p_tries_max => 1000,
      p_lease => make_interval(secs => %s), p_run_at => fencepost.clock() + make_interval(secs => %s))
"""
EFFECT: LiteralString = (
    "insert into effect (key, step, job_id, attempt, value, name) values (%s, %s, %s, %s, %s, %s)"
)
STATED: LiteralString = """
    insert into effect (key, step, job_id, attempt, value, name)
    select %s, %s, j.job_id, j.attempt, %s, %s from fencepost.jobs j where j.job_id = %s
"""
"""The same row as a statement. Its parameters are those of every attempt, so the attempt is read."""
UNDONE: LiteralString = "insert into undone (key, step, workflow_id) values (%s, %s, %s)"
EMISSION: LiteralString = "insert into emission (event, payload, is_first) values (%s, %s, %s)"
LIVING: LiteralString = """
    select (select count(*) from fencepost.job_waiting) + (select count(*) from fencepost.job_running),
           (select count(*) from recorded),
           (select count(*) from ending where is_root)
"""


class Workflows:
    """Workers that run workflows, their children and their undo, from a few queues."""

    name = "workflows"
    processes = 4
    uses_redis = True
    # A sleep that began while the clock was ahead ends as much later.
    bears_clock_jumps = False
    stream_key = JobSettings().stream_key
    points = tuple(
        sorted(
            str(point.name)
            for point in points_in(Path(fencepost.__file__).parent / "workflows")
            if point.hook == "crash_point"
        )
    )

    def load(self) -> None:
        """The worker is imported at its first use; without this, each process would import it."""
        import_module("fencepost.jobs._worker")
        import_module("fencepost.workflows._handler")

    @contextmanager
    def open(self, env: SystemEnvironment) -> Generator[Mapping[str, Any]]:
        with env.database.connect_admin() as admin:
            admin.execute(SCHEMA)
        self._asked: dict[str, str] = {}
        """The shape of each workflow, by its key."""
        self._to_cancel: list[int] = []
        yield {}

    def serve(self, task: ProcessTask) -> None:
        configure_logging(level="error", form="json")
        asyncio.run(_work(task))

    def ask(self, env: SystemEnvironment, turn: int) -> None:
        shapes = env.chance.choices(list(SHAPES), [WEIGHTS.get(shape, 1) for shape in SHAPES], k=HELPING)
        keys = [f"{shape}-{turn}-{number}" for number, shape in enumerate(shapes)]
        waits = env.chance.choices(WAITS_SECONDS, k=HELPING)
        linger = env.chance.choice(LINGER_LEASES) * env.lease_seconds
        ids = env.insist(lambda: _start(env, keys, waits, linger))
        self._asked.update(zip(keys, shapes, strict=True))
        # Those of the turn before: they sleep, run or have ended by now.
        env.insist(lambda: _cancel(env, self._to_cancel))
        self._to_cancel = [ids[key] for key in keys if self._asked[key] == CANCELLED]

    def account(self, env: SystemEnvironment) -> Account:
        """Counts steps. Whatever waits or runs is open, and so is a workflow that is nowhere."""
        [(living, steps, ended)] = env.rows(LIVING)
        return Account(int(steps) + max(int(living), len(self._asked) - int(ended)), int(steps))

    def judge(self, env: SystemEnvironment) -> Iterable[Breach]:
        return check(env.rows, self._asked)

    def remains(self, env: SystemEnvironment) -> Iterable[Breach]:
        return env.entries_left(self.stream_key)


def _start(env: SystemEnvironment, keys: list[str], waits: list[float], linger: float) -> dict[str, int]:
    """Start the workflows, and submit the jobs that emit their events, in one transaction. A commit whose
    reply was lost shows at the repeat: the keys are there already."""
    with contextlib.suppress(psycopg.errors.UniqueViolation), env.asking() as connection:
        for key, wait in zip(keys, waits, strict=True):
            shape = key.partition("-")[0]
            tries = FRAIL_TRIES if shape == "frail" else 1000
            payload = {"key": key, "wait": wait, "linger": linger}
            row = connection.execute(START, (shape, Jsonb(payload), tries, env.lease_seconds)).fetchone()
            assert row is not None, "no answer"
            connection.execute("insert into asked (key, job_id) values (%s, %s)", (key, row[0]))
            # Two that emit the same event: the first counts.
            for payload_number in (1, 2) if SHAPES[shape].event else ():
                emission = {"event": _event(key), "payload": payload_number}
                connection.execute(EMITTER, (Jsonb(emission), env.lease_seconds, wait))
    return dict(env.rows("select key, job_id from asked where key = any (%s)", (keys,)))


def _cancel(env: SystemEnvironment, job_ids: list[int]) -> None:
    for job_id in job_ids:
        try:
            with env.asking() as connection:
                connection.execute("select fencepost.job_cancel(%s, 'torture')", (job_id,))
        except psycopg.DatabaseError as error:
            # Refused: it has ended, or was cancelled by a try whose answer was lost.
            if not str(error.sqlstate or "").startswith("ZF"):
                raise


def _event(key: str) -> str:
    return f"go:{key}"


async def _work(task: ProcessTask) -> None:
    settings = PATIENT.model_copy(update={"pool_max": 4})
    fp = Fencepost(task.database_url, redis_url=task.redis_url, settings=settings)
    declare(fp, task.lease_seconds)
    async with fp:
        own = {"concurrency": CONCURRENCY[task.place % len(CONCURRENCY)], **RARELY}
        worker = fp.jobs.worker(settings_of(task).model_copy(update=own))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        await worker.run()


def unless_planned(_tries: int, error: Exception) -> Retry | Bury:
    return Bury() if isinstance(error, PermanentError) else Retry(0)


class Writer:
    """The steps of a workflow that write rows; each takes `linger` seconds."""

    def __init__(self, wf: Workflow, key: str, linger: float, undo: Submission | None = None) -> None:
        self._wf = wf
        self._key = key
        self._linger = linger
        self._undo = undo

    async def write(self, step: str, value: object = "") -> None:
        undo = self._undo and replace(
            self._undo, payload={"key": self._key, "step": step, "workflow_id": self._wf.id}
        )
        await self._wf.options(name=step, undo=undo).transaction(self._insert, step, str(value))

    async def state(self, step: str, value: object = "") -> None:
        """The same row as a statement, which shares its commit."""
        row = (self._key, step, str(value), step, self._wf.id)
        await self._wf.options(name=step).write((STATED, row))

    async def _insert(self, tx: Transaction, step: str, value: str) -> None:
        await asyncio.sleep(self._linger)
        await tx.execute(EFFECT, (self._key, step, self._wf.id, self._wf.attempt, value, step))


@dataclass(frozen=True, slots=True)
class Jobs:
    """The jobs beside the workflows."""

    child: Handler[...]
    undo: Handler[...]


def declare(fp: Fencepost, lease_seconds: float) -> None:
    """The workflows by their shapes, and the jobs beside them."""

    def workflow(kind: str, tries: int = 1000) -> WorkflowDecorator:
        return fp.workflow("shop", kind=kind, tries=tries, lease=lease_seconds, retry=unless_planned)

    jobs = _declare_jobs(fp, lease_seconds)
    _declare_waiting(workflow)
    _declare_families(workflow, jobs)
    _declare_undone(workflow, jobs)


def _declare_jobs(fp: Fencepost, lease_seconds: float) -> Jobs:
    @fp.job("mail", kind="emit", tries=1000, lease=lease_seconds, retry=unless_planned)
    async def emit(job: Job, event: str, payload: int) -> None:
        async with job.finish() as tx:
            is_first = await fp.events.emit(tx, event, payload, actor="torture")
            await tx.execute(EMISSION, (event, str(payload), is_first))

    @fp.job("undo", kind="undo", tries=1000, lease=lease_seconds, retry=unless_planned)
    async def undo(job: Job, key: str, step: str, workflow_id: int) -> None:
        async with job.finish() as tx:
            await tx.execute(UNDONE, (key, step, workflow_id))

    @fp.job("children", kind="child", tries=1000, lease=lease_seconds, retry=unless_planned)
    async def child(job: Job, key: str, number: int, fails: bool) -> None:
        if fails:
            raise PermanentError("fails, as planned")
        async with job.finish(number) as tx:
            await tx.execute(EFFECT, (key, f"child-{number}", job.id, job.attempt, "", None))

    return Jobs(child, undo)


Declares = Callable[..., "WorkflowDecorator"]
"""Declares a workflow by its shape and its tries."""


def _declare_waiting(workflow: Declares) -> None:
    @workflow("rows")
    async def rows(wf: Workflow, key: str, wait: float, linger: float) -> None:
        writer = Writer(wf, key, linger)
        value = await wf.uuid()
        await writer.state("a", value)
        await wf.options(durable=False).step(_pure, key)
        await writer.write("b", value)
        await asyncio.gather(
            writer.write("c", value), wf.options(name="beside").step(_slow, linger), writer.write("d", value)
        )

    @workflow("long")
    async def long(wf: Workflow, key: str, wait: float, linger: float) -> None:
        writer = Writer(wf, key, linger / len(LONG))
        for number, step in enumerate(LONG):
            # Half of them share their commits with those of other workflows.
            if number % 2:
                await writer.state(step)
            else:
                await writer.write(step)

    @workflow("sleeper")
    async def sleeper(wf: Workflow, key: str, wait: float, linger: float) -> None:
        writer = Writer(wf, key, linger)
        await writer.write("a")
        await wf.sleep(wait)
        await writer.write("b")
        await wf.options(key=2).sleep(wait)

    @workflow("listener")
    async def listener(wf: Workflow, key: str, wait: float, linger: float) -> None:
        writer = Writer(wf, key, linger)
        await writer.write("a")
        # A sleep beside it: the workflow is due at the earlier of the two.
        value, _ = await asyncio.gather(wf.event(_event(key), int), wf.sleep(wait))
        await writer.write("b", value)

    @workflow("deadline")
    async def deadline(wf: Workflow, key: str, wait: float, linger: float) -> None:
        try:
            value: object = await wf.event(_event(key), int, timeout=wait)
        except EventTimeout:
            value = TIMED_OUT
        await Writer(wf, key, linger).write("a", value)

    @workflow("rounds")
    async def rounds(wf: Workflow, key: str, wait: float, linger: float) -> None:
        await Writer(wf, key, linger).write(f"round-{wf.round}")
        if wf.round < 2:
            await wf.restart(key=key, wait=wait, linger=linger)


def _declare_families(workflow: Declares, jobs: Jobs) -> None:
    @workflow("offspring")
    async def offspring(wf: Workflow, key: str, wait: float, linger: float) -> int:
        await wf.sleep(wait)
        await Writer(wf, key, linger).write("grandchild")
        return 2

    @workflow("parent")
    async def parent(wf: Workflow, key: str, wait: float, linger: float) -> None:
        writer = Writer(wf, key, linger)
        spawned = await wf.spawn(offspring.child(key=key, wait=wait, linger=linger))
        numbers = await wf.gather(
            *(ChildJob.of(jobs.child.submission(key=key, number=number, fails=False)) for number in range(2))
        )
        await writer.write("a", sum(numbers) + await wf.result(spawned))

    @workflow("thread")
    def thread(wf: SyncWorkflow, key: str, wait: float, linger: float) -> None:
        def insert(tx: SyncTransaction, step: str, value: str) -> None:
            threading.Event().wait(linger)
            tx.execute(EFFECT, (key, step, wf.id, wf.attempt, value, step))

        wf.options(name="a").transaction(insert, "a", str(wf.uuid()))
        wf.sleep(wait)
        value = wf.event(_event(key), int)
        wf.gather(ChildJob.of(jobs.child.submission(key=key, number=0, fails=False)))
        wf.options(name="b").transaction(insert, "b", str(value))


def _declare_undone(workflow: Declares, jobs: Jobs) -> None:
    undo = jobs.undo.submission(key="", step="", workflow_id=0)

    async def saga(wf: Workflow, key: str, wait: float, linger: float) -> Writer:
        writer = Writer(wf, key, linger, undo)
        await writer.write("a")
        await writer.write("b")
        await wf.sleep(wait)
        await writer.write("c")
        return writer

    @workflow("failing")
    async def failing(wf: Workflow, key: str, wait: float, linger: float) -> None:
        await saga(wf, key, wait, linger)
        try:
            await wf.gather(ChildJob.of(jobs.child.submission(key=key, number=0, fails=True)))
        except ChildJobFailed as failed:
            raise PermanentError("a child failed, as planned") from failed

    @workflow("frail", FRAIL_TRIES)
    async def frail(wf: Workflow, key: str, wait: float, linger: float) -> None:
        writer = await saga(wf, key, wait, linger)
        await writer.write("d")

    @workflow("cancelled")
    async def cancelled(wf: Workflow, key: str, wait: float, linger: float) -> None:
        writer = await saga(wf, key, wait, linger)
        await wf.options(key=2).sleep(wait)
        await writer.write("d")


async def _pure(key: str) -> str:
    return key


async def _slow(linger: float) -> float:
    await asyncio.sleep(linger)
    return linger


WORKFLOWS = Workflows
