"""What the async and the sync form of a workflow share: its names, its steps, and how a step is described."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from fencepost.errors import InvalidInput, Refusal
from fencepost.jobs._group_commit import Statement, check_query
from fencepost.jobs.job import Job
from fencepost.kernel import _workflow as kernel
from fencepost.kernel.call import Call, Json
from fencepost.kernel.job import Submission
from fencepost.tracing import span
from fencepost.workflows._errors import EventTimeout
from fencepost.workflows._metrics import WorkflowCounts
from fencepost.workflows._step_codec import ANYTHING, Codec, arguments_digest, codec_of, step_name
from fencepost.workflows._step_log import StepLog

Undo = Submission | Callable[[Any], Submission]
"""The job that undoes a step, or a function that makes it from the step's result."""


Stubs = Mapping[str, Callable[..., Any]]
"""What tests run in the place of steps, by name, with or without the key."""


@dataclass(frozen=True, slots=True)
class StepOptions:
    """How the next step is recorded."""

    name: str | None = None
    key: object = None
    undo: Undo | None = None
    durable: bool = True

    def named(self, default: str) -> str:
        name = self.name or default
        return name if self.key is None else f"{name}:{self.key}"

    def undo_for(self, result: Any) -> Submission | None:
        if self.undo is None or isinstance(self.undo, Submission):
            return self.undo
        return self.undo(result)


@dataclass(frozen=True, slots=True)
class StepCall:
    """One step as it is requested: its name, the digest of its arguments, and the type of its result."""

    name: str
    digest: str
    codec: Codec

    @classmethod
    def of(
        cls,
        options: StepOptions,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> StepCall:
        name = options.named(options.name or step_name(function))
        return cls(name, arguments_digest(args, kwargs), codec_of(function))

    @classmethod
    def writing(cls, options: StepOptions, statements: Sequence[Statement]) -> StepCall:
        """A step that is its statements."""
        if not statements:
            raise InvalidInput("A step that writes needs a statement.", field="statements")
        for query, _ in statements:
            check_query(query)
        # A query may be rewritten between two versions of the code; what it is given makes it another step.
        given = tuple([list(parameters) for _, parameters in statements])
        return cls(options.named("write"), arguments_digest(given, {}), ANYTHING)


class RunState:
    """One run of a workflow, without I/O."""

    def __init__(
        self,
        job: Job,
        name: str,
        version: int,
        log: StepLog,
        stubs: Stubs,
        counts: WorkflowCounts | None = None,
        *,
        repeats: bool = False,
    ) -> None:
        self.job = job
        self.name = name
        self.version = version
        self.log = log
        self._stubs = stubs
        self._counts = counts
        self._repeats = repeats

    @contextmanager
    def executing(self, name: str) -> Generator[None]:
        """Around a step that runs, and its record: a span, the counts, and the step's name on what it raises.

        After an attempt that failed or was lost, steps are repeated until the first one is recorded.
        """
        counts = self._counts
        if counts is not None and self._repeats:
            counts.steps_repeated.inc()
        about: dict[str, str | int] = {"workflow": f"{self.name}@{self.version}", "job_id": self.log.job_id}
        with span(f"step {name}", "internal", {}, attempt=self.log.attempt, **about):
            try:
                yield
            except Refusal:
                raise
            except Exception as error:
                error.add_note(f"In the step {name!r} of workflow {self.log.job_id}.")
                if counts is not None:
                    counts.steps_failed.inc()
                raise
        self._repeats = False
        if counts is not None:
            counts.steps_recorded.inc()

    def stubbed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function of a step, or what a test runs in its place."""
        if not self._stubs:
            return function
        return self._stubs.get(name) or self._stubs.get(name.partition(":")[0]) or function

    def is_stubbed(self, name: str) -> bool:
        """Whether a test runs something in the place of a step."""
        return bool(self._stubs) and (name in self._stubs or name.partition(":")[0] in self._stubs)

    def park(self) -> None:
        """The workflow was given back: this run has ended, whatever its function still does."""
        self.log.parked = self.job.parked = True

    def sleep_call(self, name: str, seconds: float, *, park: bool = True) -> Call[datetime]:
        log = self.log
        return kernel.sleep(
            log.job_id, log.attempt, log.owner, name, _seconds_digest(seconds), seconds, park=park
        )

    def event_call(
        self, name: str, event: str, timeout_seconds: float | None, *, park: bool = True
    ) -> Call[kernel.EventAnswer]:
        log = self.log
        return kernel.await_event(log.job_id, log.attempt, log.owner, name, event, timeout_seconds, park=park)

    def join_call(self, batch: int, *, park: bool = True) -> Call[Any]:
        return kernel.join(self.log.job_id, self.log.attempt, self.log.owner, batch, park=park)

    def join_any_call(self, batches: Sequence[int], *, park: bool = True) -> Call[list[kernel.EndedBatch]]:
        return kernel.join_any(self.log.job_id, self.log.attempt, self.log.owner, batches, park=park)

    def is_over(self, stored: kernel.StoredStep, seconds: float) -> bool | None:
        """Whether a recorded sleep has ended; None when the step is none, or another."""
        if stored.what != "sleep" or stored.digest != _seconds_digest(seconds) or self.log.now is None:
            return None
        return datetime.fromisoformat(str(stored.result)) <= self.log.now


def _seconds_digest(seconds: float) -> str:
    return arguments_digest((seconds,), {})


def in_seconds(field: str, value: timedelta | float) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if seconds < 0:
        raise InvalidInput(f"{field} is {seconds} seconds; it must be 0 or more.", field=field)
    return seconds


def read_event(recorded: Json, event: str, codec: Codec) -> Any:
    """The payload of a recorded event; raises EventTimeout when there was none in time."""
    if recorded["outcome"] == "timed_out":
        raise EventTimeout(event)
    return codec.decode(recorded["payload"])


class WorkflowFacts:
    """What a workflow knows of itself."""

    def __init__(self, run: RunState, options: StepOptions) -> None:
        self._facts = run
        self._options = options

    @property
    def id(self) -> int:
        """The id of the workflow: the id of its job."""
        return self._facts.log.job_id

    @property
    def attempt(self) -> int:
        """The fencing token of this run."""
        return self._facts.log.attempt

    @property
    def name(self) -> str:
        """The workflow's name."""
        return self._facts.name

    @property
    def version(self) -> int:
        """The version that the workflow was started with, whatever the version of this code is."""
        return self._facts.version

    @property
    def round(self) -> int:
        """How often it was restarted."""
        return self._facts.log.round

    @property
    def job(self) -> Job:
        """The job that runs it, for its headers, its progress and whether it was asked to stop."""
        return self._facts.job

    @property
    def unrequested_steps(self) -> list[str]:
        """Recorded steps that this run has not asked for so far: at the end, steps of code that is gone."""
        return self._facts.log.unrequested

    def since(self, version: int) -> bool:
        """Whether the workflow was started with this version or a later one: for patches in place."""
        return self.version >= version

    def idempotency_key(self, name: str) -> str:
        """A key for an effect outside PostgreSQL: the same in every attempt at this workflow."""
        return self._facts.log.idempotency_key(self.name, name)
