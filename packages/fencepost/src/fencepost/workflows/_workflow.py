"""The workflow as its function sees it."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar, cast, overload

from fencepost.crashpoints import crash_point
from fencepost.database import AsyncDatabase
from fencepost.jobs._group_commit import Statement
from fencepost.jobs.job import Job
from fencepost.kernel import _workflow as kernel
from fencepost.kernel import job as kernel_job
from fencepost.kernel.call import Call, Json
from fencepost.transaction import Transaction
from fencepost.workflows import _child_job as children
from fencepost.workflows._child_job import ChildJob, Spawned
from fencepost.workflows._errors import ChildJobFailed, Parked
from fencepost.workflows._metrics import WorkflowCounts
from fencepost.workflows._run_state import (
    RunState,
    StepCall,
    StepOptions,
    Stubs,
    Undo,
    WorkflowFacts,
    in_seconds,
    read_event,
)
from fencepost.workflows._step_codec import IDENTIFIER, NUMBER, TIME, Codec, codec_for
from fencepost.workflows._step_committer import StepCommitter
from fencepost.workflows._step_log import StepLog

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

Wanted = tuple[str, str, Sequence[ChildJob[Any]]]
"""Children to be started as one step: its name, its digest, and they."""


@dataclass(slots=True, eq=False)
class Wait:
    """Something a workflow waits for. `call` registers it, and parks the workflow when asked to; `read` says
    whether the answer ends the wait."""

    order: str
    call: Callable[[bool], Call[Any]]
    is_over: Callable[[Any], bool]
    done: asyncio.Future[Any]


class WorkflowRun(RunState):
    """One run of a workflow in an event loop: its steps, and what parks it."""

    def __init__(
        self,
        job: Job,
        name: str,
        version: int,
        log: StepLog,
        database: AsyncDatabase,
        committer: StepCommitter,
        encode: Callable[[dict[str, Any]], Json],
        stubs: Stubs,
        counts: WorkflowCounts,
        *,
        repeats: bool,
    ) -> None:
        super().__init__(job, name, version, log, stubs, counts, repeats=repeats)
        self.database = database
        self.encode = encode
        self._committer = committer
        self._open = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._waits: list[Wait] = []
        self._parking: asyncio.Task[None] | None = None

    @contextmanager
    def opened(self) -> Generator[None]:
        """While a step is open the workflow is not parked."""
        self.log.require_running()
        self._open += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._open -= 1
            if not self._open:
                self._quiet.set()

    async def commit(self, *records: kernel.Record) -> None:
        """Record steps, and those that ride with them."""
        riders = self.log.take_riders()
        try:
            await self._committer.commit([*riders, *records])
        except BaseException:
            self.log.put_back(riders)
            raise

    @asynccontextmanager
    async def transaction(self, last: Callable[[], Call[Any]] | None = None) -> AsyncGenerator[Transaction]:
        """A fenced transaction of this attempt. Workflows that outnumber the connections wait here for their
        turn, and not in the pool, whose wait ends with an error."""
        fence = kernel_job.fence(self.log.job_id, self.log.attempt, self.log.owner)
        async with self.database.transaction_in(self.job.line, first=fence, last=last) as tx:
            yield tx

    async def result_of(self, stored: kernel.StoredStep) -> Json:
        if not stored.is_large:
            return stored.result
        return await self.database.run(kernel.result(self.log.job_id, stored.name))

    async def refuse(self, name: str, digest: str) -> NoReturn:
        """The step was recorded with other arguments: the database says so, counts it and writes it down."""
        await self.database.run(kernel.commit(self.log.record(name, digest), self.log.owner))
        raise AssertionError(f"the step {name!r} was recorded, and its record is gone")

    async def wait(self, order: str, call: Callable[[bool], Call[T]], is_over: Callable[[T], bool]) -> T:
        """Wait for something: raises Parked when the workflow was given back for it."""
        self.log.require_running()
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waits.append(Wait(order, call, is_over, done))
        if self._parking is None or self._parking.done():
            self._parking = asyncio.create_task(self._park(), name=f"fencepost-park-{self.log.job_id}")
        return await done

    async def spawn(self, wanted: Sequence[Wanted]) -> list[tuple[int, list[int]]]:
        """Start children, each sequence of them as one step; their batches and ids. One commit."""
        log = self.log
        riders = log.take_riders()
        spawned: list[tuple[int, list[int]]] = []
        try:
            async with self.transaction() as tx:
                if riders:
                    await tx.run(kernel.commit_all(riders, log.owner))
                for name, digest, jobs in wanted:
                    job_ids: list[int] = []
                    for call in children.submissions(jobs):
                        job_ids += [submitted.job_id for submitted in await tx.run(call)]
                    step = kernel.spawn(log.job_id, log.attempt, log.owner, name, digest, job_ids)
                    spawned.append((await tx.run(step), job_ids))
                crash_point("workflow.spawn.before_commit")
        except BaseException:
            log.put_back(riders)
            raise
        crash_point("workflow.spawn.after_commit")
        return spawned

    async def restart(self, payload: Json) -> NoReturn:
        self.log.require_running()
        self.log.take_riders()
        log = self.log
        crash_point("workflow.restart.before_commit")
        await self.database.run(kernel.restart(log.job_id, log.attempt, log.owner, payload))
        self.park()
        crash_point("workflow.restart.after_commit")
        raise Parked

    async def close(self) -> None:
        """Nothing of the run goes on after its function has ended."""
        if self._parking is not None and not self._parking.done():
            self._parking.cancel()
            await asyncio.gather(self._parking, return_exceptions=True)

    async def _park(self) -> None:
        """When no step is open any more, register all that is waited for, and give the workflow back unless
        one of them has happened."""
        while self._waits:
            # Code that was just resumed may be about to open its next step.
            await asyncio.sleep(0)
            await self._quiet.wait()
            await asyncio.sleep(0)
            if self._open:
                continue
            # Two workflows that register the same events take their locks in one order.
            waits = sorted(self._waits, key=lambda wait: wait.order)
            try:
                answers = await self._register(waits)
            except BaseException as error:
                self._waits = []
                for wait in waits:
                    if not wait.done.done():
                        wait.done.set_exception(error)
                        wait.done.exception()
                if isinstance(error, asyncio.CancelledError):
                    raise
                return
            self._settle(waits, answers)

    async def _register(self, waits: Sequence[Wait]) -> list[Any]:
        riders = self.log.take_riders()
        try:
            crash_point("workflow.park.before_commit")
            if len(waits) == 1 and not riders:
                answers = [await self.database.run(waits[0].call(True))]
                over = waits[0].is_over(answers[0])
            else:
                async with self.database.transaction() as tx:
                    if riders:
                        await tx.run(kernel.commit_all(riders, self.log.owner))
                    answers = [await tx.run(wait.call(False)) for wait in waits]
                    over = any(wait.is_over(answer) for wait, answer in zip(waits, answers, strict=True))
                    if not over:
                        await tx.run(kernel.park(self.log.job_id, self.log.attempt, self.log.owner))
            crash_point("workflow.park.after_commit")
        except BaseException:
            self.log.put_back(riders)
            raise
        if not over:
            self.park()
        return answers

    def _settle(self, waits: Sequence[Wait], answers: Sequence[Any]) -> None:
        for wait, answer in zip(waits, answers, strict=True):
            if self.log.parked or wait.is_over(answer):
                self._waits.remove(wait)
                if wait.done.done():
                    continue
                if self.log.parked:
                    wait.done.set_exception(Parked())
                    wait.done.exception()
                else:
                    wait.done.set_result(answer)


class Workflow(WorkflowFacts):
    """One run of a workflow. Its steps are found by name, so the code around them may change."""

    def __init__(self, run: WorkflowRun, options: StepOptions | None = None) -> None:
        super().__init__(run, options or StepOptions())
        self._run = run

    @property
    def run(self) -> WorkflowRun:
        """What is behind it, for code of the library that is built on steps."""
        return self._run

    def options(
        self,
        *,
        name: str | None = None,
        key: object = None,
        undo: Undo | None = None,
        durable: bool = True,
    ) -> Workflow:
        """The same workflow, with options for the one step that is requested through it.

        `name` replaces the function's name, `key` tells steps of one name apart, `undo` is the job that is
        submitted if the workflow ends badly, and a step that is not `durable` is recorded with the next one.
        """
        return Workflow(self._run, StepOptions(name, key, undo, durable))

    @overload
    async def step(self, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def step(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    async def step(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run the function and record its result; in a later attempt, return the recorded result.

        A worker that dies between the two runs the function again in the next attempt. A function that is
        no coroutine function runs in a thread.
        """
        call = StepCall.of(self._options, function, args, kwargs)
        with self._run.opened():
            stored = self._run.log.use(call.name)
            if stored is not None:
                return call.codec.decode(await self._known(stored, call.digest))
            with self._run.executing(call.name):
                return await self._execute(call, function, args, kwargs)

    async def transaction(
        self,
        function: Callable[Concatenate[Transaction, P], Awaitable[R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """A step with writes of your own: the function gets a transaction, and what it writes commits with
        the record of the step, or not at all. So it happens once."""
        run = self._run
        call = StepCall.of(self._options, function, args, kwargs)
        with run.opened():
            stored = run.log.use(call.name)
            if stored is not None:
                return cast("R", call.codec.decode(await self._known(stored, call.digest)))
            with run.executing(call.name):
                return cast("R", await self._commit(call, function, args, kwargs))

    async def write(self, *statements: Statement) -> None:
        """A step whose writes are known before it: the statements, each a query with its parameters.

        They and the record of the step are one commit, which workflows share that write at the same time. A
        statement fails as it would alone, and takes no other workflow with it.
        """
        run, log = self._run, self._run.log
        call = StepCall.writing(self._options, statements)
        with run.opened():
            stored = log.use(call.name)
            if stored is not None:
                await self._known(stored, call.digest)
                return
            with run.executing(call.name):
                if run.is_stubbed(call.name) or log.has_riders:
                    await self._commit(call, _execute, statements, {})
                    return
                record = log.record(call.name, call.digest, None, self._options.undo_for(None))
                if not await run.job.commit_with(record, statements):
                    await self._commit(call, _execute, statements, {})

    async def sleep(self, delay: timedelta | float) -> None:
        """Sleep without a worker, a connection or a concurrency slot. The time counts from the first call."""
        seconds = in_seconds("delay", delay)
        name = self._options.named("sleep")
        stored = self._run.log.use(name)
        if stored is not None:
            is_over = self._run.is_over(stored, seconds)
            if is_over:
                return
        await self._run.wait(
            name, lambda park: self._run.sleep_call(name, seconds, park=park), lambda until: False
        )

    # The timeout is kept by the database, over many runs: asyncio's would end with this one.
    @overload
    async def event(
        self,
        event: str,
        /,
        *,
        timeout: timedelta | float | None = None,  # noqa: ASYNC109
    ) -> Json: ...
    @overload
    async def event(
        self,
        event: str,
        kind: type[T],
        /,
        *,
        timeout: timedelta | float | None = None,  # noqa: ASYNC109
    ) -> T: ...
    async def event(
        self,
        event: str,
        kind: Any = Any,
        /,
        *,
        timeout: timedelta | float | None = None,  # noqa: ASYNC109
    ) -> Any:
        """Wait for an event and return its payload; raises EventTimeout when it does not come in time.

        The workflow is parked meanwhile. An event that was emitted before is found.
        """
        codec = codec_for(f"the payload of {event!r}", kind)
        name = self._options.named(event)
        stored = self._run.log.use(name)
        if stored is not None:
            return read_event(await self._known(stored, event), event, codec)
        seconds = None if timeout is None else in_seconds("timeout", timeout)
        answer = await self._run.wait(
            event,
            lambda park: self._run.event_call(name, event, seconds, park=park),
            lambda answer: answer.outcome in ("emitted", "timed_out"),
        )
        return read_event(answer._asdict(), event, codec)

    async def spawn(self, child: ChildJob[T]) -> Spawned[T]:
        """Start a job or a workflow as a child, and go on. `result` waits for it."""
        name = self._options.named(child.submission.kind)
        batch, job_ids = await self._spawn(name, [child])
        return Spawned(name, batch, job_ids, child.decode)

    async def result(self, spawned: Spawned[T]) -> T:
        """Wait until a child has ended, and return its result; raises ChildJobFailed when it has none."""
        outcomes = await self._join(f"{spawned.name}/result", spawned.batch, spawned.job_ids)
        [result] = children.results(outcomes, [spawned.decode])
        return result

    async def gather(self, *wanted: ChildJob[T]) -> list[T]:
        """Start children and wait for all of them; their results in order. After all have ended, raises
        ChildJobFailed for the first that has none."""
        return children.results(await self._gather(wanted), [child.decode for child in wanted])

    async def gather_settled(self, *wanted: ChildJob[T]) -> list[T | ChildJobFailed]:
        """`gather`, with a ChildJobFailed in the place of each child that failed."""
        return children.settled(await self._gather(wanted), [child.decode for child in wanted])

    async def restart(self, **arguments: Any) -> NoReturn:
        """Begin again with other arguments under the same id. The steps are dropped: for endless loops."""
        await self._run.restart(self._run.encode(arguments))

    async def now(self) -> datetime:
        """The time, recorded: the same in every attempt."""
        return await self._recorded("now", TIME, lambda: datetime.now(UTC))

    async def random(self) -> float:
        """A random number from 0 to 1, recorded."""
        return await self._recorded("random", NUMBER, random.random)

    async def uuid(self) -> uuid.UUID:
        """A random UUID, recorded."""
        return await self._recorded("uuid", IDENTIFIER, uuid.uuid4)

    async def _execute(
        self, call: StepCall, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a step's function, and record its result."""
        run = self._run.stubbed(call.name, function)
        if iscoroutinefunction(run):
            value = await run(*args, **kwargs)
        else:
            value = await asyncio.to_thread(run, *args, **kwargs)
            value = await value if isawaitable(value) else value
        encoded = call.codec.encode(value)
        decoded = call.codec.decode(encoded)
        record = self._run.log.record(call.name, call.digest, encoded, self._options.undo_for(decoded))
        if self._options.durable:
            await self._run.commit(record)
        else:
            self._run.log.ride(record)
        return decoded

    async def _commit(
        self, call: StepCall, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Fence, riders, the function's writes and the record of the step: one commit. The fence travels with
        BEGIN and the record with COMMIT."""
        run, log = self._run, self._run.log
        recorded: list[kernel.Record] = []
        riders = log.take_riders()
        try:
            crash_point("workflow.step.before_fence")
            async with run.transaction(last=lambda: kernel.commit(recorded[0], log.owner)) as tx:
                crash_point("workflow.step.after_fence")
                if riders:
                    await tx.run(kernel.commit_all(riders, log.owner))
                value = await run.stubbed(call.name, function)(tx, *args, **kwargs)
                encoded = call.codec.encode(value)
                decoded = call.codec.decode(encoded)
                undo = self._options.undo_for(decoded)
                recorded.append(log.record(call.name, call.digest, encoded, undo))
                crash_point("workflow.step.before_commit")
        except BaseException:
            log.put_back(riders)
            raise
        crash_point("workflow.step.after_commit")
        return decoded

    async def _recorded(self, default: str, codec: Codec, make: Callable[[], T]) -> T:
        name = self._options.named(default)
        with self._run.opened():
            stored = self._run.log.use(name)
            if stored is not None:
                return cast("T", codec.decode(await self._known(stored, default)))
            encoded = codec.encode(make())
            await self._run.commit(self._run.log.record(name, default, encoded))
            return cast("T", codec.decode(encoded))

    async def _known(self, stored: kernel.StoredStep, digest: str) -> Json:
        """The recorded result; refused when the step was recorded with other arguments."""
        if stored.digest != digest:
            await self._run.refuse(stored.name, digest)
        return await self._run.result_of(stored)

    async def _gather(self, wanted: Sequence[ChildJob[Any]]) -> Json:
        name = self._options.named("gather")
        batch, job_ids = await self._spawn(name, wanted)
        return await self._join(f"{name}/results", batch, job_ids)

    async def _spawn(self, name: str, wanted: Sequence[ChildJob[Any]]) -> tuple[int, list[int]]:
        run, digest = self._run, children.children_digest(wanted)
        with run.opened():
            stored = run.log.use(name)
            if stored is not None:
                known = await self._known(stored, digest)
                return known["batch"], known["jobs"]
            with run.executing(name):
                [spawned] = await run.spawn([(name, digest, wanted)])
            return spawned

    async def _join(self, name: str, batch: int, job_ids: Sequence[int]) -> Json:
        run = self._run
        digest = f"batch:{batch}"
        stored = run.log.use(name)
        if stored is not None:
            return await self._known(stored, digest)
        await run.wait(name, lambda park: run.join_call(batch, park=park), lambda answer: answer == "ended")
        with run.opened():
            outcomes = children.as_json(await run.database.run(kernel.children(job_ids)))
            await run.commit(run.log.record(name, digest, outcomes))
            return outcomes


async def _execute(tx: Transaction, *statements: Statement) -> None:
    for query, parameters in statements:
        await tx.execute(query, parameters)
