"""The workflow as a function without an event loop sees it. It runs in a thread of the worker.

It is no second form of the same text: here one step runs at a time, with a commit of its own, and a wait
parks at once. In an event loop steps overlap, share commits, and a wait parks when all of them have ended.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar, cast, overload

from fencepost.crashpoints import crash_point
from fencepost.database import SyncDatabase
from fencepost.jobs._group_commit import Statement
from fencepost.jobs.job import Job
from fencepost.kernel import _workflow as kernel
from fencepost.kernel import job as kernel_job
from fencepost.kernel.call import Call, Json
from fencepost.transaction import SyncTransaction
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
from fencepost.workflows._step_log import StepLog

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class SyncWorkflowRun(RunState):
    """One run of a workflow in a thread. One step at a time, each with a commit of its own."""

    def __init__(
        self,
        job: Job,
        name: str,
        version: int,
        log: StepLog,
        database: SyncDatabase,
        encode: Callable[[dict[str, Any]], Json],
        stubs: Stubs,
        counts: WorkflowCounts,
        *,
        repeats: bool,
    ) -> None:
        super().__init__(job, name, version, log, stubs, counts, repeats=repeats)
        self.database = database
        self.encode = encode

    def result_of(self, stored: kernel.StoredStep) -> Json:
        if not stored.is_large:
            return stored.result
        return self.database.run(kernel.result(self.log.job_id, stored.name))

    def refuse(self, name: str, digest: str) -> NoReturn:
        """The step was recorded with other arguments: the database says so, counts it and writes it down."""
        self.database.run(kernel.commit(self.log.record(name, digest), self.log.owner))
        raise AssertionError(f"the step {name!r} was recorded, and its record is gone")

    def in_transaction(self, work: Callable[[SyncTransaction], T]) -> T:
        """Fence, riders, the work, and whatever it records: one commit."""
        log = self.log
        riders = log.take_riders()
        try:
            crash_point("workflow.step_sync.before_fence")
            fence = kernel_job.fence(log.job_id, log.attempt, log.owner)
            with self.database.transaction(first=fence) as tx:
                crash_point("workflow.step_sync.after_fence")
                if riders:
                    tx.run(kernel.commit_all(riders, log.owner))
                answer = work(tx)
                crash_point("workflow.step_sync.before_commit")
        except BaseException:
            log.put_back(riders)
            raise
        crash_point("workflow.step_sync.after_commit")
        return answer

    def wait(self, call: Call[T], is_over: Callable[[T], bool]) -> T:
        """Raises Parked when the workflow was given back."""
        answer = self.in_transaction(lambda tx: tx.run(call))
        if not is_over(answer):
            self.park()
            raise Parked
        return answer


class SyncWorkflow(WorkflowFacts):
    """`Workflow` for functions without an event loop: the same calls, without `await`."""

    def __init__(self, run: SyncWorkflowRun, options: StepOptions | None = None) -> None:
        super().__init__(run, options or StepOptions())
        self._run = run

    def options(
        self,
        *,
        name: str | None = None,
        key: object = None,
        undo: Undo | None = None,
        durable: bool = True,
    ) -> SyncWorkflow:
        """The same workflow, with options for the one step that is requested through it."""
        return SyncWorkflow(self._run, StepOptions(name, key, undo, durable))

    def step(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function and record its result; in a later attempt, return the recorded result."""
        call = StepCall.of(self._options, function, args, kwargs)
        stored = self._run.log.use(call.name)
        if stored is not None:
            return cast("R", call.codec.decode(self._known(stored, call.digest)))
        with self._run.executing(call.name):
            encoded = call.codec.encode(self._run.stubbed(call.name, function)(*args, **kwargs))
            decoded = call.codec.decode(encoded)
            undo = self._options.undo_for(decoded)
            self._record(self._run.log.record(call.name, call.digest, encoded, undo))
        return cast("R", decoded)

    def transaction(
        self,
        function: Callable[Concatenate[SyncTransaction, P], R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """A step with writes of your own: they commit with the record of the step, or not at all."""
        return cast(
            "R", self._commit(StepCall.of(self._options, function, args, kwargs), function, args, kwargs)
        )

    def write(self, *statements: Statement) -> None:
        """A step whose writes are known before it: the statements, each a query with its parameters, commit
        with the record of the step."""
        self._commit(StepCall.writing(self._options, statements), _execute, statements, {})

    def sleep(self, delay: timedelta | float) -> None:
        """Sleep without a worker, a connection or a concurrency slot. The time counts from the first call."""
        seconds = in_seconds("delay", delay)
        name = self._options.named("sleep")
        stored = self._run.log.use(name)
        if stored is None or not self._run.is_over(stored, seconds):
            self._run.wait(self._run.sleep_call(name, seconds), lambda until: False)

    @overload
    def event(self, event: str, /, *, timeout: timedelta | float | None = None) -> Json: ...
    @overload
    def event(self, event: str, kind: type[T], /, *, timeout: timedelta | float | None = None) -> T: ...
    def event(self, event: str, kind: Any = Any, /, *, timeout: timedelta | float | None = None) -> Any:
        """Wait for an event and return its payload; raises EventTimeout when it does not come in time."""
        codec = codec_for(f"the payload of {event!r}", kind)
        name = self._options.named(event)
        stored = self._run.log.use(name)
        if stored is not None:
            return read_event(self._known(stored, event), event, codec)
        seconds = None if timeout is None else in_seconds("timeout", timeout)
        answer = self._run.wait(
            self._run.event_call(name, event, seconds),
            lambda answer: answer.outcome in ("emitted", "timed_out"),
        )
        return read_event(answer._asdict(), event, codec)

    def spawn(self, child: ChildJob[T]) -> Spawned[T]:
        """Start a job or a workflow as a child, and go on. `result` waits for it."""
        name = self._options.named(child.submission.kind)
        batch, job_ids = self._spawn(name, [child])
        return Spawned(name, batch, job_ids, child.decode)

    def result(self, spawned: Spawned[T]) -> T:
        """Wait until a child has ended, and return its result; raises ChildJobFailed when it has none."""
        outcomes = self._join(f"{spawned.name}/result", spawned.batch, spawned.job_ids)
        [result] = children.results(outcomes, [spawned.decode])
        return result

    def gather(self, *wanted: ChildJob[T]) -> list[T]:
        """Start children and wait for all of them; their results in order."""
        return children.results(self._gather(wanted), [child.decode for child in wanted])

    def gather_settled(self, *wanted: ChildJob[T]) -> list[T | ChildJobFailed]:
        """`gather`, with a ChildJobFailed in the place of each child that failed."""
        return children.settled(self._gather(wanted), [child.decode for child in wanted])

    def restart(self, **arguments: Any) -> NoReturn:
        """Begin again with other arguments under the same id. The steps are dropped: for endless loops."""
        log = self._run.log
        log.require_running()
        log.take_riders()
        payload = self._run.encode(arguments)
        self._run.wait(kernel.restart(log.job_id, log.attempt, log.owner, payload), lambda done: False)
        raise Parked

    def now(self) -> datetime:
        """The time, recorded: the same in every attempt."""
        return self._recorded("now", TIME, lambda: datetime.now(UTC))

    def random(self) -> float:
        """A random number from 0 to 1, recorded."""
        return self._recorded("random", NUMBER, random.random)

    def uuid(self) -> uuid.UUID:
        """A random UUID, recorded."""
        return self._recorded("uuid", IDENTIFIER, uuid.uuid4)

    def _commit(
        self, call: StepCall, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Fence, riders, the function's writes and the record of the step: one commit."""
        stored = self._run.log.use(call.name)
        if stored is not None:
            return call.codec.decode(self._known(stored, call.digest))

        def work(tx: SyncTransaction) -> Any:
            value = self._run.stubbed(call.name, function)(tx, *args, **kwargs)
            encoded = call.codec.encode(value)
            decoded = call.codec.decode(encoded)
            record = self._run.log.record(call.name, call.digest, encoded, self._options.undo_for(decoded))
            tx.run(kernel.commit(record, self._run.log.owner))
            return decoded

        with self._run.executing(call.name):
            return self._run.in_transaction(work)

    def _recorded(self, default: str, codec: Codec, make: Callable[[], T]) -> T:
        name = self._options.named(default)
        stored = self._run.log.use(name)
        if stored is not None:
            return cast("T", codec.decode(self._known(stored, default)))
        encoded = codec.encode(make())
        self._record(self._run.log.record(name, default, encoded))
        return cast("T", codec.decode(encoded))

    def _record(self, record: kernel.Record) -> None:
        if self._options.durable:
            self._run.in_transaction(lambda tx: tx.run(kernel.commit(record, self._run.log.owner)))
        else:
            self._run.log.ride(record)

    def _known(self, stored: kernel.StoredStep, digest: str) -> Json:
        if stored.digest != digest:
            self._run.refuse(stored.name, digest)
        return self._run.result_of(stored)

    def _gather(self, wanted: Sequence[ChildJob[Any]]) -> Json:
        name = self._options.named("gather")
        batch, job_ids = self._spawn(name, wanted)
        return self._join(f"{name}/results", batch, job_ids)

    def _spawn(self, name: str, wanted: Sequence[ChildJob[Any]]) -> tuple[int, list[int]]:
        log, digest = self._run.log, children.children_digest(wanted)
        stored = log.use(name)
        if stored is not None:
            known = self._known(stored, digest)
            return known["batch"], known["jobs"]

        def work(tx: SyncTransaction) -> tuple[int, list[int]]:
            job_ids = [job.job_id for call in children.submissions(wanted) for job in tx.run(call)]
            spawned = kernel.spawn(log.job_id, log.attempt, log.owner, name, digest, job_ids)
            return tx.run(spawned), job_ids

        with self._run.executing(name):
            return self._run.in_transaction(work)

    def _join(self, name: str, batch: int, job_ids: Sequence[int]) -> Json:
        digest = f"batch:{batch}"
        stored = self._run.log.use(name)
        if stored is not None:
            return self._known(stored, digest)
        self._run.wait(self._run.join_call(batch), lambda answer: answer == "ended")
        outcomes = children.as_json(self._run.database.run(kernel.children(job_ids)))
        self._record(self._run.log.record(name, digest, outcomes))
        return outcomes


def _execute(tx: SyncTransaction, *statements: Statement) -> None:
    for query, parameters in statements:
        tx.execute(query, parameters)
